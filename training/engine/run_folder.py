"""A training run on disk: its recipe, the last checkpoint, the best weights, a log of scores."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field

from caps_med.errors import InvalidParameter
from training.atomic import write_text
from training.data.prepare import Preparation

#: Edge of a crop; every network here halves it three times.
Crop = Annotated[int, Field(ge=8, multiple_of=8)]


class Recipe(BaseModel):
    """What a run follows from, whole: the same recipe gives the same weights on one machine.

    Attributes:
        data: a registered data set or a folder.
        epochs, steps: epochs, and optimizer steps in each.
        batch_size, crop: training crops a step, and their edge in pixels (a multiple of 8).
        learning_rate: its peak; it warms up over the first 5 % and falls as a cosine.
        atoms: atoms of the first capsules.
        patience: epochs without a better score after which the run ends; 0 never ends it early.
        keep: ``best`` keeps the weights of the epoch with the best score, ``last`` those of the
            last epoch; with `patience`, always the best.
        preparation: how a folder's images become samples; a registered data set decides itself.
        start_from: a model whose weights the network starts with; None starts afresh.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: str
    epochs: int
    steps: int
    batch_size: int
    crop: Crop
    learning_rate: float
    seed: int
    atoms: int = 16
    start_from: str | None = None
    patience: int = 0
    keep: Literal["best", "last"] = "best"
    preparation: Preparation | None = None


class Stateful(Protocol):
    """What a checkpoint holds: networks, optimizers, schedules, the engine."""

    def state_dict(self) -> Mapping[str, Any]:
        """Everything needed to go on."""

    def load_state_dict(self, state: Any, /) -> Any:  # noqa: ANN401 - torch's own signature
        """Go on from there."""


@dataclass
class Best:
    """The best validation score so far; part of the checkpoint, so that resuming keeps it."""

    score: float = float("-inf")
    epoch: int = 0

    def state_dict(self) -> Mapping[str, Any]:
        """Both numbers."""
        return {"score": self.score, "epoch": self.epoch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take both numbers over."""
        self.score, self.epoch = state["score"], state["epoch"]


R = TypeVar("R", bound=Recipe)


class RunFolder:
    """The folder of one run; every file in it is replaced whole or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoint, self.best = path / "checkpoint.pt", path / "best.pt"
        self.recipe, self.scores = path / "recipe.json", path / "scores.jsonl"
        self.data = path / "data"

    def fold(self, number: int) -> RunFolder:
        """Of one network of a cross-validation, from 1."""
        return RunFolder(self.path / f"fold-{number}")

    def first(self, folds: int) -> RunFolder:
        """Of the first network of `folds`, or of the one that there is where they are 0."""
        return self.fold(1) if folds else self

    def open(self, recipe: Recipe, resume: bool) -> None:
        """Start the run, or go on with it.

        Raises:
            InvalidParameter: a run is there and `resume` is not given; or there is none to resume;
                or it followed another recipe.
        """
        if resume:
            self._require_started()
            self._check(self.followed(type(recipe)), recipe)
        else:
            self.refuse_started()
        self.write(recipe)

    def refuse_started(self) -> None:
        """Leave a run that is here alone.

        Raises:
            InvalidParameter: one is.
        """
        if self.checkpoint.exists():
            raise InvalidParameter(
                f"{self.path} holds a run already: add --resume to go on with it, or delete it"
            )

    def write(self, recipe: Recipe) -> None:
        """Replace the run's recipe."""
        write_text(self.recipe, recipe.model_dump_json(indent=2))

    def saved(self, kind: type[R], given: Mapping[str, Any]) -> R:
        """The recipe of the run that is here.

        Args:
            kind: which recipe.
            given: values that the user asked for.

        Raises:
            InvalidParameter: there is no run, or it follows other values than those given, or a
                recipe that is none here.
        """
        self._require_started()
        recipe = self.followed(kind)
        self._check(recipe, kind.model_validate({**recipe.model_dump(), **given}))
        return recipe

    def forget_after(self, epoch: int) -> None:
        """Drop the scores of epochs that were logged but not kept, and a line that a kill tore."""
        if self.scores.exists():
            kept = [scores for scores in self.logged() if scores["epoch"] <= epoch]
            write_text(self.scores, "".join(map(_line, kept)))

    def _require_started(self) -> None:
        if not self.checkpoint.exists():
            raise InvalidParameter(f"{self.path} holds no checkpoint: start without --resume")

    def followed(self, kind: type[R]) -> R:
        """The recipe on disk; what it does not say, as before that could be said, is the default.

        Raises:
            InvalidParameter: it is of another version of caps_med, or of no version.
        """
        try:
            return kind.model_validate_json(self.recipe.read_text())
        except (OSError, ValueError) as error:
            raise InvalidParameter(
                f"{self.recipe} is no recipe of this version of caps_med: start without --resume, "
                "under another name"
            ) from error

    def _check(self, followed: Recipe, wanted: Recipe) -> None:
        before, now = followed.model_dump(mode="json"), wanted.model_dump(mode="json")
        changed = [f"{k}: {before[k]} -> {v}" for k, v in now.items() if before[k] != v]
        if changed:
            raise InvalidParameter(
                f"{self.path} followed another recipe ({'; '.join(changed)}): resume with the same "
                "values, or give the run another name"
            )

    def save(self, file: Path, parts: Mapping[str, Stateful]) -> None:
        """Write the parts' states; a kill at any moment leaves the old file or the new one."""
        partial = file.with_suffix(".partial")
        torch.save({name: dict(part.state_dict()) for name, part in parts.items()}, partial)
        partial.replace(file)

    def load(self, file: Path, parts: Mapping[str, Stateful]) -> None:
        """Put saved states back into the parts."""
        states = torch.load(file, map_location="cpu", weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(states[name])

    def log(self, scores: Mapping[str, float]) -> None:
        """Append one line to the log of scores."""
        with self.scores.open("a") as log:
            log.write(_line(scores))

    def logged(self) -> list[dict[str, float]]:
        """The log of scores, epoch by epoch, but for what a kill tore."""
        found = []
        for line in self.scores.read_text().splitlines():
            try:
                scores = json.loads(line)
            except ValueError:
                continue
            if isinstance(scores, dict) and "epoch" in scores:
                found.append(scores)
        return found


def _line(scores: Mapping[str, float]) -> str:
    return json.dumps(dict(scores)) + "\n"
