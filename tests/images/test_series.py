"""Which DICOM files form a series, told from their beginnings."""

from __future__ import annotations

import io
import re
import tracemalloc
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from pydicom.uid import (
    UID,
    CTImageStorage,
    DeflatedExplicitVRLittleEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    RTDoseStorage,
)

from caps_med.errors import CapsMedError, InputTooLarge, InvalidInput
from caps_med.images import read_image, series
from caps_med.images.codecs.dicom_headers import header_in, patient_in
from caps_med.images.series import series_of_zip
from tests.archives.series import slices
from tests.images.dicom_files import SERIES, dataset, directory_file, encoded, placed
from tests.zips import zip_of

PIXELS = 24 * 28 * 2


def found(*members: tuple[str, bytes]) -> tuple[list[tuple[str, list[str]]], dict[str, str]]:
    """Label and files of each image of a zip, and what is left out."""
    images, skipped = series_of_zip(zip_of(*members))
    named = [(one.label, [str(file) for file in one.files]) for one in images]
    return named, {str(file): reason for file, reason in skipped}


def test_the_beginnings_of_files_tell_their_series() -> None:
    first, second = (slices(f"{SERIES}.{n}", SeriesNumber=n) for n in (4, 5))
    files = [(f"a/{n}", one[:-PIXELS]) for n, one in enumerate(first)]
    files += [(f"a/{n}.dcm", one[:-PIXELS]) for n, one in enumerate(second)]
    files += [(f"b/{n}", one[:-PIXELS]) for n, one in enumerate(first)]  # in another folder
    images, left_out = found(*files, ("a/README", b"text"), ("a/", b""))
    assert images == [
        ("series4", ["a/0", "a/1", "a/2"]),
        ("series5", ["a/0.dcm", "a/1.dcm", "a/2.dcm"]),
        ("series4", ["b/0", "b/1", "b/2"]),
    ]
    assert left_out == {}


def test_series_with_one_number_have_labels_that_do_not_depend_on_others() -> None:
    files = {
        uid: [(f"{uid}-{n}", one) for n, one in enumerate(slices(f"{SERIES}.{uid}"))]
        for uid in ("1", "2", "3")
    }
    both = dict(found(*files["2"], *files["3"])[0])
    all_three = dict(found(*files["1"], *files["2"], *files["3"])[0])
    assert len(both) == 2 and len(all_three) == 3
    assert both.items() <= all_three.items()
    assert all(re.fullmatch(r"series-[0-9a-f]{8}", label) for label in both)


def test_of_a_compressed_file_the_beginning_alone_is_inflated() -> None:
    """A small one may be gigabytes."""
    made = dataset(np.zeros((4, 5), np.int16), **placed(0.0), PatientID="17")
    made.PixelData = bytes(2**27)
    data = encoded(made, DeflatedExplicitVRLittleEndian)
    del made
    tracemalloc.start()
    try:
        header, patient = header_in(io.BytesIO(data), whole=True), patient_in(io.BytesIO(data))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert header is not None and header["Rows"] == 4 and patient == "17"
    assert peak < 2**27 + 2**24


def test_what_has_no_place_in_a_series_is_an_image_by_itself_or_none() -> None:
    """A beginning that ends too early does not say that there is no picture."""
    unplaced: dict[str, Any] = dict.fromkeys(placed(0.0))
    radiographs = [slices(**unplaced)[0], slices(ImagePositionPatient="")[0]]
    (cut, *_) = slices()
    (segments, *_) = slices(Modality="SEG")
    (report, *_) = slices(Rows=None, Columns=None)
    (dose, *_) = slices(Modality="RTDOSE", SOPClassUID=RTDoseStorage)
    files = [("x0.dcm", radiographs[0]), ("x1.dcm", radiographs[1]), ("cut", cut[:400])]
    images, left_out = found(*files, ("seg.dcm", segments), ("report", report), ("dose", dose))
    assert images == [("x0", ["x0.dcm"]), ("x1", ["x1.dcm"]), ("cut", ["cut"])]
    assert left_out.pop("dose").startswith("a dose (RT Dose) is no image")
    assert left_out == {"seg.dcm": "a DICOM segmentation", "report": "DICOM without a picture"}


@pytest.mark.parametrize("syntax", [ExplicitVRLittleEndian, ImplicitVRLittleEndian])
@pytest.mark.parametrize("first", ["file header", "data set"])
def test_files_without_a_preamble_are_a_series(first: str, syntax: UID) -> None:
    """As `read_image` takes them; each would be a volume of one slice."""
    files = []
    for number in range(3):
        made = dataset(np.zeros((4, 4), "i2"), Modality="CT", **placed(2.5 * number))
        content = encoded(made, syntax)
        start = 128 + 4 if first == "file header" else content.index(b"\x08\x00\x16\x00")
        files.append((f"{number}.dcm", content[start:]))
    images, left_out = found(*files)
    assert [names for _, names in images] == [["0.dcm", "1.dcm", "2.dcm"]]
    assert left_out == {}


def test_old_files_that_name_no_class_are_a_series() -> None:
    """As `read_image` takes them."""
    files = [(str(n), one) for n, one in enumerate(slices(SOPClassUID=None))]
    assert [names for _, names in found(*files)[0]] == [["0", "1", "2"]]


@pytest.mark.parametrize("length", [None, 600])
def test_a_directory_of_files_is_no_image(length: int | None) -> None:
    """Nor is its beginning, which ends within the list of files."""
    directory = directory_file(entries=20)[:length]
    images, left_out = found(("DICOMDIR", directory), ("a", slices()[0]))
    assert [label for label, _ in images] == ["series"]
    assert left_out == {"DICOMDIR": "DICOM without a picture"}


def test_a_zip_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match="cut or broken"):
        series_of_zip(b"no zip")
    files = [(str(n), one) for n, one in enumerate(slices())]
    monkeypatch.setattr(series, "MOST_BYTES", 200)  # of each
    assert [len(one) for _, one in found(*files)[0]] == [1, 1, 1]
    monkeypatch.setattr(series, "_MOST_FILES", 2)
    with pytest.raises(InputTooLarge, match="more than 2 files: split it"):
        found(*files)


def test_nothing_of_a_file_is_warned_of_or_logged(
    caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    """pydicom quotes values, in its warnings and in its log; in these a patient may be named."""
    (file, *_) = slices(SpecificCharacterSet="ISO_IR 100", SeriesNumber=1234567)
    for correct, wrong in (
        (b"ISO_IR 100", b"DOE JOHN  "), (b"1234567", b"Doe^Jon"),
        (SERIES.encode(), b"Doe^John".ljust(len(SERIES))),
        (CTImageStorage.encode(), b"Doe^John".ljust(len(CTImageStorage))),
    ):  # fmt: skip
        assert correct in file
        broken = file.replace(correct, wrong)
        assert found(("x.dcm", broken))[0]
        with suppress(CapsMedError):
            read_image(broken)
    assert (caplog.messages, [*recwarn]) == ([], [])
