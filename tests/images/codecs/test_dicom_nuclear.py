"""Tomography of nuclear medicine, whose slices lie where its detector and their distance say."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import highdicom
import numpy as np
import pytest
from pydicom.dataset import Dataset
from pydicom.uid import NuclearMedicineImageStorage

from caps_med.errors import InvalidInput
from caps_med.images import dicom_segmentation, read_image
from tests.images.dicom_files import IDENTITY, dataset, encoded

STACKED = "DICOM: no positions; frames are taken for axial slices of 1 mm"


def tomography(frames: int = 4, **changed: Any) -> bytes:  # noqa: ANN401 - what elements hold
    """Frames whose values are their numbers, from 1."""
    detector = Dataset()
    detector.ImagePositionPatient = [10.0, 20.0, 30.0]
    detector.ImageOrientationPatient = [1.0, 0, 0, 0, 1, 0]
    told = {
        **IDENTITY, "SOPClassUID": NuclearMedicineImageStorage, "Modality": "NM",
        "ImageType": ["ORIGINAL", "PRIMARY", "RECON TOMO", "EMISSION"], "SliceThickness": 5.0,
        "SpacingBetweenSlices": 3.0, "PixelSpacing": [2.0, 4.0],
        "DetectorInformationSequence": [detector], "SliceVector": [*range(1, frames + 1)],
    }  # fmt: skip
    pixels = np.arange(1, frames + 1, dtype=np.uint16)[:, None, None] + np.zeros((5, 7), np.uint16)
    return encoded(dataset(pixels, **{**told, **changed}))


@pytest.mark.parametrize("distance", [3.0, -3.0, None])
def test_it_lies_where_other_programs_place_it(distance: float | None, tmp_path: Path) -> None:
    """A negative distance: the slices follow each other against the normal of the first."""
    sitk = pytest.importorskip("SimpleITK")
    file = tmp_path / "nm.dcm"
    file.write_bytes(tomography(SpacingBetweenSlices=distance))
    image = read_image(file)
    assert image.warnings == () and image.spacing == (4.0, 2.0, abs(distance or 5.0))
    other = sitk.ReadImage(str(file))
    if distance is None:  # of which it takes 1 mm
        other.SetSpacing((4.0, 2.0, 5.0))
    for k in range(4):
        place = np.array(other.TransformIndexToPhysicalPoint((6, 3, k))) * (-1, -1, 1)
        index = np.rint(np.linalg.inv(image.affine) @ [*place, 1]).astype(int)[:3]
        np.testing.assert_allclose(image.affine[:3, :3] @ index + image.affine[:3, 3], place)
        assert image.array[(0, *index)] == other.GetPixel(6, 3, k)


def test_slices_have_the_places_of_their_numbers() -> None:
    image = read_image(tomography(SliceVector=[2, 1, 4, 3]))
    assert image.array[0, 0, 0].tolist() == [2, 1, 4, 3]
    gated = tomography(
        4, ImageType=["ORIGINAL", "PRIMARY", "RECON GATED TOMO", "EMISSION"], SliceVector=[1, 2] * 2
    )
    assert read_image(gated, index=1).array[0, 0, 0].tolist() == [3, 4]


@pytest.mark.parametrize(
    "changed",
    [
        {"ImageType": ["ORIGINAL", "PRIMARY", "TOMO", "EMISSION"]},
        {"ImageType": None},
        {"DetectorInformationSequence": [Dataset()]},
        {"SliceVector": [1, 2, 3]},
        {"SpacingBetweenSlices": None, "SliceThickness": None},
    ],
)
def test_projections_and_what_is_not_placed_are_told(changed: dict[str, Any]) -> None:
    assert STACKED in read_image(tomography(**changed)).warnings


def test_a_distance_that_is_none_is_refused() -> None:
    content = tomography().replace(b"3.0 ", b"nan ")
    with pytest.raises(InvalidInput, match="NaN or infinity"):
        read_image(content)


def test_its_label_map_is_a_dicom_seg() -> None:
    image = read_image(tomography(SpacingBetweenSlices=-3.0))
    labels = image.with_array((image.array == 3).astype(np.uint8), kind="labels")
    found = highdicom.seg.segread(io.BytesIO(dicom_segmentation(labels)))
    (frame,) = found.PerFrameFunctionalGroupsSequence
    assert frame.PlanePositionSequence[0].ImagePositionPatient == [10, 20, 24]
    (reference,) = frame.DerivationImageSequence[0].SourceImageSequence
    assert reference.ReferencedSOPClassUID == NuclearMedicineImageStorage
    assert reference.ReferencedFrameNumber == 3
