"""Runs survive kills and out of memory, train on several processes, and name the cases of a NaN."""

from __future__ import annotations

import errno
import json
import math
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

import caps_med
from caps_med.bundles import ModelRepository
from caps_med.errors import InvalidParameter
from caps_med.layers import ConvCapsule
from tests.training.data.classified_files import digits, idx
from tests.training.engine.several import request, train_digits
from tests.training.engine.torchrun import torchrun
from tests.training.engine.train_once import train_once
from tests.training.forked import Process, killed_when, start, succeeds
from training.data import load_source, open_dataset
from training.engine.loop import Best, LossNotFinite
from training.engine.memory import with_less_memory
from training.engine.run_folder import RunFolder, Stateful
from training.tasks.pipeline import train
from training.tasks.segmentation import SegmentationRecipe, train_segmentation

SMALL = {
    "network": "segcaps",
    "epochs": 4,
    "steps": 2,
    "batch_size": 2,
    "crop": 64,
    "atoms": 4,
    "seed": 3,
}


def recipe(data: Path, **changes: object) -> SegmentationRecipe:
    return SegmentationRecipe.model_validate({"data": str(data), **SMALL, **changes})


@pytest.fixture(scope="module")
def begun(python: Path, discs: Path) -> Callable[[Path], Process]:
    """A run in a process of its own, from its start or its last checkpoint."""

    def begun(run: Path) -> Process:
        given = str(discs), str(run), json.dumps(SMALL)
        return start(python, train_once, *given, folder=run.parent)

    return begun


