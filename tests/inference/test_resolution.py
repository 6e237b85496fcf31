"""Volumes of thin structures depend on the resolution, and the answer says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import caps_med
from benchmarks.resolution import averaged, soft_volumes
from caps_med.images import MedicalImage
from caps_med.inference import Model
from tests.conftest import tiny_card, write_tiny

WARNING = "thin structures come out too large"


def image(*spacing: float) -> MedicalImage:
    array = np.random.default_rng(0).uniform(0, 1, (1, 16, 18, 4)).astype(np.float32)
    return MedicalImage(array, np.diag([*spacing, 1.0]), format="nifti")


@pytest.fixture
def model(tmp_path: Path) -> Model:
    card = tiny_card("segmentation").model_copy(update={"slice_mm": 2.0})
    write_tiny(tmp_path, "thick", card)
    return caps_med.load_model("thick", tmp_path)


@pytest.mark.parametrize(
    ("spacing", "said"),
    [
        ((1, 1, 2), ""),
        ((0.5, 0.5, 1), ""),
        ((1.15, 1.15, 2.3), ""),
        ((1, 1, 4), "the voxels are 1 x 1 x 4 mm (rows, columns, slices), those of the training"),
        ((2, 1, 2), "the voxels are 1 x 2 x 2 mm (rows, columns, slices), those of the training"),
    ],
)
def test_coarser_voxels_than_in_the_training_are_told(
    model: Model, spacing: tuple[float, float, float], said: str
) -> None:
    warnings = model.segment(image(*spacing)).warnings
    assert bool(said) == bool(warnings)
    assert all(said in warning and WARNING in warning for warning in warnings)


def test_without_the_trainings_slice_distance_the_plane_alone_is_compared(models: Path) -> None:
    model = caps_med.load_model("tiny-segmentation", models)
    assert model.segment(image(1, 1, 9)).warnings == ()
    [warning] = model.segment(image(2, 2, 9)).warnings
    assert "2 x 2 mm (rows, columns), those of the training were 1 x 1 mm:" in warning
    pixels = np.random.default_rng(0).integers(0, 255, (1, 16, 16), dtype=np.uint8)
    picture = MedicalImage(pixels, format="png")
    assert model.segment(picture).warnings == ()


def test_the_rim_of_a_brain_looks_like_fluid_in_large_voxels() -> None:
    """A ball of white matter without any fluid, in the air: the cause that the warning names."""
    grid = np.stack(np.meshgrid(*[np.arange(48)] * 3, indexing="ij"), -1)
    ball = (np.linalg.norm(grid - 23.3, axis=-1) < 18) * 900.0
    volume = MedicalImage(ball[None].astype(np.float32), np.diag([-1.0, 1, 1, 1]), format="nifti")
    model = caps_med.load_model("brain-t1-tissue")
    fine, coarse = (model.segment(averaged(volume, block)) for block in ((1, 1, 1), (2, 2, 4)))
    assert not any(WARNING in warning for warning in fine.warnings)
    assert any(WARNING in warning for warning in coarse.warnings)
    fluid = "cerebrospinal fluid"
    assert coarse.volumes[fluid] > 2 * fine.volumes[fluid]
    assert soft_volumes(coarse)[0] > 2 * fine.volumes[fluid], "probabilities are no way out"
