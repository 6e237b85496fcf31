"""The built-in models of the hippocampus, on the label map of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import caps_med
from caps_med.bundles import ModelRepository
from caps_med.images import MedicalImage, read_image
from training.evaluation.metrics.artefacts import border

ANTERIOR, POSTERIOR = 1, 2


@pytest.fixture(scope="module")
def labels() -> MedicalImage:
    """Both parts and three classes of surroundings, 1 mm."""
    return read_image(Path(__file__).parent / "data" / "hippocampus-labels.nii.gz", kind="labels")


@pytest.fixture(scope="module")
def volumes(labels: MedicalImage) -> list[MedicalImage]:
    generator = caps_med.load_model("hippocampus-synthesis")
    return [generator.synthesize(labels, seed=seed) for seed in (1, 2)]


def array(volume: MedicalImage) -> NDArray[np.float64]:
    return np.asarray(volume.array[0], np.float64)


def dice(one: NDArray[np.bool_], other: NDArray[np.bool_]) -> float:
    return 2 * float((one & other).sum()) / float(one.sum() + other.sum())


def test_both_say_whose_images_they_learned_from() -> None:
    for name in ("hippocampus", "hippocampus-synthesis"):
        bundle = ModelRepository().find(name)
        assert bundle.weights.stat().st_size < 8e6
        assert bundle.card.license == "CC-BY-SA-4.0"
        assert "Antonelli" in bundle.card.provenance.data and bundle.card.provenance.command
        assert bundle.card.scores


def test_the_hippocampus_is_found_in_synthetic_volumes(
    labels: MedicalImage, volumes: list[MedicalImage]
) -> None:
    model = caps_med.load_model("hippocampus")
    truth = labels.array[0]
    for volume in volumes:
        found = model.segment(volume).array[0]
        assert min(dice(found == part, truth == part) for part in (ANTERIOR, POSTERIOR)) > 0.75


def test_axes_in_any_order_and_direction_give_the_same_labels(volumes: list[MedicalImage]) -> None:
    model, volume = caps_med.load_model("hippocampus"), volumes[0]
    turned = volume.array[:, ::-1].transpose(0, 3, 1, 2)
    last = volume.array.shape[1] - 1
    affine = np.array([[0, -1, 0, last], [0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1]], float)
    found = model.segment(MedicalImage(turned, affine, "nifti"))
    back = found.array[0].transpose(1, 2, 0)[::-1]
    np.testing.assert_array_equal(back, model.segment(volume).array[0])


def pairs(slices: NDArray[np.float64]) -> Iterator[tuple[NDArray[np.float64], ...]]:
    return zip(slices[:-3], slices[3:], strict=True)


def correlations(volume: NDArray[np.float64]) -> list[float]:
    """Between slices 3 mm apart, along each axis."""
    return [
        float(np.mean([np.corrcoef(a.ravel(), b.ravel())[0, 1] for a, b in pairs(v)]))
        for v in (np.moveaxis(volume, axis, 0) for axis in range(3))
    ]  # fmt: skip


def planes(volume: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    return [volume.take(size // 2, axis) for axis, size in enumerate(volume.shape)]


@pytest.mark.parametrize(
    ("measure", "least", "most"),
    [
        # Real volumes: 0.79 to 0.97 in the three planes.
        (lambda volume: [border(plane) for plane in planes(volume)], 0.5, 1.1),
        # Real volumes: 0.52 to 0.68. Slices that are copies, or stripes, have nearly 1; noise 0.
        (correlations, 0.4, 0.95),
    ],
    ids=["border", "slices"],
)
def test_synthetic_volumes_have_no_rim_and_no_stripes(
    volumes: list[MedicalImage],
    measure: Callable[[NDArray[np.float64]], list[float]],
    least: float,
    most: float,
) -> None:
    for volume in volumes:
        found = measure(array(volume))
        assert all(least < value < most for value in found), found
    first, second = map(array, volumes)
    assert not np.array_equal(first, second)
