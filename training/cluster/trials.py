"""The trials of a search over recipes, as they are kept in the run's folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from caps_med.errors import InvalidParameter
from training.atomic import write_text
from training.engine.run_folder import RunFolder

#: ``stopped`` early, as others were better after as many epochs; ``trained`` to the end.
State = Literal["waiting", "stopped", "trained", "failed"]


@dataclass(frozen=True)
class Trial:
    """One trial.

    Attributes:
        number: from 1; the first has the recipe as planned.
        values: of the recipe, those that are searched.
        score: the best on the validation cases; None before the first epoch.
        error: why it failed.
    """

    number: int
    values: Mapping[str, Any]
    state: State = "waiting"
    epochs: int = 0
    score: float | None = None
    error: str = ""

    @property
    def row(self) -> dict[str, Any]:
        """Of the table of trials."""
        score = None if self.score is None else round(self.score, 4)
        return {
            "trial": self.number, **self.values, "epochs": self.epochs, "score": score,
            "state": self.state, "error": self.error,
        }  # fmt: skip


class TrialsFolder:
    """The folder of a run that is a search.

    Attributes:
        record: the trials with their outcomes.
        engine: where Ray Tune keeps its own state.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.record, self.engine = path, RunFolder(path).trials, path / "ray-tune"

    def run(self, number: int) -> RunFolder:
        """The folder of one trial."""
        return RunFolder(self.path / f"trial-{number:02}")

    def refuse_started(self) -> None:
        """Protect a search that is already here.

        Raises:
            InvalidParameter: there is one.
        """
        if self.record.exists():
            raise InvalidParameter(
                f"{self.path} already holds a search: add --resume to continue it, or delete it"
            )

    def start(self, drawn: Sequence[Mapping[str, Any]], resume: bool) -> None:
        """Write down what is going to be tried, or check that it is what was begun.

        Raises:
            InvalidParameter: there is a search and `resume` is false; or none, or another one, to
                resume.
        """
        if not resume:
            self.refuse_started()
            self.write([Trial(number, values) for number, values in enumerate(drawn, start=1)])
            return
        begun = [trial.values for trial in self.read()]
        if begun != list(drawn):
            raise InvalidParameter(
                f"{self.path} was started with another search ({len(begun)} trials): resume with "
                "the same --tune, --seed, data and options, or give the run another name"
            )

    def read(self) -> list[Trial]:
        """The trials.

        Raises:
            InvalidParameter: there are none.
        """
        try:
            text = self.record.read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise InvalidParameter(
                f"{self.path} holds no search: start without --resume"
            ) from error
        return [Trial(**values) for values in json.loads(text)]

    def write(self, trials: Sequence[Trial]) -> None:
        """Replace the record."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_text(self.record, json.dumps([vars(trial) for trial in trials], indent=1))
