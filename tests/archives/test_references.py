"""What names a series, and what the settings say of archives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from caps_med.archives import (
    ArchiveSettings,
    SeriesReference,
    StudyReference,
    configured_archives,
    find_archive,
)
from caps_med.archives.reference import parse_reference
from caps_med.archives.settings import VARIABLE
from caps_med.errors import ArchiveNotFound, InvalidParameter
from caps_med.images.dicom_origin import is_uid

SECRET = "do-not-show-this"  # noqa: S105
URL = "https://pacs.example/dicom-web"


@pytest.mark.parametrize(
    "uid", ["1.2", "0.0", "1.02.003", "2.25.329800735698586629295641978511506172918"]
)
def test_uids(uid: str) -> None:
    assert is_uid(uid)


@pytest.mark.parametrize(
    "uid",
    ["", "1", "1.", ".1", "1..2", "1.2\n", "1.2/../3", "1.2%2e3", "1.2?x", "1.2#", "1.٣",
     "１.2", "../1.2", "1.2 ", "-1.2", "1.2" + 31 * ".1", "*", "http://1.2"],
)  # fmt: skip
def test_what_is_no_uid(uid: str) -> None:
    assert not is_uid(uid)
    with pytest.raises(InvalidParameter, match="study: not a DICOM UID"):
        StudyReference("pacs", uid)
    with pytest.raises(InvalidParameter, match="series: not a DICOM UID"):
        SeriesReference("pacs", "1.2", uid)


def test_a_reference_names_a_study_or_a_series() -> None:
    series = parse_reference("dicomweb://pacs/studies/1.2/series/1.3")
    assert series == SeriesReference("pacs", "1.2", "1.3")
    assert parse_reference("dicomweb://pacs/studies/1.2") == StudyReference("pacs", "1.2")
    with pytest.raises(InvalidParameter, match="name a series as well"):
        SeriesReference.parse("dicomweb://pacs/studies/1.2")


@pytest.mark.parametrize(
    "text",
    ["", "pacs/studies/1.2", "http://pacs/studies/1.2", "dicomweb://pacs", "dicomweb://a/b/studies/1.2",
     "dicomweb://pacs/studies/1.2/series/1.3/instances/1.4", "dicomweb://pacs/studies/1.2/",
     "dicomweb://pacs/studies/../series/1.3", "dicomweb://pacs/studies/1.2/series/",
     "dicomweb://pacs/studies/1.2\n"],
)  # fmt: skip
def test_what_is_no_reference(text: str) -> None:
    with pytest.raises(InvalidParameter, match=r"not a reference to an archive|not a DICOM UID"):
        parse_reference(text)


@pytest.mark.parametrize(
    "name", ["http://evil.example", "pacs/../other", "PACS", "", "pacs@evil.example", "pacs\n"]
)
def test_only_names_of_the_settings_are_archives(name: str) -> None:
    configured = {"pacs": ArchiveSettings(url=URL), "lab": ArchiveSettings(url=URL)}
    with pytest.raises(ArchiveNotFound, match="known are lab, pacs"):
        find_archive(name, configured)
    with pytest.raises(ArchiveNotFound, match=f"set {VARIABLE}"):
        find_archive(name, {})


def test_archives_are_read_from_the_environment(tmp_path: Path) -> None:
    assert configured_archives({}) == {}
    (tmp_path / "password").write_text(f"{SECRET}\n")
    given = {"pacs": {"url": f"{URL}/", "user": "ai", "password_file": f"{tmp_path}/password"}}
    pacs = configured_archives({VARIABLE: json.dumps(given)})["pacs"]
    assert (pacs.url, pacs.basic(), pacs.bearer()) == (URL, ("ai", SECRET), None)
    (tmp_path / "password").unlink()
    with pytest.raises(InvalidParameter, match="credentials cannot be read"):
        pacs.basic()
    token = configured_archives({VARIABLE: json.dumps({"pacs": {"url": URL, "token": SECRET}})})
    assert (token["pacs"].basic(), token["pacs"].bearer()) == (None, SECRET)
    assert SECRET not in repr(token)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"PACS": {"url": URL}}, "PACS: String should match"),
        ({"pacs": {"url": "ftp://pacs.example"}}, "pacs.url: .*https://HOST/PATH"),
        ({"pacs": {"url": "https:///dicom-web"}}, "pacs.url: .*https://HOST/PATH"),
        ({"pacs": {"url": f"https://ai:{SECRET}@pacs.example"}}, "must not contain credentials"),
        ({"pacs": {"url": f"{URL}?key={SECRET}"}}, "must not have a query"),
        ({"pacs": {"url": URL, "user": "ai"}}, "must be given together"),
        ({"pacs": {"url": URL, "password": SECRET}}, "must be given together"),
        (
            {"pacs": {"url": URL, "user": "a", "password": SECRET, "token": SECRET}},
            "give only one of",
        ),
        ({"pacs": {"url": URL, "pasword": SECRET}}, "pasword: Extra inputs"),
        ({"pacs": {}}, "pacs.url: Field required"),
        ([SECRET], "should be an object"),
    ],
)
def test_wrong_settings_are_named_without_their_secrets(given: object, said: str) -> None:
    with pytest.raises(InvalidParameter, match=said) as caught:
        configured_archives({VARIABLE: json.dumps(given)})
    assert VARIABLE in str(caught.value) and SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
