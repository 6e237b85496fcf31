"""``caps-med segment|classify|features --from`` and ``--to``, with a real Orthanc."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pydicom
import pytest

import caps_med
from benchmarks.orthanc import Orthanc
from caps_med.archives import configured_archives, find_archive
from caps_med.archives.settings import VARIABLE
from caps_med.cli import main
from caps_med.images import read_image
from tests.archives.series import STUDY, slices, zipped
from tests.images.dicom_files import SERIES

OTHER = f"{SERIES}.77"
SOURCE = f"dicomweb://orthanc/studies/{STUDY}/series/{SERIES}"


@pytest.fixture
def filled(orthanc: Orthanc, monkeypatch: pytest.MonkeyPatch) -> Orthanc:
    """An archive of one study, which the environment names."""
    orthanc.clear()
    for file in slices():
        orthanc.store(file)
    monkeypatch.setenv(VARIABLE, orthanc.settings())
    return orthanc


def call(monkeypatch: pytest.MonkeyPatch, models: Path, command: str, *more: str) -> int:
    """The exit status of a command."""
    arguments = [*command.split(), *more, "--models", str(models)]
    monkeypatch.setattr(sys, "argv", ["caps-med", *arguments])
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def stored_series(orthanc: Orthanc, modality: str = "SEG") -> list[str]:
    """The series of this modality in the archive."""
    archive = find_archive("orthanc", configured_archives({VARIABLE: orthanc.settings()}))
    return [one.series for one in archive.find(STUDY) if one.modality == modality]


def test_from_archive_to_archive(
    filled: Orthanc, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    seg, nifti, report = (tmp_path / name for name in ("seg.dcm", "labels.nii.gz", "report.dcm"))
    command = f"segment --model tiny-segmentation --from {SOURCE}"
    more = ("--to", "dicomweb", "--out", str(seg), "--report", str(report))
    assert call(monkeypatch, models, command, *more) == 0
    assert len(stored_series(filled, "SR")) == 1
    (series,) = stored_series(filled)
    assert f"dicomweb://orthanc/studies/{STUDY}/series/{series}" in capsys.readouterr().out
    (instance,) = filled.call("/tools/lookup", series.encode())
    (stored,) = filled.call(f"{instance['Path']}/instances")
    assert filled.call(f"/instances/{stored['ID']}/file") == seg.read_bytes()
    assert call(monkeypatch, models, command, "--out", str(nifti)) == 0
    local = caps_med.load_model("tiny-segmentation", models).segment(zipped())
    assert len(np.unique(local.array)) > 1
    np.testing.assert_array_equal(read_image(nifti, kind="labels").array, local.array)


def test_what_is_stored_is_of_the_type_that_is_asked_for(
    filled: Orthanc, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seg, report = tmp_path / "seg.dcm", tmp_path / "report.dcm"
    command = f"segment --model tiny-segmentation --from {SOURCE} --to dicomweb"
    more = ("--seg-type", "labelmap", "--out", str(seg), "--report", str(report))
    assert call(monkeypatch, models, command, *more) == 0
    for modality, file in (("SEG", seg), ("SR", report)):
        (series,) = stored_series(filled, modality)
        (found,) = filled.call("/tools/lookup", series.encode())
        (instance,) = filled.call(f"{found['Path']}/instances")
        stored = pydicom.dcmread(
            io.BytesIO(filled.call(f"/instances/{instance['ID']}/file")), stop_before_pixels=True
        )
        written = pydicom.dcmread(file, stop_before_pixels=True)
        assert stored.SOPInstanceUID == written.SOPInstanceUID
        assert stored.get("SegmentationType") == ("LABELMAP" if modality == "SEG" else None)


@pytest.mark.parametrize("out", [None, "labels.nii.gz"])
def test_what_belongs_to_a_seg_that_is_only_stored(
    filled: Orthanc, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str | None
) -> None:
    report, preview = tmp_path / "report.dcm", tmp_path / "preview.dcm"
    command = f"segment --model tiny-segmentation --from {SOURCE} --to dicomweb"
    more = ("--seg-type", "labelmap", "--report", str(report), "--preview", str(preview))
    files = () if out is None else ("--out", str(tmp_path / out))
    assert call(monkeypatch, models, command, *more, *files) == 0
    (series,) = stored_series(filled)
    (found,) = filled.call("/tools/lookup", series.encode())
    (instance,) = filled.call(f"{found['Path']}/instances")
    seg = pydicom.dcmread(io.BytesIO(filled.call(f"/instances/{instance['ID']}/file")))
    assert seg.SegmentationType == "LABELMAP"
    assert seg.SOPInstanceUID in str(pydicom.dcmread(report))
    assert pydicom.dcmread(preview).Modality == "OT"
    if out is not None:
        assert read_image(tmp_path / out, kind="labels").format == "nifti"


def test_all_image_series_of_a_study(
    filled: Orthanc, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    for file in (*slices(OTHER), slices(f"{OTHER}.1", Modality="RWV")[0]):
        filled.store(file)
    command = f"segment --model tiny-segmentation --from dicomweb://orthanc/studies/{STUDY}"
    assert call(monkeypatch, models, command, "--out", str(tmp_path / "x.nii.gz")) == 2
    assert "the study has 2 image series" in capsys.readouterr().err
    more = ("--to", "dicomweb", "--report", str(tmp_path / "x.dcm"))
    assert call(monkeypatch, models, command, *more) == 2
    assert "--report" in (said := capsys.readouterr().err) and "2 image series" in said
    assert stored_series(filled) == []
    for _ in range(2):  # what the first left there is no image, and is what the second stores
        assert call(monkeypatch, models, command, "--to", "dicomweb", "--json") == 0
        assert len(stored_series(filled)) == 2
        found = json.loads(capsys.readouterr().out)
        assert {one["input"] for one in found} == {SOURCE, f"{SOURCE.removesuffix(SERIES)}{OTHER}"}
        assert all(one["volumes"] and one["error"] is None for one in found)


def test_identifiers_whose_components_begin_with_zeros(
    filled: Orthanc, models: Path, monkeypatch: pytest.MonkeyPatch,
    recwarn: pytest.WarningsRecorder,
) -> None:  # fmt: skip
    study, series = "1.2.03", "1.2.04"
    with pydicom.config.disable_value_validation():
        for file in slices(series, StudyInstanceUID=study):
            filled.store(file)
    source = f"dicomweb://orthanc/studies/{study}/series/{series}"
    command = f"segment --model tiny-segmentation --from {source} --to dicomweb --json"
    assert call(monkeypatch, models, command) == 0
    archive = find_archive("orthanc", configured_archives({VARIABLE: filled.settings()}))
    assert sorted(one.modality for one in archive.find(study)) == ["CT", "SEG"]
    assert not [one for one in recwarn if study in str(one.message)]


def test_series_of_a_study_that_cannot_be_segmented_do_not_stop_the_others(
    filled: Orthanc, models: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Nearly every study has a localizer, of slices in several directions."""
    localizer, other = f"{SERIES}.5", f"{SERIES}.9"
    turned = slices(localizer, ImageOrientationPatient=[0.0, 1, 0, 0, 0, -1])
    for file in (turned[0], *slices(localizer)[1:], *slices(other)):
        filled.store(file)
    study = f"dicomweb://orthanc/studies/{STUDY}"
    command = f"segment --model tiny-segmentation --from {study} --to dicomweb"
    assert call(monkeypatch, models, command) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert f"failed: {study}/series/{localizer}: DICOM: 2 volumes" in said
    assert said.count("failed:") == 1
    assert len(stored_series(filled)) == 2
    assert call(monkeypatch, models, f"{command} --json") == 1
    found = {one["input"]: one for one in json.loads(capsys.readouterr().out)}
    assert len(found) == 3
    assert "DICOM: 2 volumes" in found[f"{study}/series/{localizer}"]["error"]


