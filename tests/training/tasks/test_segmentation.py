from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor, nn

from caps_med.bundles import ModelRepository
from caps_med.errors import InvalidParameter
from training.data import load_source, open_dataset
from training.engine import distributed
from training.engine.precision import Bfloat16Inferer
from training.engine.run_folder import RunFolder
from training.tasks import segmentation
from training.tasks.publish import publish
from training.tasks.segmentation import SegmentationRecipe, train_segmentation


def recipe(data: Path, **changes: object) -> SegmentationRecipe:
    values = {"epochs": 2, "steps": 3, "batch_size": 2, "crop": 64, "atoms": 4, "seed": 3}
    return SegmentationRecipe.model_validate({"data": str(data), **values, **changes})


def test_learns_discs(discs: Path, tmp_path: Path, store: Path) -> None:
    source = load_source(open_dataset(discs), store)
    chosen = recipe(discs, epochs=3, steps=40, atoms=8, learning_rate=1e-2)
    _, best = train_segmentation(source, chosen, RunFolder(tmp_path / "run"), resume=False)
    assert best.score > 0.8


def test_a_picture_without_labels_in_its_right_fifth_is_no_reason_to_train_longer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pixels = np.random.default_rng(0).integers(0, 99, (32, 48), np.uint8)
    labels = np.zeros_like(pixels)
    labels[8:24, 8:24] = 1
    for kind, array in (("images", pixels), ("labels", labels)):
        (tmp_path / kind).mkdir()
        Image.fromarray(array).save(tmp_path / kind / "a.png")
    source = load_source(open_dataset(tmp_path), tmp_path / "store")
    short = recipe(tmp_path, network="unet", crop=32, epochs=1, steps=1)
    train_segmentation(source, short, RunFolder(tmp_path / "run"), resume=False)
    said = capsys.readouterr().out
    assert "warning: the held-out data have no labels" in said and "train longer" not in said


def test_a_stopped_and_resumed_run_equals_an_uninterrupted_one(
    discs: Path, tmp_path: Path, store: Path
) -> None:
    source = load_source(open_dataset(discs), store)
    whole, _ = train_segmentation(source, recipe(discs), RunFolder(tmp_path / "a"), resume=False)

    stopped = RunFolder(tmp_path / "b")
    stopped.log = _interrupted(2, stopped.log)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        train_segmentation(source, recipe(discs), stopped, resume=False)
    again, _ = train_segmentation(source, recipe(discs), RunFolder(tmp_path / "b"), resume=True)
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name
    curves = EventAccumulator(str(tmp_path / "b" / "tensorboard"))
    curves.Reload()
    assert [x.step for x in curves.Scalars("training/loss")] == [1, 2, 3, 4, 5, 6]
    assert [x.step for x in curves.Scalars("validation/score")] == [3, 6]


