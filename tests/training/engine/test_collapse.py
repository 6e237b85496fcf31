"""A network that answers nothing but background is seen, and its training starts again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from caps_med.networks import ConvCaps
from training.data import load_source, open_dataset
from training.engine import collapse
from training.engine.collapse import RESTARTS, Collapsed, CollapseWatch, until_it_finds
from training.engine.initial import initial_network
from training.engine.run_folder import RunFolder
from training.tasks import segmentation
from training.tasks.segmentation import SegmentationRecipe, train_segmentation


def answers(foreground: float) -> Tensor:
    return torch.tensor([1 - foreground, foreground]).view(1, 2, 1, 1).expand(1, 2, 4, 4)


TARGET = answers(0.0).clone()
TARGET[:, :, 0, 0] = torch.tensor([0.0, 1.0])


def test_nothing_but_background_up_to_a_fifth_of_the_steps_is_a_collapse() -> None:
    watch = CollapseWatch(500)
    seen = [watch.collapsed(step, answers(0.4), TARGET) for step in range(1, 501)]
    assert [step for step, is_one in enumerate(seen, 1) if is_one] == [100]


@pytest.mark.parametrize("step", [80, 100])
def test_a_single_pixel_found_shortly_before_is_none(step: int) -> None:
    watch = CollapseWatch(500)
    for now in range(1, 501):
        assert not watch.collapsed(now, answers(0.6 if now == step else 0.4), TARGET)


def test_what_is_no_number_is_not_background() -> None:
    """The loss tells it; another seed would not help."""
    watch, nothing = CollapseWatch(500), torch.full_like(TARGET, float("nan"))
    assert not any(watch.collapsed(step, nothing, TARGET) for step in range(1, 501))


def test_crops_without_foreground_and_short_trainings_say_nothing() -> None:
    for steps, target in ((500, answers(0.0)), (495, TARGET)):
        watch = CollapseWatch(steps)
        assert not any(watch.collapsed(n, answers(0.4), target) for n in range(1, steps + 1))


def test_steps_without_labels_are_not_watched() -> None:
    watch = CollapseWatch(1000, without_labels=500)
    seen = [watch.collapsed(step, answers(0.4), TARGET) for step in range(1, 1001)]
    assert [step for step, is_one in enumerate(seen, 1) if is_one] == [600]


def test_of_a_binary_network_the_foreground_is_what_is_above_a_half() -> None:
    watch = CollapseWatch(500)
    lengths, target = torch.full((1, 1, 4, 4), 0.4), TARGET[:, 1:]
    assert [n for n in range(1, 501) if watch.collapsed(n, lengths, target)] == [100]


def test_a_collapsed_training_starts_again_and_it_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tried: list[int] = []

    def train(restarts: int) -> str:
        tried.append(restarts)
        if restarts < RESTARTS:
            raise Collapsed
        return "trained"

    assert until_it_finds(train) == "trained"
    assert tried == [0, 1, 2]
    assert "starting again with another seed and a lower learning rate (1 of 2)" in (
        capsys.readouterr().out
    )


def test_a_restart_has_another_seed_a_lower_rate_and_normalized_votes() -> None:
    recipe = SegmentationRecipe.model_validate(
        {"data": "x", "network": "segcaps", "seed": 3, "restarts": 1}
    )
    assert (recipe.started().seed, recipe.started().learning_rate) == (1012, 0.0025)
    assert recipe.seed == 3


def test_a_training_that_collapses_ends_with_the_weights_of_another_start(
    discs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"network": "convcaps", "epochs": 2, "steps": 5, "batch_size": 2, "crop": 32}
    recipe = SegmentationRecipe.model_validate({"data": str(discs), "seed": 3, "atoms": 1, **given})
    monkeypatch.setattr(collapse, "MIN_STEPS", 1)

    def hopeless(of: SegmentationRecipe, *others: Any) -> ConvCaps:  # noqa: ANN401
        network = initial_network(of, *others)
        assert isinstance(network, ConvCaps)
        torch.nn.init.constant_(network.head.bias, -50.0 if of.restarts == 0 else 1.0)  # type: ignore[arg-type]
        return network

    monkeypatch.setattr(segmentation, "initial_network", hopeless)
    folder = RunFolder(tmp_path / "run")
    source = load_source(open_dataset(discs), folder.data, None)
    train_segmentation(source, recipe, folder, resume=False)
    saved = folder.read_recipe(SegmentationRecipe)
    assert (saved.restarts, saved.seed) == (1, 3)
    assert [scores["epoch"] for scores in folder.logged()] == [1, 2]
    resumed = folder.saved(SegmentationRecipe, {"network": "convcaps", "seed": 3})
    assert resumed.restarts == 1
