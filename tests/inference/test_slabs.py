"""A slab of a volume, across the slices that a model looks at, is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import caps_med
from caps_med.images import MedicalImage
from tests.conftest import tiny_card, write_tiny

AXES = {"sagittal": 0, "coronal": 1, "axial": 2}


def volume(plane: str, slices: int, edge: int = 48, kind: str = "image") -> MedicalImage:
    """`slices` of a plane, of `edge` x `edge` pixels of 1 mm."""
    size = [edge] * 3
    size[AXES[plane]] = slices
    values = np.random.default_rng(0).integers(0, 2 if kind == "labels" else 200, (1, *size))
    affine = np.eye(4)
    if kind == "labels":
        return MedicalImage(values.astype(np.uint8), affine, "nifti", kind="labels")
    return MedicalImage(values.astype(np.uint8), affine, "nifti")


def told(warnings: tuple[str, ...]) -> list[str]:
    return [warning for warning in warnings if warning.startswith("the volume has only")]


@pytest.mark.parametrize(
    ("plane", "slices", "strips"),
    [("coronal", 1, "1 x 48"), ("sagittal", 5, "48 x 5"), ("sagittal", 15, "48 x 15")],
)
def test_the_plane_and_what_is_left_of_it_are_named(
    models: Path, plane: str, slices: int, strips: str
) -> None:
    model = caps_med.load_model("tiny-segmentation", models)
    answer = model.segment(volume(plane, slices))
    [warning] = told(answer.warnings)
    noun = "slice" if slices == 1 else "slices"
    assert f"only {slices} {plane} {noun}, and the model looks at axial slices" in warning
    assert f"strips of {strips} pixels" in warning and "give the whole volume, or axial" in warning
    assert warning in answer.numbers()["warnings"]


@pytest.mark.parametrize(
    ("plane", "slices", "edge"),
    [("axial", 1, 48), ("coronal", 16, 48), ("sagittal", 33, 120), ("coronal", 12, 20)],
)
def test_axial_slices_and_small_cubes_are_not(
    models: Path, plane: str, slices: int, edge: int
) -> None:
    model = caps_med.load_model("tiny-segmentation", models)
    assert told(model.segment(volume(plane, slices, edge)).warnings) == []


def test_pixels_count_at_the_spacing_of_the_network(models: Path) -> None:
    thick = volume("coronal", 8, 40)
    thick = MedicalImage(thick.array, np.diag([1, 6, 1, 1.0]), "nifti")
    model = caps_med.load_model("tiny-segmentation", models)
    assert told(model.segment(thick).warnings) == []


def test_a_label_map_of_a_generator_too(models: Path) -> None:
    model = caps_med.load_model("tiny-synthesis", models)
    labels = volume("coronal", 2, kind="labels")
    labels = labels.with_array(2 * labels.array)  # the ids that it knows
    [warning] = told(model.synthesize(labels).warnings)
    assert "only 2 coronal slices" in warning


def test_a_network_of_volumes_needs_some_slices(tmp_path: Path) -> None:
    card = tiny_card("segmentation")
    network = card.network.model_copy(
        update={"arguments": {**card.network.arguments, "spatial_dims": 3}}
    )
    write_tiny(tmp_path, "deep", card.model_copy(update={"network": network}))
    model = caps_med.load_model("deep", tmp_path)
    [warning] = told(model.segment(volume("axial", 2, 24)).warnings)
    assert "only 2 axial slices, and the model looks at volumes" in warning


def test_a_classifier_takes_single_slices_of_any_plane_but_no_slabs(models: Path) -> None:
    model = caps_med.load_model("brain-slices")
    assert told(model.classify(volume("coronal", 1)).warnings) == []
    [warning] = told(model.classify(volume("coronal", 3)).warnings)
    assert "only 3 coronal slices, and the model looks at axial slices" in warning
