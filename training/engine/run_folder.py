"""A training run on disk: its recipe, the last checkpoint, the best weights, a log of scores."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

import torch

from caps_med.disk import writing
from caps_med.errors import InvalidParameter
from training.atomic import write_text
from training.data.layouts.naming import PLANNED_RECIPE
from training.engine.interrupts import interrupts_held
from training.engine.recipe import AUTO, R, Recipe, merged, validated


class Stateful(Protocol):
    """A part of a checkpoint: a network, an optimizer, a schedule."""

    def state_dict(self) -> Mapping[str, Any]:
        """Its state, as tensors and plain values."""

    def load_state_dict(self, state: Any, /) -> Any:  # noqa: ANN401 - torch's own signature
        """Restore that state."""


class RunFolder:
    """The folder of one run; its files are replaced atomically.

    Attributes:
        recipe: of the run as it came to be: found rates, restarts, less memory.
        planned: the recipe that the run, or each fold of a cross-validation, starts with.
        split: what the run has held out, and in how many folds.
        trials: of a search for the recipe, which has a folder for each of them.
        trace: the traceback of an unexpected error on a cluster.
        lock: of the process that trains here.
        progress: what programs read of how far the run is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoint, self.best = path / "checkpoint.pt", path / "best.pt"
        self.recipe, self.scores = path / "recipe.json", path / "scores.jsonl"
        self.rates, self.rates_plot = path / "learning-rate.csv", path / "learning-rate.png"
        self.data, self.planned = path / "data", path / PLANNED_RECIPE
        self.split, self.trace = path / "split.json", path / "trace.txt"
        self.trials = path / "trials.json"
        self.lock, self.progress = path / "run.lock", path / "progress.jsonl"

    def fold(self, number: int) -> RunFolder:
        """The folder of one network of a cross-validation, counted from 1."""
        return RunFolder(self.path / f"fold-{number}")

    def first(self, folds: int) -> RunFolder:
        """The folder of the only network if `folds` is 0; of several the first that has begun.

        That need not be number 1 where they are trained side by side.
        """
        each = [self.fold(number) for number in range(1, folds + 1)] or [self]
        return next((one for one in each if one.checkpoint.exists()), each[0])

    def open(self, recipe: Recipe, resume: bool) -> None:
        """Start the run, or resume it.

        Raises:
            InvalidParameter: there is a run and `resume` is false; or there is none to resume; or
                its recipe differs.
        """
        if resume:
            self._require_started()
            self._refuse(_changed(self.read_recipe(type(recipe)), recipe))
        else:
            self.refuse_started()
        self.write(recipe)

    @contextmanager
    def claimed(self, instead: str = "give the run another name") -> Iterator[None]:
        """Keep other processes from training here until the block ends, or this process.

        The lock is not that of processes which this one starts. Where the system or the file system
        has no locks, nothing is done.

        Args:
            instead: what another process, which is refused, can do at once.

        Raises:
            InvalidParameter: another process trains here.
        """
        new = not self.path.exists()
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            with self.lock.open("w", encoding="utf-8") as file:
                _lock(file, self.path, instead)
                yield
        finally:
            if new and {*self.path.glob("*")} <= {self.lock, self.progress}:
                shutil.rmtree(self.path)  # refused or stopped before it began

    def refuse_started(self) -> None:
        """Protect a run that is already here, a fold of one, or a search for the recipe.

        Raises:
            InvalidParameter: there is one.
        """
        self._refuse_search()
        if self.checkpoint.exists() or any(self.path.glob(f"fold-*/{self.checkpoint.name}")):
            raise InvalidParameter(
                f"{self.path} already holds a run: add --resume to continue it with the same "
                "options, delete it, or give the new run another name"
            )

    def clear(self) -> None:
        """Forget checkpoint, weights and scores, to start again."""
        for file in (self.checkpoint, self.best, self.scores):
            file.unlink(missing_ok=True)

    def write(self, recipe: Recipe, file: Path | None = None) -> None:
        """Replace the run's recipe, or the one in `file`."""
        write_text(file or self.recipe, recipe.model_dump_json(indent=2))

    def saved(self, kind: type[R], overrides: Mapping[str, Any], planned: Path | None = None) -> R:
        """The recipe of the run that is here.

        Args:
            kind: its class.
            overrides: values that the user asked for. A command that began with a batch of 4
                resumes a run that went on with 2, for want of memory: each value may be that of
                the recipe or that of the plan.
            planned: file of the plan, which runs of older versions lack.

        Raises:
            InvalidParameter: there is no run, its recipe is invalid or differs from `overrides`,
                or one of these is not possible.
        """
        self._require_started()
        recipe = self.read_recipe(kind)
        if overrides.get("learning_rate") == AUTO and self.rates.exists():
            overrides = {**overrides, "learning_rate": recipe.learning_rate}  # which was found
        changed = _changed_by(recipe, overrides)
        if changed and planned is not None and planned.exists():
            from_plan = _changed_by(self.read_recipe(kind, planned), overrides)
            changed = {name: change for name, change in changed.items() if name in from_plan}
        self._refuse(changed)
        return recipe

    def read_recipe(self, kind: type[R], file: Path | None = None) -> R:
        """The run's recipe, or the one in `file`.

        Fields that an older version did not have mean what they meant then.

        Raises:
            InvalidParameter: it is missing, or this version of caps_med cannot read it.
        """
        file = file or self.recipe
        try:
            values = json.loads(file.read_text(encoding="utf-8"))
            return kind.model_validate({**kind.before, **values})
        except (OSError, ValueError) as error:
            raise InvalidParameter(
                f"{file} is not a recipe of this version of caps_med: start without "
                "--resume, under another name"
            ) from error

    def _refuse_search(self) -> None:
        if self.trials.exists():
            raise InvalidParameter(
                f"{self.path} holds a search for the recipe: add --tune and --resume to continue "
                "it with the same options, delete it, or give the new run another name"
            )

    def _require_started(self) -> None:
        self._refuse_search()
        if not self.checkpoint.exists():
            raise InvalidParameter(f"{self.path} holds no checkpoint: start without --resume")

    def _refuse(self, changed: Mapping[str, str]) -> None:
        if changed:
            raise InvalidParameter(
                f"{self.path} was started with another recipe ({'; '.join(changed.values())}): "
                "resume with the same values, or give the run another name"
            )

    def keep_split(
        self, held_out: Collection[str], training: int, validation: int, folds: int = 0
    ) -> None:
        """Write down what is held out, for `require_split`.

        Args:
            held_out: names of the cases or images.
            training, validation: numbers of samples.
            folds: of a cross-validation, which divides them anew; 0 for none.
        """
        write_text(self.split, json.dumps(_split(held_out, training, validation, folds), indent=1))

    def kept_split(self) -> dict[str, Any] | None:
        """What `keep_split` has written down; None for runs of older versions, which lack it."""
        if not self.split.exists():
            return None
        found: dict[str, Any] = json.loads(self.split.read_text(encoding="utf-8"))
        return found

    def require_split(
        self, held_out: Collection[str], training: int, validation: int, folds: int = 0
    ) -> None:
        """Refuse to go on with other data or folds: what was trained on could be held out.

        Args: as of `keep_split`.

        Raises:
            InvalidParameter: they are not those that the run began with.
        """
        if (before := self.kept_split()) is None:
            return
        if (begun := before.setdefault("folds", folds)) != folds:  # older versions lack it
            raise InvalidParameter(
                f"{self.path} was started with --folds {begun}: resume with it, or give the run "
                "another name; with other folds, it would be scored on data that it was trained on"
            )
        if before != _split(held_out, training, validation, folds):
            raise InvalidParameter(
                f"{self.path}: the data have changed since the run began ({before['training']} "
                f"samples to train on and {before['validation']} held out, now {training} and "
                f"{validation}, or others are held out), so it would be scored on data that it was "
                "trained on: restore the data, or start under another name, with --start-from if "
                "there is already a model"
            )

    def save(self, file: Path, parts: Mapping[str, Stateful]) -> None:
        """Write the states of `parts` by name; after a kill the file is the old or the new one.

        Ctrl-C waits for it: inside of `torch.save` it becomes a RuntimeError about positions.
        """
        # MONAI's CheckpointSaver writes in place, and ignite's atomic DiskSaver leaves a temporary
        # file for every kill; this one overwrites its own.
        partial = file.with_suffix(".partial")
        states = {name: dict(part.state_dict()) for name, part in parts.items()}
        with interrupts_held():
            try:
                with writing(partial), partial.open("wb") as opened:
                    torch.save(states, opened)
            except OSError:
                partial.unlink(missing_ok=True)  # what was written fills the disk further
                raise
            partial.replace(file)

    def load(self, file: Path, parts: Mapping[str, Stateful]) -> None:
        """Restore the states of `parts`."""
        states = torch.load(file, map_location="cpu", weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(states[name])

    def log(self, scores: Mapping[str, float]) -> None:
        """Append one epoch to the log of scores."""
        with self.scores.open("a", encoding="utf-8") as log:
            log.write(_line(scores))

    def logged(self) -> list[dict[str, float]]:
        """The log of scores, one entry per epoch, without lines that a kill cut off."""
        found = []
        text = self.scores.read_text(encoding="utf-8") if self.scores.exists() else ""
        for line in text.splitlines():
            try:
                scores = json.loads(line)
            except ValueError:
                continue
            if isinstance(scores, dict) and "epoch" in scores:
                found.append(scores)
        return found

    @property
    def epochs(self) -> int:
        """How many epochs are in the log."""
        return len(self.logged())

    def truncate_log(self, epoch: int) -> None:
        """Drop the scores of epochs after `epoch`, which are not in the checkpoint."""
        if self.scores.exists():
            kept = [scores for scores in self.logged() if scores["epoch"] <= epoch]
            write_text(self.scores, "".join(map(_line, kept)))


def _lock(file: IO[str], folder: Path, instead: str) -> None:
    """Lock a file until it is closed.

    Raises:
        InvalidParameter: another process has locked it.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            raise InvalidParameter(
                f"{folder}: another process is training there: wait until it has finished, or "
                f"{instead}"
            ) from error


def _split(held_out: Collection[str], training: int, validation: int, folds: int) -> dict[str, Any]:
    counts = {"training": training, "validation": validation, "folds": folds}
    return {**counts, "held_out": sorted(held_out)}


def _changed_by(saved: Recipe, overrides: Mapping[str, Any]) -> dict[str, str]:
    """What a recipe would have otherwise with these values.

    Raises:
        InvalidParameter: one of them is not possible.
    """
    return _changed(saved, validated(type(saved), merged(saved.model_dump(), overrides)))


def _changed(saved: Recipe, wanted: Recipe) -> dict[str, str]:
    """Name of each value that differs -> both in words."""
    before, now = (dict(_flat(one.model_dump(mode="json"))) for one in (saved, wanted))
    return {
        name: f"{name}: {before.get(name)} -> {now.get(name)}"
        for name in {**before, **now}
        if before.get(name) != now.get(name)
    }


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Nested values under names such as ``augmentation.noise``."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _line(scores: Mapping[str, float]) -> str:
    return json.dumps(dict(scores)) + "\n"
