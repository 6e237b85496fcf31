"""Models take what the field's libraries hold in memory, and give the same kind back."""

from __future__ import annotations

from collections.abc import Callable
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

import caps_med
from caps_med import samples
from caps_med.images import read_image
from tests.images.codecs.test_dicom_seg import series
from tests.images.test_objects import OBLIQUE

VOXELS = np.random.default_rng(0).integers(0, 255, (24, 20, 3)).astype(np.float32)
#: In each library, on one oblique grid; for SimpleITK see below.
VOLUMES: dict[str, Callable[[], Any]] = {
    "nibabel": lambda: nib.Nifti1Image(VOXELS, OBLIQUE),
    "MetaTensor": lambda: MetaTensor(VOXELS[None], affine=torch.tensor(OBLIQUE)),
    "pair": lambda: (VOXELS, OBLIQUE),
    "pair of a map": lambda: (VOXELS.view(np.memmap), OBLIQUE),
    "tensors": lambda: (torch.tensor(VOXELS), torch.tensor(OBLIQUE)),
}


@pytest.mark.parametrize("name", list(VOLUMES))
def test_volumes_are_segmented_and_synthesized_alike(models: Path, name: str) -> None:
    source = VOLUMES[name]()
    model = caps_med.load_model("tiny-segmentation", models)
    answer, wanted = model.segment(source), model.segment(read_image((VOXELS, OBLIQUE)))
    np.testing.assert_array_equal(answer.array, wanted.array)
    labels = answer.like(source)
    again = read_image(labels, kind="labels")
    np.testing.assert_array_equal(again.array, wanted.array)
    np.testing.assert_allclose(again.affine, OBLIQUE)
    generator = caps_med.load_model("tiny-synthesis", models)
    image = generator.synthesize(labels, seed=3)
    made = image.like(labels)
    assert type(made) is type(labels)
    np.testing.assert_allclose(read_image(made).array, image.array)
    found, same = (
        model.features(source),
        model.features(wanted.with_array(VOXELS[None], kind="image")),
    )
    for layer, capsules in found.layers.items():
        np.testing.assert_array_equal(capsules, same.layers[layer])


def test_simpleitk_images_come_back_in_their_place(models: Path) -> None:
    source = SimpleITK.GetImageFromArray(VOXELS.transpose(2, 1, 0))
    source.SetDirection([0.8, -0.6, 0, 0.6, 0.8, 0, 0, 0, -1])
    source.SetOrigin((7.0, -8.0, 9.0))
    made = caps_med.load_model("tiny-segmentation", models).segment(source).like(source)
    assert made.TransformIndexToPhysicalPoint((3, 1, 2)) == pytest.approx(
        source.TransformIndexToPhysicalPoint((3, 1, 2))
    )


def test_data_sets_of_a_series_become_a_dicom_seg(models: Path, tmp_path: Path) -> None:
    sets = [pydicom.dcmread(file) for file in series(tmp_path).iterdir()]
    (seg,) = caps_med.load_model("tiny-segmentation", models).segment(sets).like(sets)
    assert (seg.Modality, seg.PatientID) == ("SEG", sets[0].PatientID)


def test_pictures_are_classified_alike() -> None:
    path = Path(samples.__file__).parent / "digit.png"
    model = caps_med.load_model("digits")
    picture = Image.open(path)
    array = np.asarray(picture)
    wanted = model.classify(path).probabilities
    for source in (picture, array, torch.tensor(array), path.read_bytes()):
        assert model.classify(source).probabilities == pytest.approx(wanted)
