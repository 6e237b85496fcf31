from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F

from caps_med.errors import InvalidParameter
from caps_med.networks import SegmentationNetwork, build_network
from caps_med.networks.ensemble import Ensemble
from training.data import load_source, open_dataset
from training.engine.reconstruction import (
    BLOCK,
    HIDDEN,
    NOISE,
    ReconstructionFirst,
    ReconstructionStart,
    perturbed,
)
from training.engine.run_folder import RunFolder
from training.tasks.segmentation import SegmentationRecipe, train_segmentation

NETWORKS = ("ConvCaps", "UCaps", "OnlyCaps", "SegCaps", "UNet")


def network(name: str = "ConvCaps", **arguments: object) -> SegmentationNetwork:
    torch.manual_seed(0)
    small = {"features": (4, 4, 4, 4, 4, 4)} if name == "UNet" else {"atoms": 4}
    return cast(SegmentationNetwork, build_network(name, {**small, **arguments}))


def recipe(data: Path, **changes: object) -> SegmentationRecipe:
    values = {"epochs": 2, "steps": 3, "batch_size": 2, "crop": 32, "atoms": 4, "seed": 3}
    return SegmentationRecipe.model_validate({"data": str(data), **values, **changes})


@pytest.mark.parametrize("size", [(32, 48), (16, 16, 32)])
@pytest.mark.parametrize("name", NETWORKS)
def test_features_are_maps_of_the_image_s_size(name: str, size: tuple[int, ...]) -> None:
    chosen = network(name, spatial_dims=len(size), out_channels=3).eval()
    with torch.no_grad():
        features = chosen.features(torch.rand(2, 1, *size))
    assert features.shape[0] == 2
    assert features.shape[2:] == size


def test_an_ensemble_has_no_features() -> None:
    with pytest.raises(InvalidParameter, match="Ensemble has no features of its own"):
        Ensemble("ConvCaps", 2, {"atoms": 4}).features(torch.rand(1, 1, 8, 8))


@pytest.mark.parametrize("size", [(64, 52), (16, 24, 20)])
def test_blocks_are_hidden_and_noise_is_added(size: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    image = torch.zeros(64, 1, *size)
    image[..., ::2] = 1
    found = perturbed(image)
    assert found.shape == image.shape
    errors = (found - image).abs()
    hidden = errors.unfold(-1, 4, 4).mean(-1) > 3 * NOISE  # their mean, a half, is far from 0 and 1
    assert abs(float(hidden.float().mean()) - HIDDEN) < 0.05
    alike = hidden[..., : BLOCK // 4].float().std(-1)
    assert float(alike.max()) == 0  # a block is hidden as a whole


def test_the_first_steps_learn_the_image_the_others_the_labels() -> None:
    start = ReconstructionStart(network(), steps=2)
    loss = ReconstructionFirst(start, lambda answer, target: F.mse_loss(answer, target[0]))  # type: ignore[arg-type]
    image = torch.rand(2, 1, 16, 16)
    mask = (image > 0.5).float()
    answer = start(image, mask)
    assert answer.shape == image.shape
    torch.testing.assert_close(loss(answer, (mask, image)), F.mse_loss(answer, image))
    start.active = False
    probabilities, _ = start(image, mask)
    torch.testing.assert_close(loss(probabilities, (mask, image)), F.mse_loss(probabilities, mask))
    torch.testing.assert_close(start(image), start.network(image))


def test_reconstruction_is_learned_from_perturbed_images(
    discs: Path, tmp_path: Path, store: Path
) -> None:
    source = load_source(open_dataset(discs), store)
    chosen = recipe(discs, epochs=4, steps=16, reconstruct_first=0.75, learning_rate=5e-3)
    folder = RunFolder(tmp_path / "run")
    train_segmentation(source, chosen, folder, resume=False)
    first, _, third, labelled = (epoch["loss"] for epoch in folder.logged())
    assert third < 0.7 * first
    assert labelled > 2 * third  # another loss


def test_a_resumed_run_equals_an_uninterrupted_one(
    discs: Path, tmp_path: Path, store: Path
) -> None:
    """Resumed in the first part: the network, its head and the optimizer are in the checkpoint."""
    source = load_source(open_dataset(discs), store)
    chosen = recipe(discs, epochs=3, reconstruct_first=0.5, keep="last")
    assert chosen.reconstruction_steps == 4  # of three epochs of three steps: in the second
    whole, _ = train_segmentation(source, chosen, RunFolder(tmp_path / "whole"), resume=False)
    folder = RunFolder(tmp_path / "stopped")
    with pytest.MonkeyPatch.context() as patch:
        log = RunFolder.log

        def interrupt(self: RunFolder, scores: Any) -> None:  # noqa: ANN401
            log(self, scores)
            if scores["epoch"] == 2:
                raise KeyboardInterrupt

        patch.setattr(RunFolder, "log", interrupt)
        with pytest.raises(KeyboardInterrupt):
            train_segmentation(source, chosen, folder, resume=False)
    again, _ = train_segmentation(source, chosen, folder, resume=True)
    for key, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[key]), key
    without = chosen.model_copy(update={"reconstruct_first": 0.0})
    other, _ = train_segmentation(source, without, RunFolder(tmp_path / "other"), resume=False)
    assert any(not torch.equal(v, other.state_dict()[k]) for k, v in whole.state_dict().items())


def test_early_stopping_waits_for_the_labels(discs: Path) -> None:
    with pytest.raises(ValueError, match="patience=1: the network learns to segment only after 3"):
        recipe(discs, patience=1, reconstruct_first=0.5)
    assert recipe(discs, patience=2, reconstruct_first=0.5).reconstruction_steps == 3
