"""Run a batch: find its cases, leave out what is done, process the rest, keep the tables."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from caps_med._version import __version__
from caps_med.batch.actions import Action
from caps_med.batch.cases import Case, with_unambiguous_names
from caps_med.batch.inputs import Skipped, find_cases
from caps_med.batch.table import CaseResult, read_table, write_tables
from caps_med.batch.workers import run_here, run_in_processes
from caps_med.errors import InvalidParameter
from caps_med.inference import Model

#: The tables are written at most so often (seconds), and take at most this share of the time.
_TABLE_SECONDS, _TABLE_SHARE = 2.0, 0.05


class Listener(Protocol):
    """Who is told how far a batch is."""

    def begin(self, cases: Sequence[Case], done: Sequence[CaseResult]) -> None:
        """All cases are known; those `done` by an earlier run are left out."""

    def step(self, index: int, done: int, total: int) -> None:
        """A case is being worked on: slices or windows of it are done."""

    def finish(self, index: int, result: CaseResult) -> None:
        """A case is done, or has failed."""


class _Nobody:
    """Listens to nothing."""

    def begin(self, cases: Sequence[Case], done: Sequence[CaseResult]) -> None: ...

    def step(self, index: int, done: int, total: int) -> None: ...

    def finish(self, index: int, result: CaseResult) -> None: ...


@dataclass(frozen=True)
class BatchRun:
    """What came of a batch.

    Attributes:
        results: of all cases, in the order of their names.
        skipped: files that are no input.
    """

    results: tuple[CaseResult, ...]
    skipped: tuple[Skipped, ...]

    @property
    def failed(self) -> tuple[CaseResult, ...]:
        """The cases that failed."""
        return tuple(result for result in self.results if result.error is not None)


def run_batch(
    action: Action,
    inputs: Sequence[str | Path],
    out: str | Path,
    *,
    jobs: int = 1,
    resume: bool = False,
    overwrite: bool = False,
    listener: Listener | None = None,
) -> BatchRun:
    """Process many images into a folder, with a table of what came of each.

    Outputs are named as their inputs, in the same subfolders. ``cases.json`` and ``cases.csv`` have
    an entry for each case, and are kept up to date while the batch runs. A case that fails stops no
    other. The results and their order are the same for any number of jobs.

    Args:
        action: what to do with each.
        inputs: files, folders, patterns; see `find_cases`.
        out: the folder of the outputs; made if it is not there.
        jobs: processes, each with its share of PyTorch's threads. A script that asks for more than
            one begins with ``if __name__ == "__main__":``, as Python's multiprocessing has it.
        resume: leave out the cases that an earlier run with the same model and settings has done.
        overwrite: start anew in a folder that is not empty.
        listener: is told how far the batch is.

    Raises:
        InvalidParameter: `out` is not empty, is an input, or an argument is out of its range.
        InvalidInput: there is no image. What `Action.load` raises.
        KeyboardInterrupt: Ctrl-C; the finished cases and the tables are kept.
    """
    folder = Path(out)
    if jobs < 1:
        raise InvalidParameter(f"jobs={jobs}: must be at least 1")
    _check_folder(folder, inputs, resume or overwrite)
    model = action.load()
    found = find_cases(inputs, kind=model.reads, channels=model.inferer.channels, leave_out=folder)
    cases = with_unambiguous_names(found.cases, action.claimed)
    made_by = _made_by(action, model)
    before = read_table(folder, made_by) if resume else {}
    results = {i: one for i, case in enumerate(cases) if (one := _done(case, before, folder))}
    folder.mkdir(parents=True, exist_ok=True)
    listener = listener or _Nobody()
    listener.begin(cases, list(results.values()))
    waiting = [(i, case) for i, case in enumerate(cases) if i not in results]
    tables = _Tables(folder, made_by, found.skipped)

    def finish(index: int, result: CaseResult) -> None:
        results[index] = result
        listener.finish(index, result)
        tables.keep(results)

    try:
        if jobs == 1 or len(waiting) < 2:
            run_here(action, model, waiting, folder, listener.step, finish)
        else:
            several = min(jobs, len(waiting))
            run_in_processes(action, waiting, folder, several, listener.step, finish)
    finally:
        tables.write(results)
    return BatchRun(tuple(results[i] for i in sorted(results)), found.skipped)


def _check_folder(folder: Path, inputs: Sequence[str | Path], may_hold: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise InvalidParameter(f"{folder} is a file: name a folder for the outputs")
    if any(Path(one).is_dir() and Path(one).resolve() == folder.resolve() for one in inputs):
        raise InvalidParameter(f"{folder} is the input: name another folder for the outputs")
    if folder.is_dir() and not may_hold:
        held = [path.name for path in folder.iterdir() if not path.name.startswith(".")]
        if held:
            raise InvalidParameter(
                f"{folder} is not empty: add --resume to go on, --overwrite to start anew, or name "
                "another folder"
            )


def _made_by(action: Action, model: Model) -> dict[str, Any]:
    volume = {} if action.volume is None else {"volume": action.volume}
    return {
        "command": action.command,
        "model": model.name,
        "version": model.version,
        "weights_sha256": model.provenance.weights_sha256,
        "caps_med_version": __version__,
        "settings": {**action.settings(), **volume},
    }


def _done(case: Case, before: dict[str, CaseResult], folder: Path) -> CaseResult | None:
    """The result of an earlier run, if it is complete and the case's files are still the same."""
    result = before.get(case.name)
    if result is None or not result.is_complete(folder):
        return None
    try:
        return result if result.fingerprint == case.fingerprint() else None
    except OSError:
        return None


class _Tables:
    """Both tables, written now and then."""

    def __init__(self, folder: Path, made_by: dict[str, Any], skipped: Sequence[Skipped]) -> None:
        self._folder, self._made_by, self._skipped = folder, made_by, skipped
        self._next = 0.0

    def keep(self, results: dict[int, CaseResult]) -> None:
        """Write the results so far, if it is time."""
        if time.monotonic() >= self._next:
            self.write(results)

    def write(self, results: dict[int, CaseResult]) -> None:
        start = time.monotonic()
        ordered = [results[index] for index in sorted(results)]
        write_tables(self._folder, self._made_by, ordered, self._skipped)
        end = time.monotonic()
        self._next = end + max(_TABLE_SECONDS, (end - start) / _TABLE_SHARE)
