"""What a search over recipes tries."""

from __future__ import annotations

from pathlib import Path

import pytest

from training.data import load_source, open_dataset
from training.tasks.search import CROPS, LOSSES, NETWORKS, RATE_FACTOR, SEARCHED, draw, recipe_of
from training.tasks.segmentation import SegmentationRecipe
from training.tasks.segmentation_networks import CHOICES

PLANNED = SegmentationRecipe(data="x", seed=3, crop=128, learning_rate=2e-3)


def test_the_first_trial_is_the_recipe_as_planned() -> None:
    first = draw(PLANNED, (), 1, seed=0)[0]
    assert first == {name: getattr(PLANNED, name) for name in SEARCHED}


def test_values_are_drawn_by_the_seed_and_more_trials_begin_with_fewer() -> None:
    assert draw(PLANNED, (), 5, seed=1) == draw(PLANNED, (), 9, seed=1)[:5]
    assert draw(PLANNED, (), 5, seed=1) != draw(PLANNED, (), 5, seed=2)


def test_every_value_is_tried_and_each_makes_a_recipe() -> None:
    found = draw(PLANNED, (), 200, seed=0)
    assert {each["network"] for each in found} == set(NETWORKS)
    assert {each["loss"] for each in found} == set(LOSSES)
    assert {each["crop"] for each in found} == {int(128 * share) for share in CROPS}
    for each in found:
        own = CHOICES[each["network"]].rate
        assert own / RATE_FACTOR * 0.99 <= each["learning_rate"] <= own * RATE_FACTOR * 1.01
        SegmentationRecipe.model_validate({**PLANNED.model_dump(), **each})


def test_what_the_user_chose_is_kept() -> None:
    planned = SegmentationRecipe(data="x", seed=3, network="unet", learning_rate=0.5)
    for each in draw(planned, {"network", "learning_rate"}, 20, seed=0):
        assert (each["network"], each["learning_rate"]) == ("unet", 0.5)
    rates = [each["learning_rate"] for each in draw(planned, {"network"}, 20, seed=0)]
    assert min(rates) < 0.5 < max(rates), "around the rate of the recipe"


def test_small_crops_are_not_made_smaller_than_a_network_can_use() -> None:
    crops = {e["crop"] for e in draw(PLANNED.model_copy(update={"crop": 40}), (), 50, seed=0)}
    assert crops == {40}


def test_a_trial_has_what_follows_from_its_own_network_unless_the_user_chose_it(
    discs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.engine.precision.has_bfloat16", lambda _: True)
    recipe = SegmentationRecipe(data=str(discs), seed=3, crop=64, learning_rate=2e-3)
    source = load_source(open_dataset(str(discs)), tmp_path / "data")
    planned = recipe.completed(source)
    assert (planned.precision, planned.small_crops) == ("bfloat16", 0.75)
    assert recipe_of(planned, {"network": "convcaps"}, (), source) == planned
    assert recipe_of(planned, {"crop": 48}, (), source).small_crops == 0
    other = {"network": "ucaps", "learning_rate": 2e-3}
    found = recipe_of(planned, other, (), source)
    assert (found.network, found.precision, found.small_crops) == ("ucaps", "float32", 0.0)
    kept = recipe_of(planned, other, {"precision", "small_crops"}, source)
    assert (kept.precision, kept.small_crops) == ("bfloat16", 0.75)