@pytest.fixture(scope="module")
def whole(begun: Callable[[Path], Process], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nothing disturbed."""
    run = tmp_path_factory.mktemp("whole") / "run"
    assert succeeds(begun(run))
    return run


def weights(run: Path) -> dict[str, torch.Tensor]:
    state: dict[str, Any] = torch.load(run / "checkpoint.pt", weights_only=True)
    return dict(state["network"])


def test_killed_at_random_moments_a_run_ends_with_the_same_weights(
    begun: Callable[[Path], Process], whole: Path, tmp_path: Path
) -> None:
    """Kill -9 a real process at five random moments, and resume it each time."""
    rng = np.random.default_rng()
    killed, run = 0, tmp_path / "killed"
    while killed < 5:
        moment = Moment(run, rng.uniform(0, 1.0))
        if not killed_when(begun(run), moment.reached):
            break  # it finished before the kill
        killed += 1
    assert succeeds(begun(run))
    expected, found = weights(whole), weights(run)
    for name, value in expected.items():
        assert torch.equal(value, found[name]), name
    epochs = [json.loads(x)["epoch"] for x in (run / "scores.jsonl").read_text().splitlines()]
    assert epochs == [1, 2, 3, 4], "each epoch is in the log once"


class _Killed(BaseException):
    """Stands for the end of the process: nothing catches it."""


@pytest.mark.parametrize("written", range(4))
def test_killed_between_any_two_files_each_epoch_is_logged_once(
    discs: Path, tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """Above all between the log and the checkpoint of the first epoch."""
    source, folder = load_source(open_dataset(discs), store), RunFolder(tmp_path / "run")
    chosen = recipe(discs, epochs=2, steps=1, keep="last")
    save, saved = RunFolder.save, iter(range(written))

    def until_killed(self: RunFolder, file: Path, parts: Mapping[str, Stateful]) -> None:
        if next(saved, None) is None:
            raise _Killed
        save(self, file, parts)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "save", until_killed)
        with pytest.raises(_Killed):
            train_segmentation(source, chosen, folder, resume=False)
    with folder.scores.open("a") as log:
        log.write('{"epoch": ')  # a line that was cut off
    train_segmentation(source, chosen, folder, folder.checkpoint.exists())
    epochs = [json.loads(x)["epoch"] for x in folder.scores.read_text().splitlines()]
    assert epochs == [1, 2]


class Moment:
    """Some seconds after a new line of progress is written."""

    def __init__(self, run: Path, seconds: float) -> None:
        self.file, self.seconds = run / "progress.jsonl", seconds
        self.before, self.end = self._size(), math.inf

    def reached(self) -> bool:
        if self.end == math.inf and self._size() > self.before:
            self.end = time.monotonic() + self.seconds
        return time.monotonic() >= self.end

    def _size(self) -> int:
        return self.file.stat().st_size if self.file.exists() else 0


@pytest.fixture(scope="module")
def both(python: Path, discs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which two processes did the trainings of `tests.training.engine.several`."""
    folder = tmp_path_factory.mktemp("both")
    (folder / "digits").mkdir()
    idx(folder / "digits", digits(300), digits(60, start=300))
    discs_run = [str(discs), str(folder / "discs"), json.dumps(SMALL)]
    (folder / "discs.json").write_text(json.dumps(discs_run))
    torchrun(python, "tests.training.engine.several", str(folder))
    return folder


def losses(run: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (run / "scores.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_two_processes_train_as_one(discs: Path, whole: Path, both: Path, tmp_path: Path) -> None:
    run = both / "discs"
    assert len(losses(run)) == len(losses(whole)) == 4
    # each process' share of a batch has a Dice loss of its own, so the sums differ a little
    np.testing.assert_allclose(losses(run), losses(whole), rtol=0.15)
    one, other = weights(whole), weights(run)
    assert list(one) == list(other), "the checkpoint loads in a single process"
    again = load_source(open_dataset(discs), tmp_path / "store")
    train_segmentation(again, recipe(discs), RunFolder(run), resume=True)


def test_two_processes_classify_as_one(both: Path) -> None:
    """Each step sees the same images as in one process, shifted otherwise."""
    train_digits(both, "alone")
    one, two = losses(both / "runs" / "alone"), losses(both / "runs" / "digits")
    assert two[-1] < 0.7 * two[0]
    np.testing.assert_allclose(two, one, rtol=0.15)
    assert caps_med.load_model("digits", both / "models").classify(np.zeros((8, 8))).label


@pytest.mark.parametrize("task, name", [("segmentation", "folds"), ("synthesis", "synthesis")])
def test_two_processes_publish_what_one_would(both: Path, task: str, name: str) -> None:
    """One process that resumes the finished run finds the same weights and scores published."""
    published = ModelRepository(both / "models").find(name)
    assert all(math.isfinite(score) for score in published.card.scores.values())
    again = train(request(both, task, name, resume=True), Console(quiet=True))
    assert again is not None
    assert (again.reference, again.card) == (published.reference, published.card)


def test_all_processes_stop_early_with_the_first(both: Path) -> None:
    """Statistics of batch normalization, so scores, differ between processes: one would go on."""
    assert len(losses(both / "runs" / "disagreeing")) == 3


def test_out_of_memory_recomputes_votes_then_halves_the_batch_and_continues(
    discs: Path,
    tmp_path: Path,
    store: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The error is injected where PyTorch would raise it."""
    from caps_med.networks import SegCaps

    forward = SegCaps.forward

    def too_large(self: SegCaps, image: torch.Tensor, mask: torch.Tensor | None = None) -> object:
        if self.training and len(image) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return forward(self, image, mask)

    monkeypatch.setattr(SegCaps, "forward", too_large)
    source, folder = load_source(open_dataset(discs), store), RunFolder(tmp_path / "run")
    train_segmentation(source, recipe(discs, batch_size=4, epochs=1), folder, resume=False)
    saved = json.loads(folder.recipe.read_text())
    assert (saved["batch_size"], saved["recompute_votes"]) == (1, True)
    told = capsys.readouterr().out
    votes, *halved = (
        "recompute_votes False -> True", "batch_size 4 -> 2", "batch_size 2 -> 1"
    )  # fmt: skip
    for change in (votes, *halved):
        assert f"out of memory: continuing with {change}" in told
    assert told.index(votes) < told.index(halved[0])
    assert folder.saved(SegmentationRecipe, {"data": str(discs)}).batch_size == 1


def test_out_of_memory_in_one_of_several_processes_says_what_to_do(
    discs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others wait for it in the middle of a step, and would do so for ever."""

    def too_large(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr("training.engine.memory.idist.get_world_size", lambda: 2)
    message = r"out of memory in process 0 of 2: delete .*run and start again with \w+ \w+ -> \w+"
    with pytest.raises(InvalidParameter, match=message):
        with_less_memory(recipe(discs, batch_size=4), RunFolder(tmp_path / "run"), False, too_large)


def test_after_a_batch_of_one_the_crop_is_halved_down_to_its_minimum(discs: Path) -> None:
    small = recipe(discs, batch_size=1, crop=96, recompute_votes=True).smaller()
    assert small is not None
    assert (small.batch_size, small.crop) == (1, 48)
    assert recipe(discs, batch_size=1, crop=48, recompute_votes=True).smaller() is None


def test_a_network_without_votes_has_none_to_recompute(discs: Path) -> None:
    small = recipe(discs, batch_size=2, network="convcaps-plain").smaller()
    assert small is not None
    assert (small.batch_size, small.recompute_votes) == (1, False)


def test_recomputed_votes_leave_the_weights_as_they_are(
    discs: Path, tmp_path: Path, store: Path
) -> None:
    source, kept = load_source(open_dataset(discs), store), []
    for recompute in (False, True):
        folder = RunFolder(tmp_path / f"{recompute}")
        short = recipe(discs, batch_size=2, epochs=1, recompute_votes=recompute)
        network, _ = train_segmentation(source, short, folder, resume=False)
        layers = [one for one in network.modules() if isinstance(one, ConvCapsule)]
        assert {layer.recompute_votes for layer in layers} == {recompute}
        kept.append(network.state_dict())
    for name, weights in kept[0].items():
        assert torch.equal(weights, kept[1][name]), name


def test_a_nan_in_an_image_names_the_case(tmp_path: Path, store: Path) -> None:
    for kind in ("images", "labels"):
        (tmp_path / kind).mkdir()
    for i in range(6):
        picture = np.full((64, 64), 100, np.uint8)
        picture[20:40, 20:40] = 200
        Image.fromarray(picture).save(tmp_path / "images" / f"c{i}.png")
        Image.fromarray((picture > 150).astype(np.uint8)).save(tmp_path / "labels" / f"c{i}.png")
    source = load_source(open_dataset(tmp_path), store)
    write_nans(store)
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(LossNotFinite, match=r"NaN or infinity in the image: .*c\d"):
        train_segmentation(source, recipe(tmp_path, plain=1.0), folder, resume=False)


def test_a_nan_in_the_loss_names_the_cases_of_the_step(
    discs: Path, tmp_path: Path, store: Path
) -> None:
    source, folder = load_source(open_dataset(discs), store), RunFolder(tmp_path / "run")
    with pytest.raises(LossNotFinite, match=r"the loss is nan in a step on: .*case\d"):
        train_segmentation(source, recipe(discs, learning_rate=1e30), folder, resume=False)


def write_nans(store: Path) -> None:
    """Replace the prepared images by NaN, which the check of the data would refuse."""
    for file in store.glob("*.image.npy"):
        image = np.load(file)
        image[:] = np.nan
        np.save(file, image)


def test_a_run_ends_early_when_the_score_stays(discs: Path, tmp_path: Path, store: Path) -> None:
    source, folder = load_source(open_dataset(discs), store), RunFolder(tmp_path / "run")
    chosen = recipe(discs, epochs=9, patience=2, learning_rate=1e-12)
    train_segmentation(source, chosen, folder, resume=False)
    assert len(folder.scores.read_text().splitlines()) < 9


def test_of_equal_scores_the_last_is_kept_and_the_first_one_counts_for_early_stopping() -> None:
    best = Best()
    for epoch, score in enumerate([0.4, float("nan"), 0.5, 0.5, 0.3, 0.5], start=1):
        best.consider(score, epoch)
    assert (best.score, best.epoch, best.reached) == (0.5, 6, 3)
    again = Best()
    again.load_state_dict(best.state_dict())
    assert again == best
    again.load_state_dict({"score": 0.5, "epoch": 4})
    assert again == Best(0.5, 4, 4), "an older checkpoint"


def test_a_run_reports_its_progress(discs: Path, tmp_path: Path, store: Path) -> None:
    source, folder = load_source(open_dataset(discs), store), RunFolder(tmp_path / "run")
    train_segmentation(source, recipe(discs), folder, resume=False)
    lines = [json.loads(x) for x in (folder.path / "progress.jsonl").read_text().splitlines()]
    assert lines[-1]["step"] == lines[-1]["steps"] == 8
    assert lines[-1]["score"] is not None
    assert list((folder.path / "tensorboard").glob("events.*"))
    pictures = sorted((folder.path / "pictures").glob("epoch-*.png"))
    assert len(pictures) == 4
    assert np.asarray(Image.open(pictures[0])).std() > 0


def test_a_disk_that_is_full_for_tensorboard_ends_no_training(
    discs: Path, tmp_path: Path, store: Path,
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Its thread wrote a traceback, and the next curve raised the error again."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    source, folder = load_source(open_dataset(discs), store), RunFolder(tmp_path / "run")
    monkeypatch.setattr("tensorboard.summary.writer.record_writer.RecordWriter.flush", full)
    before = threading.excepthook
    train_segmentation(source, recipe(discs), folder, resume=False)
    assert threading.excepthook is before
    assert len(folder.scores.read_text().splitlines()) == 4
    printed = "".join(capfd.readouterr())
    told = "TensorBoard: No space left on device: the training continues without it"
    assert printed.count(told) == 1 and "Traceback" not in printed


def test_a_single_nested_value_may_be_given_again_when_a_run_is_resumed(
    discs: Path, tmp_path: Path
) -> None:
    chosen, folder = recipe(discs, augmentation={"noise": 0.3}), RunFolder(tmp_path)
    folder.write(chosen)
    folder.checkpoint.touch()
    again = folder.saved(type(chosen), {"augmentation": {"noise": 0.3}})
    assert again == chosen
    with pytest.raises(InvalidParameter, match="was started with another recipe"):
        folder.saved(type(chosen), {"augmentation": {"noise": 0.4}})
