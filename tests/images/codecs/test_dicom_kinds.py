"""Objects whose pixels are no image are refused, by what they are and not by how they look."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from pydicom._uid_dict import UID_dictionary
from pydicom.uid import (
    MRImageStorage,
    ParametricMapStorage,
    RTDoseStorage,
    RTStructureSetStorage,
    SegmentationStorage,
    VLWholeSlideMicroscopyImageStorage,
)

from caps_med.errors import InvalidInput, UnsupportedFormat
from caps_med.images import read_image
from caps_med.images.codecs import dicom_kinds
from tests.images.dicom_files import dataset, encoded, enhanced, slice_file

#: Label Map Segmentation, which older dictionaries do not name.
LABEL_MAP = "1.2.840.10008.5.1.4.1.1.66.7"
GREY = np.arange(35, dtype=np.uint16).reshape(5, 7)
FRAMES = np.stack([GREY, GREY + 100])


def dose() -> bytes:
    """Frames whose heights and unit are in elements of their own."""
    return encoded(
        dataset(FRAMES, SOPClassUID=RTDoseStorage, Modality="RTDOSE", DoseGridScaling="0.01",
                GridFrameOffsetVector=[0.0, 3.0])
    )  # fmt: skip


def mosaic(**changed: Any) -> bytes:  # noqa: ANN401
    return slice_file(SOPClassUID=MRImageStorage, **changed)


def private_mosaic() -> bytes:
    """One whose Image Type was removed."""
    made = dataset(GREY, SOPClassUID=MRImageStorage)
    made.add_new(0x00190010, "LO", "SIEMENS MR HEADER")
    made.add_new(0x0019100A, "US", 36)
    return encoded(made)


def tiles(**changed: Any) -> bytes:  # noqa: ANN401
    whole = {"TotalPixelMatrixRows": 10, "TotalPixelMatrixColumns": 7}
    kind = VLWholeSlideMicroscopyImageStorage
    return encoded(dataset(FRAMES, **{"SOPClassUID": kind, **whole, **changed}))


@pytest.mark.parametrize(
    ("data", "way_out"),
    [
        (encoded(dataset(FRAMES.astype("u1"), SOPClassUID=LABEL_MAP)), "labels"),
        (encoded(dataset(FRAMES.astype("u1"), SOPClassUID=SegmentationStorage,
                         SegmentationType="FRACTIONAL")), 'kind="labels"'),
        (encoded(dataset(np.zeros((2, 8), "u1"), SOPClassUID=SegmentationStorage, Rows=2,
                         Columns=64, BitsAllocated=1, BitsStored=1, HighBit=0)), "labels"),
        (dose(), "plastimatch"),
        (encoded(dataset(GREY, SOPClassUID=RTStructureSetStorage, PixelData=None)), "rtstruct2nii"),
        (encoded(dataset(GREY, SOPClassUID=ParametricMapStorage)), "Real World Value Mapping"),
        (mosaic(ImageType=["ORIGINAL", "PRIMARY", "M", "ND", "MOSAIC"]), "dcm2niix"),
        (private_mosaic(), "dcm2niix"),
        (tiles(), "OpenSlide"),
        (tiles(SOPClassUID=MRImageStorage, DimensionOrganizationType="TILED_FULL"), "OpenSlide"),
        (encoded(dataset(GREY, SOPClassUID="1.2.840.10008.5.1.4.1.1.88.11")), "Basic Text SR"),
        (encoded(dataset(GREY, SOPClassUID="1.2.840.10008.5.1.4.1.1.999")), "this object is no"),
    ],
)  # fmt: skip
def test_what_is_no_image_is_refused_with_the_way_out(data: bytes, way_out: str) -> None:
    with pytest.raises(UnsupportedFormat, match=way_out):
        read_image(data)


def test_without_an_sop_class_it_is_an_image() -> None:
    """Old files name none."""
    data = slice_file()
    at = data.index(b"\x08\0\x16\0UI")
    size = int.from_bytes(data[at + 6 : at + 8], "little")
    assert read_image(data[:at] + data[at + 8 + size :]).array.max() == 46


def test_of_a_manufacturers_own_sop_class_it_is_an_image() -> None:
    assert read_image(slice_file(SOPClassUID="1.3.46.670589.11.0.0.12.1")).array.max() == 46


def test_the_overview_of_a_slide_is_a_picture() -> None:
    whole = {"TotalPixelMatrixRows": 5, "TotalPixelMatrixColumns": 7}
    overview = dataset(GREY, SOPClassUID=VLWholeSlideMicroscopyImageStorage, **whole)
    assert read_image(encoded(overview)).array.shape == (1, 5, 7)


def test_every_sop_class_with_pictures_is_decided_on() -> None:
    """A new class of images must be listed before it is read, or refused with a way out."""
    images = {
        uid.removeprefix(dicom_kinds._STORAGE)
        for uid, (name, kind, *_) in UID_dictionary.items()
        if kind == "SOP Class" and uid.startswith(dicom_kinds._STORAGE) and "Image Storage" in name
    }
    assert images - dicom_kinds._IMAGES == set()


def test_beside_a_series_they_are_left_out(tmp_path: Path) -> None:
    for number, z in enumerate((0, 2)):
        (tmp_path / f"{number}.dcm").write_bytes(slice_file(z))
    alone = read_image(tmp_path).array
    (tmp_path / "dose.dcm").write_bytes(dose())
    np.testing.assert_array_equal(read_image(tmp_path).array, alone)


def test_alone_in_a_folder_they_say_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "dose.dcm").write_bytes(dose())
    with pytest.raises(UnsupportedFormat, match=r"dose.dcm: DICOM: a dose"):
        read_image(tmp_path)


class TestRescaleInFunctionalGroups:
    """Enhanced objects say it there; at the top level it counts only where they do not."""

    def enhanced(self, shared: float | None, own: tuple[float, ...] = (), **changed: Any) -> bytes:  # noqa: ANN401
        made = enhanced(FRAMES, (0.0, 0.0), (0.0, 2.0), **changed)
        groups = [(made.SharedFunctionalGroupsSequence[0], shared)] if shared is not None else []
        groups += list(zip(made.PerFrameFunctionalGroupsSequence, own, strict=False))
        for group, intercept in groups:
            transformation = pydicom.Dataset()
            transformation.RescaleSlope, transformation.RescaleIntercept = 2, intercept
            group.PixelValueTransformationSequence = [transformation]
        return encoded(made)

    def test_of_all_frames(self) -> None:
        read = read_image(self.enhanced(shared=-1024))
        np.testing.assert_array_equal(read.array[0].T, 2 * FRAMES.astype(int) - 1024)
        assert read.array.dtype == np.int16

    def test_a_frames_own_wins(self) -> None:
        read = read_image(self.enhanced(shared=-1024, own=(-1000, 10.5)))
        np.testing.assert_allclose(read.array[0, :, :, 0].T, 2.0 * FRAMES[0] - 1000)
        np.testing.assert_allclose(read.array[0, :, :, 1].T, 2.0 * FRAMES[1] + 10.5)

    def test_a_frame_without_its_own_has_the_shared_one(self) -> None:
        read = read_image(self.enhanced(shared=-1024, own=(-1000,)))
        assert read.array[0, 0, 0].tolist() == [-1000, 200 - 1024]

    def test_groups_win_over_the_top_level(self) -> None:
        top: dict[str, Any] = {"RescaleIntercept": -5, "RescaleSlope": 7}
        assert read_image(self.enhanced(shared=-1024, **top)).array.min() == -1024
        read = read_image(self.enhanced(shared=None, **top))  # as SimpleITK and highdicom have it
        np.testing.assert_array_equal(read.array[0].T, 7 * FRAMES.astype(int) - 5)

    @pytest.mark.parametrize("changed", [{}, {"PhotometricInterpretation": "MONOCHROME1"}])
    def test_it_takes_little_more_memory_than_the_file(self, changed: dict[str, str]) -> None:
        """All frames at once in 64 bits would take ten times as much."""
        frames = np.full((64, 256, 256), 7, np.uint16)
        top = {"RescaleIntercept": -1024, "RescaleSlope": 1}
        content = encoded(enhanced(frames, (0.0, 0.0), range(64), **top, **changed))
        tracemalloc.start()
        try:
            read_image(content)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 6 * frames.nbytes

    def test_a_slope_of_nought(self) -> None:
        with pytest.raises(InvalidInput, match="the slope not 0"):
            read_image(self.enhanced(shared=float("nan")))
