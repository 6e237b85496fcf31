"""Run a batch: find its cases, skip finished ones, process the rest, update the tables."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from caps_med._version import __version__
from caps_med.arguments import as_list
from caps_med.batch.actions import Action
from caps_med.batch.cases import Case, split_suffix, with_unambiguous_names
from caps_med.batch.cluster import Cluster, run_on_cluster
from caps_med.batch.inputs import Skipped, find_cases
from caps_med.batch.places import absolute, place_of, sizes_in, store_errors
from caps_med.batch.records import Records
from caps_med.batch.table import CaseResult, read_table, write_tables
from caps_med.batch.workers import run_here, run_in_processes
from caps_med.errors import InvalidParameter
from caps_med.inference import Model

if TYPE_CHECKING:
    from caps_med.batch.places import Place

#: The tables are written at most so often (seconds), and take at most this share of the time.
_TABLE_SECONDS, _TABLE_SHARE = 2.0, 0.05


class Listener(Protocol):
    """Receives the progress of a batch."""

    def begin(self, cases: Sequence[Case], done: Sequence[CaseResult]) -> None:
        """All cases are known; those `done` by an earlier run are skipped."""

    def step(self, index: int, done: int, total: int) -> None:
        """A case is in progress: some of its slices or windows are done."""

    def finish(self, index: int, result: CaseResult) -> None:
        """A case is done, or has failed."""


class _Nobody:
    """Listens to nothing."""

    def begin(self, cases: Sequence[Case], done: Sequence[CaseResult]) -> None: ...

    def step(self, index: int, done: int, total: int) -> None: ...

    def finish(self, index: int, result: CaseResult) -> None: ...


@dataclass(frozen=True)
class BatchRun:
    """The outcome of a batch.

    Attributes:
        results: of all cases, in the order of their names.
        skipped: files that are not inputs.
    """

    results: tuple[CaseResult, ...]
    skipped: tuple[Skipped, ...]

    @property
    def failed(self) -> tuple[CaseResult, ...]:
        """The cases that failed."""
        return tuple(result for result in self.results if result.error is not None)


def run_batch(
    action: Action,
    inputs: str | Path | Sequence[str | Place],
    out: str | Place,
    *,
    jobs: int | None = None,
    cluster: Cluster | None = None,
    resume: bool = False,
    overwrite: bool = False,
    listener: Listener | None = None,
) -> BatchRun:
    """Process many images into a folder, with a table of the results.

    Outputs are named like their inputs, in the same subfolders. ``cases.json`` and ``cases.csv``
    have an entry for each case, and are kept up to date while the batch runs. A failing case does
    not stop the others. The results and their order are the same for any number of jobs.

    Args:
        action: what to do with each case.
        inputs: files, folders, patterns, ``s3://bucket/prefix``; see `find_cases`.
        out: the folder of the outputs, or ``s3://bucket/prefix``; created if it does not exist.
        jobs: processes, each with its share of PyTorch's threads; 1 by default. A script that uses
            more than one must begin with ``if __name__ == "__main__":``, as Python's
            multiprocessing requires. With a cluster: the maximum number of workers, by default as
            many as it has cores or GPUs.
        cluster: run on this Ray cluster, whose nodes must see inputs, outputs and the model
            repository under the same paths.
        resume: skip the cases that an earlier run with the same model and settings has finished.
        overwrite: start over in a folder that is not empty.
        listener: receives the progress of the batch.

    Raises:
        InvalidParameter: `out` is not empty, is an input or has the name of an image, or an
            argument is out of its range.
        InvalidInput: there is no image. Also the errors of `Action.load`.
        MissingExtra: a cluster or store needs packages that are not installed.
        KeyboardInterrupt: Ctrl-C; the finished cases and the tables are kept.
    """
    if jobs is not None and jobs < 1:
        raise InvalidParameter(f"jobs={jobs}: must be at least 1")
    inputs = as_list(inputs)
    with store_errors():
        return _run(action, inputs, place_of(out), jobs, cluster, resume, overwrite, listener)


def _run(
    action: Action,
    inputs: Sequence[str | Place],
    folder: Place,
    jobs: int | None,
    cluster: Cluster | None,
    resume: bool,
    overwrite: bool,
    listener: Listener | None,
) -> BatchRun:
    _check_folder(folder, inputs, resume or overwrite)
    model = action.load()
    found = find_cases(inputs, kind=model.reads, channels=model.inferer.channels, leave_out=folder)
    cases = with_unambiguous_names(found.cases, action.claimed)
    _check_outputs(folder, cases, action)
    records = Records(folder, made_by(action, model))
    before = {**read_table(folder, records.made_by), **records.read()} if resume else {}
    if not resume:
        records.clear()
    size_of = sizes_in(folder)
    results = {i: one for i, case in enumerate(cases) if (one := _done(case, before, size_of))}
    folder.mkdir(parents=True, exist_ok=True)
    listener = listener or _Nobody()
    listener.begin(cases, list(results.values()))
    waiting = [(i, case) for i, case in enumerate(cases) if i not in results]
    tables = _Tables(records, found.skipped)

    def finish(index: int, result: CaseResult) -> None:
        results[index] = result
        listener.finish(index, result)
        tables.keep(results, result.case)

    try:
        if cluster is not None:
            shared = replace(records, out=absolute(folder))
            run_on_cluster(_from_any_folder(action), waiting, shared, cluster, jobs, finish)
        elif jobs is None or jobs == 1 or len(waiting) < 2:
            run_here(action, model, waiting, records, listener.step, finish)
        else:
            several = min(jobs, len(waiting))
            run_in_processes(action, waiting, records, several, listener.step, finish)
    finally:
        for index, result in _untold(waiting, results, records):
            finish(index, result)
        tables.write(results)
        records.tidy()
    records.clear()
    return BatchRun(tuple(results[i] for i in sorted(results)), found.skipped)


def _from_any_folder(action: Action) -> Action:
    """The action for cluster processes, which run in the folder where Ray was started."""
    return action if action.models is None else replace(action, models=action.models.absolute())


def _check_folder(folder: Place, inputs: Sequence[str | Place], may_hold: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise InvalidParameter(f"{folder} is a file: name a folder for the outputs")
    if not folder.exists() and split_suffix(folder.name)[1]:
        raise InvalidParameter(
            f"{folder} has the name of a file: name a folder for the outputs, without suffix"
        )
    given = [place_of(one) for one in inputs]
    if any(one.is_dir() and one.resolve() == folder.resolve() for one in given):
        raise InvalidParameter(f"{folder} is the input folder: name another folder for the outputs")
    if folder.is_dir() and not may_hold:
        held = [path.name for path in folder.iterdir() if not path.name.startswith(".")]
        if held:
            raise InvalidParameter(
                f"{folder} is not empty: add --resume to continue, --overwrite to start over, or "
                "name another folder"
            )


def _check_outputs(folder: Place, cases: Sequence[Case], action: Action) -> None:
    """Check that no output has the same place and name as an input, whatever their suffixes.

    Raises:
        InvalidParameter: an output has.
    """
    real = functools.cache(lambda parent: parent.resolve())
    outputs = {folder.resolve() / name for case in cases for name in action.claimed(case.name)}
    for file in (file for case in cases for file in case.files):
        for place in (file, *([file.resolve()] if file.is_symlink() else [])):
            if real(place.parent) / split_suffix(place.name)[0] in outputs:
                raise InvalidParameter(
                    f"{folder}: an output would have the place and name of the input {file}: name "
                    "another folder for the outputs"
                )


def made_by(action: Action, model: Model) -> dict[str, Any]:
    """What determines the outputs: command, model, weights and settings."""
    volume = {} if action.volume is None else {"volume": action.volume}
    return {
        "command": action.command,
        "model": model.name,
        "version": model.version,
        "weights_sha256": model.provenance.weights_sha256,
        "caps_med_version": __version__,
        "settings": {**action.settings(), **volume},
    }


def _done(
    case: Case, before: dict[str, CaseResult], size_of: Callable[[str], int | None]
) -> CaseResult | None:
    """The result of an earlier run, if it is complete and the case's files are still the same."""
    result = before.get(case.name)
    if result is None or not result.is_complete(size_of):
        return None
    try:
        return result if result.fingerprint == case.fingerprint() else None
    except OSError:
        return None


