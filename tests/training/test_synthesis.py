from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from training.datasets import load_source
from training.run import RunFolder
from training.synthesis import SynthesisRecipe, appearance, train_synthesis


def recipe(data: Path, **changes: object) -> SynthesisRecipe:
    values = {"epochs": 2, "steps": 3, "batch_size": 2, "crop": 64, "atoms": 4, "seed": 3}
    return SynthesisRecipe.model_validate({"data": str(data), **values, **changes})


def test_learns_discs(discs: Path, tmp_path: Path, store: Path) -> None:
    source = load_source(str(discs), store)
    chosen = recipe(discs, epochs=2, steps=70, atoms=8, learning_rate=1e-2)
    generator, best = train_synthesis(source, chosen, RunFolder(tmp_path / "run"), resume=False)
    label = torch.zeros(1, 1, 64, 64)
    label[..., 20:40, 20:40] = 1
    image = generator(label, torch.zeros(1, generator.noise_size))
    assert image[..., 25:35, 25:35].mean() > image[..., 50:60, 50:60].mean() + 0.3
    assert best.score > 0.02


@pytest.mark.parametrize(
    "source_name", ["input", "broadcast", "broadcast_conv", "broadcast_latent", "dropout"]
)
def test_stopped_and_resumed_run_equals_an_undisturbed_one(
    discs: Path, tmp_path: Path, source_name: str, store: Path
) -> None:
    source = load_source(str(discs), store)
    if source_name == "input":
        cut = slice(0, 64)
        small = [{k: v[:, cut, cut] for k, v in s.items()} for s in source.samples]
        source = replace(source, samples=small)
    chosen = recipe(discs, noise_source=source_name, noise_size=16, dropout=0.2)
    whole, _ = train_synthesis(source, chosen, RunFolder(tmp_path / "a"), resume=False)
    stopped = RunFolder(tmp_path / "b")
    log = stopped.log

    def interrupt(scores: dict[str, float]) -> None:
        if scores["epoch"] == 2:
            raise KeyboardInterrupt
        log(scores)

    stopped.log = interrupt  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt):
        train_synthesis(source, chosen, stopped, resume=False)
    again, _ = train_synthesis(source, chosen, RunFolder(tmp_path / "b"), resume=True)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name


def test_appearance_follows_z_and_keeps_zero() -> None:
    image = torch.tensor([0.0, 0.5, 1.0]).view(1, 1, 1, 3).repeat(3, 1, 1, 1)
    z = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, -2.0]])
    plain, darker_middle, dimmer = appearance(image, z)[:, 0, 0]
    assert torch.equal(plain, torch.tensor([0.0, 0.5, 1.0]))
    assert darker_middle[1] < 0.5
    assert darker_middle[2] == 1
    assert dimmer[0] == 0
    assert dimmer[2] < 0.95
