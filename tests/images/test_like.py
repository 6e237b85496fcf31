"""The same kind of object out as in, where each library says that its voxels lie."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pydicom
import pytest
import SimpleITK
import torch
from monai.data import MetaTensor
from PIL import Image

from caps_med.errors import InvalidInput, UnsupportedFormat
from caps_med.images import MedicalImage, encode_image, read_image
from tests.images.codecs.test_dicom_seg import series
from tests.images.test_objects import OBLIQUE, VOXELS, simpleitk_volume


def labels_of(image: MedicalImage) -> MedicalImage:
    """What a model could answer: ids that tell all voxels apart from their neighbours."""
    ids = (np.arange(image.array[0].size) % 5).reshape(1, *image.spatial_shape)
    return image.with_array(ids.astype(np.uint8), kind="labels")


def several(image: MedicalImage) -> MedicalImage:
    """Two channels, as probabilities have."""
    array = np.stack([labels_of(image).array[0], labels_of(image).array[0] + 1])
    return image.with_array(array.astype(np.float32), kind="image")


def round_trip(source: Any) -> tuple[Any, Any]:  # noqa: ANN401
    """The answer like the source, and what is read of that again."""
    answer = labels_of(read_image(source))
    made = answer.like(source)
    again = read_image(made, kind="labels")
    np.testing.assert_array_equal(again.array, answer.array)
    np.testing.assert_allclose(again.affine, answer.affine, atol=1e-5)
    return made, several(read_image(source)).like(source)


@pytest.mark.parametrize("kind", [nib.Nifti1Image, nib.Nifti2Image])
def test_nibabel(kind: Any) -> None:  # noqa: ANN401
    source = kind(VOXELS, OBLIQUE)
    source.header["descrip"] = b"kept"
    made, channels = round_trip(source)
    assert type(made) is kind and made.header["descrip"] == b"kept"
    np.testing.assert_allclose(made.affine, source.affine)
    assert channels.shape == (*VOXELS.shape, 2)


def test_simpleitk() -> None:
    source = simpleitk_volume()
    made, channels = round_trip(source)
    for image in (made, channels):
        for index in ((0, 0, 0), (3, 1, 5)):
            here, there = (i.TransformIndexToPhysicalPoint(index) for i in (image, source))
            np.testing.assert_allclose(here, there)
    assert channels.GetNumberOfComponentsPerPixel() == 2
    flat = SimpleITK.GetImageFromArray(VOXELS[0])
    flat.SetSpacing((0.5, 0.7))
    made, _ = round_trip(flat)
    assert made.GetSize() == flat.GetSize() and made.GetSpacing() == flat.GetSpacing()


def test_meta_tensor() -> None:
    source = MetaTensor(VOXELS[None].astype(np.float32), affine=torch.tensor(OBLIQUE))
    source.meta["note"] = "kept"
    made, channels = round_trip(source)
    assert isinstance(made, MetaTensor) and made.meta["note"] == "kept"
    torch.testing.assert_close(made.affine, source.affine)
    assert made.shape == source.shape and channels.shape == (2, *VOXELS.shape)


@pytest.mark.parametrize("convert", [np.asarray, torch.tensor])
def test_array_with_affine(convert: Any) -> None:  # noqa: ANN401
    source = (convert(VOXELS), convert(OBLIQUE))
    (array, affine), (channels, _) = round_trip(source)
    assert type(array) is type(source[0]) and affine is source[1]
    assert array.shape == VOXELS.shape and channels.shape == (2, *VOXELS.shape)


def test_pictures() -> None:
    array = VOXELS[0].astype(np.uint8)
    made, channels = round_trip(array)
    assert made.shape == array.shape and channels.shape == (*array.shape, 2)
    tensor, _ = round_trip(torch.tensor(array))
    assert tensor.shape == array.shape
    volume, several_of_it = round_trip(VOXELS)
    assert volume.shape == VOXELS.shape and several_of_it.shape == (2, *VOXELS.shape)
    coloured, _ = round_trip(torch.tensor(array)[None].repeat(3, 1, 1))
    assert coloured.shape == (1, *array.shape)
    picture = labels_of(read_image(array)).like(Image.fromarray(array))
    np.testing.assert_array_equal(np.asarray(picture), made)


def test_bytes_are_the_content_of_a_file() -> None:
    content = encode_image(MedicalImage(VOXELS[None], OBLIQUE, "nrrd"), "nrrd")
    made, _ = round_trip(content)
    assert isinstance(made, bytes) and made.startswith(b"NRRD")


def test_dicom_data_sets_become_a_dicom_seg(tmp_path: Path) -> None:
    files = sorted(series(tmp_path).iterdir())
    wanted = read_image(tmp_path)
    sets = [pydicom.dcmread(file) for file in files]
    for source in (sets, [file.read_bytes() for file in files]):
        image = read_image(source)
        np.testing.assert_array_equal(image.array, wanted.array)
        np.testing.assert_array_equal(image.affine, wanted.affine)
    assert "PatientName" in sets[0] and len(sets[0].PixelData) > 0  # as they were
    labels = labels_of(read_image(sets))
    (seg,) = labels.like(sets)
    assert seg.Modality == "SEG" and seg.PatientID == sets[0].PatientID
    np.testing.assert_array_equal(read_image(seg, kind="labels").array, labels.array)
    with pytest.raises(UnsupportedFormat, match="only label maps of DICOM slices are written"):
        several(wanted).like(sets)
    one = read_image(sets[0])
    assert one.spatial_shape == (7, 5, 1)
    with pytest.raises(InvalidInput, match="give one that was read by dcmread"):
        read_image([pydicom.Dataset()])


def test_files_stay_images_that_can_be_saved(tmp_path: Path) -> None:
    path = tmp_path / "a.nii.gz"
    MedicalImage(VOXELS[None], OBLIQUE).save(path)
    image = read_image(path)
    with path.open("rb") as file:
        np.testing.assert_array_equal(read_image(file).array, image.array)
        assert image.like(file) is image
    np.testing.assert_array_equal(read_image(io.BytesIO(path.read_bytes())).array, image.array)
    for source in (path, str(path), [path], image):
        assert image.like(source) is image
    with pytest.raises(InvalidInput, match="open it with mode 'rb'"):
        read_image(io.StringIO("x"))


@pytest.mark.parametrize(
    "source",
    [
        nib.Nifti1Image(VOXELS[1:], OBLIQUE), MetaTensor(torch.zeros(1, 2, 3, 4)),
        (VOXELS[1:], OBLIQUE), SimpleITK.GetImageFromArray(VOXELS),
    ],
)  # fmt: skip
def test_another_grid_is_refused(source: object) -> None:
    with pytest.raises(InvalidInput, match="give the image that the answer belongs to"):
        MedicalImage(VOXELS[None], OBLIQUE).like(source)


def test_other_objects_are_refused() -> None:
    image = replace(MedicalImage(VOXELS[None], OBLIQUE))
    with pytest.raises(InvalidInput, match="a volume is not a picture"):
        image.like(VOXELS[0])
    with pytest.raises(InvalidInput, match="there is no image like a dict"):
        image.like({})