def _untold(
    cases: Sequence[tuple[int, Case]], results: Mapping[int, CaseResult], records: Records
) -> list[tuple[int, CaseResult]]:
    """Cases that are finished and written, but not reported because of Ctrl-C."""
    left = [(index, case) for index, case in cases if index not in results]
    if not left:
        return []
    recorded, size_of = records.read(), sizes_in(records.out)
    found = ((index, _done(case, recorded, size_of)) for index, case in left)
    return [(index, result) for index, result in found if result is not None]


class _Tables:
    """Both tables, written now and then; cases in them need no separate record any more."""

    def __init__(self, records: Records, skipped: Sequence[Skipped]) -> None:
        self._records, self._skipped = records, skipped
        self._next = 0.0
        self._new: list[str] = []

    def keep(self, results: dict[int, CaseResult], new: str) -> None:
        """Write the results so far if due; `new` is the case that was added."""
        self._new.append(new)
        if time.monotonic() >= self._next:
            self.write(results)

    def write(self, results: dict[int, CaseResult]) -> None:
        start = time.monotonic()
        ordered = [results[index] for index in sorted(results)]
        with self._records.drafting("the tables"):
            write_tables(self._records.out, self._records.made_by, ordered, self._skipped)
        self._records.drop(self._new)
        self._new.clear()
        end = time.monotonic()
        self._next = end + max(_TABLE_SECONDS, (end - start) / _TABLE_SHARE)
