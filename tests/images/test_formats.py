"""Which formats an answer is offered in, and which can hold it."""

from __future__ import annotations

import numpy as np
import pytest

from caps_med.errors import UnsupportedFormat
from caps_med.images import Kind, MedicalImage, check_writable, encode_image, read_image
from caps_med.images.image import STACK_AFFINE
from tests.images.dicom_files import IDENTITY, slice_file

PICTURE, VOLUME = np.zeros((1, 2, 2)), np.zeros((1, 2, 2, 2))


@pytest.mark.parametrize(
    ("image", "kind", "offered"),
    [
        (MedicalImage(PICTURE, format="jpeg"), "labels", ("png", "tiff", "nifti", "npy")),
        (MedicalImage(PICTURE, format="jpeg"), "image", ("jpeg", "png", "tiff", "nifti", "npy")),
        (MedicalImage(PICTURE, format="npy"), "labels", ("npy", "png", "tiff", "nifti")),
        (MedicalImage(VOLUME, format="nrrd"), "labels", ("nrrd", "nifti", "metaimage", "npy")),
        (MedicalImage(VOLUME, format="dicom"), "image", ("nifti", "nrrd", "metaimage", "npy")),
        (
            read_image(slice_file(**IDENTITY)),
            "labels",
            ("dicom", "nifti", "nrrd", "metaimage", "npy"),
        ),
        (read_image(slice_file(**IDENTITY)), "image", ("nifti", "nrrd", "metaimage", "npy")),
        (read_image(slice_file()), "labels", ("nifti", "nrrd", "metaimage", "npy")),
    ],
)
def test_the_default_comes_first(image: MedicalImage, kind: Kind, offered: tuple[str, ...]) -> None:
    assert image.formats_of(kind) == offered
    assert image.format_of(kind) == offered[0]


def test_a_format_is_checked_with_the_geometry_of_the_source() -> None:
    check_writable(MedicalImage(VOLUME, STACK_AFFINE), "labels", 1, "tiff")
    with pytest.raises(UnsupportedFormat, match="its geometry would be lost"):
        check_writable(MedicalImage(VOLUME), "labels", 1, "tiff")
    check_writable(read_image(slice_file(**IDENTITY)), "labels", 1, "dicom")
    with pytest.raises(UnsupportedFormat, match="only label maps of DICOM slices are written"):
        check_writable(read_image(slice_file()), "labels", 1, "dicom")


def test_floats_that_rounding_put_beyond_0_and_1_are_written() -> None:
    rounded = MedicalImage(np.array([[[-1e-6, 0.5, 1 + 1e-6]]], np.float32))
    assert read_image(encode_image(rounded, "png")).array.tolist() == [[[0, 128, 255]]]
