"""Labels lie where the image's voxels lie, whatever the orientation of the file."""

from __future__ import annotations

from pathlib import Path

import nibabel
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import caps_med
from caps_med import samples
from caps_med.images import MedicalImage, SliceStack, read_image

#: Where the bright marker is planted, mm.
MARKER = np.array([3.0, -2.0, 2.0])


def affines() -> dict[str, NDArray[np.float64]]:
    angle = 0.2
    turn = np.array(
        [[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]]
    )
    base = {
        "RAS": np.eye(3),
        "LPS": np.diag([-1.0, -1.0, 1.0]),
        "flipped": np.diag([1.0, -1.0, -1.0]),
        "permuted": np.array([[0, 0, 1.0], [1, 0, 0], [0, -1, 0]]),
        "oblique": turn,
        "oblique and anisotropic": turn @ np.diag([1.0, 1.0, 2.5]),
    }
    made = {}
    for name, linear in base.items():
        affine = np.eye(4)
        affine[:3, :3] = linear
        affine[:3, 3] = -linear @ np.array([12.0, 14.0, 10.0])
        made[name] = affine
    return made


def phantom(affine: NDArray[np.float64], path: Path) -> None:
    """A block of white matter in the air, with a pool of fluid of 5 mm at `MARKER`."""
    grid = np.stack(np.meshgrid(*map(np.arange, (25, 29, 21)), indexing="ij"), -1)
    mm = grid @ affine[:3, :3].T + affine[:3, 3]
    middle = np.array([12, 14, 10]) @ affine[:3, :3].T + affine[:3, 3]
    array = np.where(np.abs(mm - middle).max(-1) < 9.5, 900, 0)
    array[np.abs(mm - MARKER).max(-1) <= 2.5] = 300
    image = nibabel.Nifti1Image(array.astype(np.int16), affine)
    image.set_qform(affine, 1)
    image.set_sform(affine, 4)
    nibabel.save(image, path)


@pytest.mark.parametrize("name", affines())
def test_a_marker_is_found_at_its_place_in_mm(tmp_path: Path, name: str) -> None:
    affine = affines()[name]
    source, target = tmp_path / "in.nii.gz", tmp_path / "out.nii.gz"
    phantom(affine, source)
    caps_med.load_model("brain-t1-tissue").segment(source).save(target)

    written = nibabel.load(target)
    labels = np.asarray(written.dataobj)
    mm = np.argwhere(labels > 0) @ affine[:3, :3].T + affine[:3, 3]
    fluid = labels[labels > 0] == 1
    near = np.abs(mm - MARKER).max(-1) < 5
    found = mm[fluid & near]
    assert len(found) > 10
    assert np.abs(found.mean(0) - MARKER).max() < 1.5

    np.testing.assert_array_equal(written.affine, nibabel.load(source).affine)
    assert int(written.header["sform_code"]) == 4
    assert int(written.header["qform_code"]) == 1
    assert written.shape == (25, 29, 21)


@pytest.mark.parametrize("name", affines())
def test_each_slice_is_what_the_network_says_of_it(models: Path, name: str) -> None:
    affine = affines()[name]
    rng = np.random.default_rng(1)
    image = MedicalImage(
        rng.uniform(0, 100, (1, 25, 29, 21)).astype(np.float32), affine, format="nifti"
    )
    model = caps_med.load_model("tiny-segmentation", models)
    result = model.segment(image)
    stack = SliceStack.from_image(image)
    scaled = model.bundle.card.normalization.apply(stack.array)
    lengths = SliceStack.from_image(result.probabilities).array
    for z in (0, len(scaled) // 2):
        rows, columns = scaled.shape[2:]
        continued = np.pad(scaled[z], ((0, 0), (0, -rows % 8), (0, -columns % 8)), mode="edge")
        with torch.inference_mode():
            wanted = model.network(torch.from_numpy(continued)[None])[0, :, :rows, :columns]
        np.testing.assert_allclose(lengths[z], wanted.numpy(), atol=1e-5)


def test_another_spacing_is_resampled_and_brought_back() -> None:
    """A half-millimetre brain slice gets the labels of its one-millimetre original."""
    image = read_image(samples.T1)
    fine_affine = image.affine @ np.diag([0.5, 0.5, 1, 1])
    fine = MedicalImage(image.array.repeat(2, 1).repeat(2, 2), fine_affine, format="nifti")
    model = caps_med.load_model("brain-t1-tissue")
    coarse, result = model.segment(image), model.segment(fine)
    assert result.array.shape == fine.array.shape
    np.testing.assert_array_equal(result.affine, fine_affine)
    brain = fine.array > 0
    assert (result.array == coarse.array.repeat(2, 1).repeat(2, 2))[brain].mean() > 0.9
    for name, volume in coarse.volumes.items():
        assert result.volumes[name] == pytest.approx(volume, rel=0.15)
