"""A batch never changes a byte, and one bad request does not spoil it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import caps_med
from api.engine import ModelCall, Segment, Synthesize
from api.engine.queue import outcomes_of
from caps_med.bundles import NetworkSpec
from caps_med.errors import UnknownLabel
from caps_med.images import MedicalImage
from caps_med.inference.uncertainty_maps import PROBABILITIES
from tests.conftest import tiny_card, write_tiny

RNG = np.random.default_rng(4)
SHAPES = [(1, 21, 30), (1, 20, 28, 3)]


def images(shape: tuple[int, ...]) -> list[MedicalImage]:
    return [MedicalImage(RNG.uniform(0, 90, shape).astype(np.float32)) for _ in range(5)]


def label_maps(shape: tuple[int, ...]) -> list[MedicalImage]:
    ids = [RNG.choice([0, 2, 7], shape).astype(np.uint8) for _ in range(5)]
    return [MedicalImage(array, kind="labels", format="png") for array in ids]


@pytest.mark.parametrize("shape", SHAPES)
def test_segmentations_of_a_batch_are_those_of_single_calls(
    models: Path, shape: tuple[int, ...]
) -> None:
    model = caps_med.load_model("tiny-segmentation", models, device="cpu")
    calls: list[ModelCall[Any]] = [Segment(x, maps=PROBABILITIES) for x in images(shape)]
    assert len({call.batch_key for call in calls}) == 1
    for found, call in zip(outcomes_of(model, calls), calls, strict=True):
        wanted = call.run(model)
        np.testing.assert_array_equal(found.array, wanted.array)
        np.testing.assert_array_equal(found.probabilities.array, wanted.probabilities.array)


@pytest.mark.parametrize("choice", [None, "none"])
def test_refined_segmentations_of_a_batch_are_those_of_single_calls(
    tmp_path: Path, choice: Literal["none"] | None
) -> None:
    card = tiny_card("segmentation").model_copy(update={"refine": "em"})
    write_tiny(tmp_path, "mine", card)
    model = caps_med.load_model("mine", tmp_path, device="cpu")
    calls: list[ModelCall[Any]] = [Segment(x, choice) for x in images(SHAPES[0])]
    assert len({call.batch_key for call in (*calls, Segment(images(SHAPES[0])[0], "em"))}) == 2
    for found, call in zip(outcomes_of(model, calls), calls, strict=True):
        wanted = model.segment(call.image, refine=choice)  # type: ignore[attr-defined]
        np.testing.assert_array_equal(found.array, wanted.array)
        assert found.provenance == wanted.provenance


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "source", ["input", "broadcast", "broadcast_conv", "broadcast_latent", "dropout"]
)
def test_syntheses_of_a_batch_are_those_of_single_calls(
    tmp_path: Path, shape: tuple[int, ...], source: str
) -> None:
    card = tiny_card("synthesis", spacing=None)
    arguments = {**card.network.arguments, "noise_source": source}
    if source == "input":  # tied to one size: a volume's slices lie turned
        arguments["image_size"] = [24, 32] if len(shape) == 3 else [32, 24]
    spec = NetworkSpec(name=card.network.name, arguments=arguments)
    write_tiny(tmp_path, "mine", card.model_copy(update={"network": spec}))
    model = caps_med.load_model("mine", tmp_path, device="cpu")
    calls: list[ModelCall[Any]] = [
        Synthesize(one, seed) for seed, one in enumerate(label_maps(shape))
    ]
    for found, call in zip(outcomes_of(model, calls), calls, strict=True):
        wanted = call.run(model)
        np.testing.assert_array_equal(found[0].array, wanted[0].array)
        assert found[0].provenance == wanted[0].provenance
    assert (found[0].array != outcomes_of(model, calls[:1])[0][0].array).any()


def test_one_bad_label_map_fails_alone(models: Path) -> None:
    model = caps_med.load_model("tiny-synthesis", models, device="cpu")
    maps = label_maps(SHAPES[0])[:3]
    maps[1] = maps[1].with_array(np.full(SHAPES[0], 3, np.uint8), kind="labels")
    outcomes = outcomes_of(model, [Synthesize(one, 1) for one in maps])
    assert isinstance(outcomes[1], UnknownLabel)
    for i in (0, 2):
        wanted = model.synthesize(maps[i], 1)
        np.testing.assert_array_equal(outcomes[i][0].array, wanted.array)


def test_what_is_not_alike_or_large_has_its_own_key() -> None:
    small, other = images(SHAPES[0])[0], images((1, 30, 21))[0]
    moved = MedicalImage(small.array, np.diag([1.0, 1, 2, 1]))
    keys = [
        Segment(small).batch_key,
        Segment(small, maps=PROBABILITIES).batch_key,
        Segment(other).batch_key,
        Segment(moved).batch_key,
        Synthesize(small, 0).batch_key,
    ]
    assert len(set(keys)) == 5
    assert Segment(MedicalImage(np.zeros((1, 1024, 1024), np.uint8))).batch_key is None
    assert Synthesize(small, 0, count=2).batch_key is None
