"""Files that nobody here wrote: those that pydicom brings along for its own tests (MIT licence).

They are judged as `python -m benchmarks.dicom` judges a folder: against pydicom and SimpleITK.
"""

from __future__ import annotations

from pathlib import Path

import pydicom
import pytest

from benchmarks.dicom.judging import judge_file
from caps_med.images import MedicalImage, read_image

FOLDER = Path(pydicom.__file__).parent / "data" / "test_files"
#: Read, with the values and places that both references or one of them have.
RIGHT = (
    "CT_small.dcm", "MR_small.dcm", "MR_small_RLE.dcm", "MR_small_bigendian.dcm",
    "MR_small_expb.dcm", "MR_small_implicit.dcm", "MR_small_jp2klossless.dcm",
    "MR_small_jpeg_ls_lossless.dcm", "MR_small_padded.dcm", "image_dfl.dcm", "JPEG-lossy.dcm",
    "JPGExtended.dcm", "JPEG2000.dcm", "693_J2KI.dcm", "ExplVR_BigEnd.dcm", "SC_rgb_jpeg_gdcm.dcm",
    "SC_rgb_jls_lossy_line.dcm", "SC_rgb_rle.dcm", "SC_rgb_small_odd.dcm",
    "SC_rgb_small_odd_big_endian.dcm", "SC_rgb_jpeg_dcmtk.dcm", "JPEGLSNearLossless_08.dcm",
    "JPEGLSNearLossless_16.dcm", "J2K_pixelrep_mismatch.dcm", "examples_palette.dcm",
)  # fmt: skip
#: No images, with the way out.
REFUSED = {
    "rtdose.dcm": "plastimatch", "rtdose_rle.dcm": "plastimatch",
    "liver_1frame.dcm": 'kind="labels"',
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_values_and_places_are_those_of_the_references(name: str) -> None:
    verdict = judge_file(FOLDER / name)
    assert verdict is not None
    assert (verdict.result, verdict.reason) == ("right", "") and verdict.references


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_image_is_refused(name: str) -> None:
    verdict = judge_file(FOLDER / name)
    assert verdict is not None
    assert verdict.result == "refused" and REFUSED[name] in verdict.reason


def test_small_values_are_compared_as_closely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one stored number, not of a unit: with a slope of a millionth all would be alike."""
    header = pydicom.dcmread(FOLDER / "MR_small.dcm")
    header.RescaleSlope, header.RescaleIntercept = "0.000001", "0"
    header.save_as(path := tmp_path / "small.dcm")
    verdict = judge_file(path)
    assert verdict is not None and verdict.result == "right"

    def doubled(source: Path) -> MedicalImage:
        image = read_image(source)
        return image.with_array(2 * image.array)

    monkeypatch.setattr("benchmarks.dicom.judging.read_image", doubled)
    verdict = judge_file(path)
    assert verdict is not None and (verdict.result, verdict.reason) == ("wrong", "values differ")