def test_an_archive_that_does_not_answer_hides_no_series_that_failed_before(
    filled: Orthanc, models: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    settings = json.loads(filled.settings())
    settings["gone"] = {"url": "http://127.0.0.1:9/dicom-web"}
    monkeypatch.setenv(VARIABLE, json.dumps(settings))
    for file in slices(OTHER):
        filled.store(file)
    archive = find_archive("orthanc", configured_archives({VARIABLE: filled.settings()}))
    localizer = archive.find(STUDY)[0].series  # which comes first
    turned = slices(localizer, ImageOrientationPatient=[0.0, 1, 0, 0, 0, -1])[0]
    (instance,) = filled.call("/tools/lookup", f"{localizer}.1".encode())
    filled.call(instance["Path"], method="DELETE")
    filled.store(turned)
    command = f"segment --model tiny-segmentation --from dicomweb://orthanc/studies/{STUDY}"
    assert call(monkeypatch, models, command, "--to", "dicomweb://gone") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"series/{localizer}: DICOM: 2 volumes" in said and "cannot be reached" in said


def test_other_commands(
    filled: Orthanc, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "features.npz"
    command = f"features --model tiny-segmentation --from {SOURCE} --out {out}"
    assert call(monkeypatch, models, command) == 0
    local = caps_med.load_model("tiny-segmentation", models).features(zipped()).arrays()
    with np.load(out) as found:
        assert set(found) == set(local)
        np.testing.assert_array_equal(found["lengths/seg_caps"], local["lengths/seg_caps"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (f"--from {SOURCE.replace('orthanc', 'pacs')} --to dicomweb", "known are orthanc"),
        (f"--from {SOURCE} --to dicomweb://pacs", "known are orthanc"),
        (f"--from {SOURCE} --to http://evil.example", "--to: give dicomweb"),
        (f"--from {SOURCE}/../x --to dicomweb", "not a reference to an archive"),
        (f"--from {SOURCE}", "name a file with --out, or an archive with --to"),
        (f"--from {SOURCE} --to dicomweb --entropy", "--entropy: the map is written beside"),
        (f"--from {SOURCE} --to dicomweb --probabilities", "name a file for the probabilities"),
        (f"--from {SOURCE}.9 --to dicomweb", "no such series"),
        (f"x.png --from {SOURCE} --to dicomweb", "--from: names the input; leave out x.png"),
        (
            f"-i x --from {SOURCE} --to dicomweb",
            "--input: give the folder for the results with --out",
        ),
        ("--from dicomweb://orthanc/studies/1.2.3 --to dicomweb", "no images of that study"),
    ],
)
def test_what_is_refused(
    filled: Orthanc, models: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], arguments: str, said: str,
) -> None:  # fmt: skip
    assert call(monkeypatch, models, f"segment --model tiny-segmentation {arguments}") == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert stored_series(filled) == []


def test_credentials_are_not_shown(
    filled: Orthanc, models: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    settings = json.loads(filled.settings())
    settings["orthanc"]["user"] = "another"
    monkeypatch.setenv(VARIABLE, json.dumps(settings))
    command = f"segment --model tiny-segmentation --from {SOURCE} --to dicomweb"
    assert call(monkeypatch, models, command) == 2
    shown = capsys.readouterr()
    assert "does not accept the credentials" in shown.err
    assert filled.password not in shown.out + shown.err