def test_epochs_of_small_crops(
    discs: Path, tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their crops are smaller, also after resuming, and none of them is published."""
    source, chosen = load_source(open_dataset(discs), store), recipe(discs, small_crops=0.5)
    edges: list[int] = []
    monkeypatch.setattr(segmentation, "_prepare", _noting(edges, segmentation._prepare))
    scores = iter([0.9, 0.1, 0.9, 0.1])
    monkeypatch.setattr(segmentation, "dice_scores", lambda *_: {"score": next(scores)})
    whole, best = train_segmentation(source, chosen, RunFolder(tmp_path / "a"), resume=False)
    assert edges == [48] * 3 + [64] * 3
    assert (best.epoch, best.score) == (2, 0.1)

    stopped = RunFolder(tmp_path / "b")
    monkeypatch.setattr(stopped, "log", _interrupted(2, stopped.log))
    with pytest.raises(KeyboardInterrupt):
        train_segmentation(source, chosen, stopped, resume=False)
    scores = iter([0.1])
    again, _ = train_segmentation(source, chosen, RunFolder(tmp_path / "b"), resume=True)
    assert edges[-3:] == [64] * 3
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name


def _noting(edges: list[int], prepare: Callable[..., object]) -> Callable[..., object]:
    def noting(batch: Mapping[str, Tensor], *others: object) -> object:
        edges.append(batch["image"].shape[-1])
        return prepare(batch, *others)

    return noting


def _interrupted(epoch: int, log: Callable[[Mapping[str, float]], None]) -> Callable[..., None]:
    def interrupted(scores: Mapping[str, float]) -> None:
        if scores["epoch"] == epoch:
            raise KeyboardInterrupt
        log(scores)

    return interrupted


def test_edges_of_small_crops(discs: Path) -> None:
    found = {crop: recipe(discs, crop=crop).small_crop for crop in (16, 32, 48, 64, 72, 128, 256)}
    assert found == {16: 16, 32: 32, 48: 32, 64: 48, 72: 48, 128: 96, 256: 192}
    chosen = [recipe(discs, epochs=n, small_crops=0.75).epochs_before_best for n in (1, 2, 8, 25)]
    assert chosen == [0, 1, 6, 18]
    with pytest.raises(ValueError, match=r"small_crops=0.5: images that are drawn from label maps"):
        recipe(discs, small_crops=0.5, randomization={})


def test_small_crops_are_chosen_for_slices_and_networks_of_which_they_are_known(
    discs: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = load_source(open_dataset(discs), store)

    def chosen(**changes: object) -> float | None:
        return recipe(discs, **changes).completed(source).small_crops

    assert chosen() == chosen(network="unet") == segmentation.SMALL_CROPS
    assert chosen(small_crops=0.2) == 0.2
    assert chosen(crop=48) == 0, "crops of 32 pixels show too little"
    assert chosen(network="segcaps") == 0
    assert chosen(randomization={}) == 0
    monkeypatch.setattr(distributed, "device", lambda: torch.device("cuda"))
    assert chosen() == 0


def test_a_gpu_scales_the_loss_of_float16_unless_a_precision_is_given() -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    assert segmentation.computing_in(None, gpu)["amp"]
    assert not segmentation.computing_in(None, cpu)["amp"]
    for device in (cpu, gpu):
        half, full = (segmentation.computing_in(p, device) for p in ("bfloat16", "float32"))
        assert not half["amp"] and not full["amp"]
        assert isinstance(half["inferer"], Bfloat16Inferer)
        assert not isinstance(full["inferer"], Bfloat16Inferer)


def test_patience_begins_after_epochs_of_small_crops(
    discs: Path, tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = load_source(open_dataset(discs), store)
    chosen = recipe(discs, epochs=8, steps=1, small_crops=0.5, patience=2)
    scores = iter([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2])
    monkeypatch.setattr(segmentation, "dice_scores", lambda *_: {"score": next(scores)})
    folder = RunFolder(tmp_path / "run")
    _, best = train_segmentation(source, chosen, folder, resume=False)
    assert (best.epoch, folder.epochs) == (5, 7)


def test_workers_do_not_change_the_weights(discs: Path, tmp_path: Path, store: Path) -> None:
    source, short = load_source(open_dataset(discs), store), recipe(discs, epochs=1)
    one, _ = train_segmentation(source, short, RunFolder(tmp_path / "a"), False, workers=0)
    two, _ = train_segmentation(source, short, RunFolder(tmp_path / "b"), False, workers=2)
    for name, value in one.state_dict().items():
        assert torch.equal(value, two.state_dict()[name]), name


def test_a_run_is_not_overwritten(discs: Path, tmp_path: Path, store: Path) -> None:
    source, folder = load_source(open_dataset(discs), store), RunFolder(tmp_path / "run")
    with pytest.raises(InvalidParameter, match="holds no checkpoint: start without --resume"):
        train_segmentation(source, recipe(discs), folder, resume=True)
    train_segmentation(source, recipe(discs, epochs=1), folder, resume=False)
    with pytest.raises(InvalidParameter, match="already holds a run: add --resume"):
        train_segmentation(source, recipe(discs, epochs=1), folder, resume=False)
    with pytest.raises(InvalidParameter, match=r"another recipe \(epochs: 1 -> 2\)"):
        train_segmentation(source, recipe(discs), folder, resume=True)


def test_a_recipe_of_another_version(discs: Path, tmp_path: Path, store: Path) -> None:
    """Missing fields take their defaults; unknown ones are refused."""
    source, folder = load_source(open_dataset(discs), store), RunFolder(tmp_path / "run")
    chosen = recipe(discs, epochs=1)
    train_segmentation(source, chosen, folder, resume=False)
    saved = json.loads(folder.recipe.read_text())
    folder.recipe.write_text(json.dumps({k: v for k, v in saved.items() if k != "foreground"}))
    train_segmentation(source, chosen, folder, resume=True)
    assert json.loads(folder.recipe.read_text()) == saved
    folder.recipe.write_text(json.dumps({**saved, "momentum": 1}))
    with pytest.raises(InvalidParameter, match="is not a recipe of this version"):
        train_segmentation(source, chosen, folder, resume=True)


def test_starting_from_a_model(discs: Path, models: Path, tmp_path: Path, store: Path) -> None:
    source = load_source(open_dataset(discs), store)
    first, _ = train_segmentation(source, recipe(discs), RunFolder(tmp_path / "a"), False)
    bundle = publish(ModelRepository(tmp_path), "first", [(first, source)], recipe(discs), "pytest")
    still = recipe(discs, start_from="first@1", learning_rate=1e-12, epochs=1)
    again, _ = train_segmentation(
        source, still, RunFolder(tmp_path / "b"), resume=False, models=tmp_path
    )
    for name, value in bundle.load_network().state_dict().items():
        torch.testing.assert_close(value, again.state_dict()[name], atol=1e-6, rtol=0)
    other = recipe(discs, start_from="tiny-synthesis")
    which = r"a different one \(CapsPix2Pix where ConvCaps is trained\): missing .* and \d+ more$"
    with pytest.raises(InvalidParameter, match=which):
        train_segmentation(source, other, RunFolder(tmp_path / "c"), False, models=models)


@pytest.mark.parametrize("fast", [True, False])
def test_the_precision_follows_from_processor_and_network(
    discs: Path, store: Path, monkeypatch: pytest.MonkeyPatch, fast: bool
) -> None:
    monkeypatch.setattr("training.engine.precision.has_bfloat16", lambda _: fast)
    source = load_source(open_dataset(discs), store)

    def chosen(**values: str) -> str | None:
        return recipe(discs, **values).completed(source).precision

    usual = "bfloat16" if fast else "float32"
    assert chosen() == chosen(network="unet") == chosen(network="convcaps-plain") == usual
    assert chosen(network="segcaps") == chosen(network="ucaps-plain") == "float32"
    assert chosen(precision="float32") == "float32"
    assert chosen(network="segcaps", precision="bfloat16") == "bfloat16"


def test_a_run_of_an_older_version_is_resumed_as_it_was_trained(
    discs: Path, tmp_path: Path, store: Path
) -> None:
    source, folder = load_source(open_dataset(discs), store), RunFolder(tmp_path / "run")
    folder.write(recipe(discs).completed(source))
    values = json.loads(folder.recipe.read_text())
    newer = ("precision", "whole_batches", "validated", "small_crops")
    folder.recipe.write_text(json.dumps({k: v for k, v in values.items() if k not in newer}))
    before = folder.read_recipe(SegmentationRecipe).completed(source)
    assert [getattr(before, name) for name in newer] == ["float32", False, 100, 0]


def test_a_validation_costs_a_tenth_of_its_epoch(discs: Path, store: Path) -> None:
    source = load_source(open_dataset(discs), store)
    pixels = source.validation[0]["label"].size
    steps = 40 * pixels // (64 * 64)
    chosen = recipe(discs, steps=steps, batch_size=1).completed(source)
    assert chosen.validated == pytest.approx(0.3 * 40, abs=1)
    assert recipe(discs, steps=1).completed(source).validated == 10
    assert recipe(discs, steps=10**6).completed(source).validated == 100


def test_training_in_bfloat16_answers_in_float32(
    discs: Path, tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Convolutions are in bfloat16; what the loss takes is not: its gradient would end near 1."""
    source = load_source(open_dataset(discs), store)
    answers: list[tuple[Tensor, ...]] = []
    convolved: set[torch.dtype] = set()
    computed = Bfloat16Inferer.__call__

    def call(*args: Any, **named: Any) -> Any:  # noqa: ANN401
        answers.append(computed(*args, **named))
        return answers[-1]

    monkeypatch.setattr(Bfloat16Inferer, "__call__", call)

    def note(module: nn.Module, _: Any, answer: Any) -> None:  # noqa: ANN401
        if module.training and isinstance(module, nn.Conv2d):
            convolved.add(answer.dtype)

    hook = nn.modules.module.register_module_forward_hook(note)
    chosen = recipe(discs, precision="bfloat16", epochs=1)
    network, _ = train_segmentation(source, chosen, RunFolder(tmp_path / "run"), resume=False)
    hook.remove()
    assert convolved == {torch.bfloat16}
    assert {part.dtype for answer in answers for part in answer} == {torch.float32}
    probabilities = torch.cat([answer[0].flatten() for answer in answers])
    assert not torch.equal(probabilities, probabilities.bfloat16().float())
    assert {p.dtype for p in network.parameters()} == {torch.float32}
