"""Process cases in one or several processes, with the same results."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import connection, resource_tracker
from pathlib import Path
from typing import Any, TypeAlias

import torch

from caps_med.batch.actions import Action
from caps_med.batch.cases import Case
from caps_med.batch.places import is_store_error, written_to
from caps_med.batch.records import Records
from caps_med.batch.table import CaseResult
from caps_med.errors import OUT_OF_MEMORY, CapsMedError, is_out_of_memory
from caps_med.inference import Model
from caps_med.inference.passes import Cancelled, cancelled_unless
from caps_med.inference.progress import reporting_to

#: Called with the index of a case and its result.
CaseListener: TypeAlias = Callable[[int, CaseResult], None]
#: Called with the index of a case that is being worked on, its steps that are done and all.
StepListener: TypeAlias = Callable[[int, int, int], None]
#: Seconds between two looks at what the processes have done.
_POLL = 0.2

Numbered: TypeAlias = tuple[int, Case]
#: The error of a case whose process ended each time.
ENDED = "the process ended: out of memory?"


def run_case(action: Action, model: Model, case: Case, records: Records) -> CaseResult:
    """Process a case: write its outputs and record; any failure becomes the error of its result."""
    start = time.perf_counter()
    fingerprint = ""
    try:
        fingerprint = case.fingerprint()
        with (
            case.here() as local,
            written_to(records.out) as (folder, place),
            records.drafting(case.name),
        ):
            result = action.run(model, local, folder)
            place(result.outputs)
    except Cancelled:
        raise
    except CapsMedError as error:
        result = CaseResult(case.name, case.input, error=f"{error.code}: {error}")
    except OSError as error:
        result = CaseResult(case.name, case.input, error=f"file: {error.strerror or error}")
    except Exception as error:  # one bad case stops no other
        unexpected = f"{error} ({_where(error)})"
        told = "the store does not answer" if is_store_error(error) else unexpected
        named = f"{type(error).__name__}: {told}"
        if is_out_of_memory(error):
            named = f"out_of_memory: {OUT_OF_MEMORY}"
        result = CaseResult(case.name, case.input, error=named)
    seconds = round(time.perf_counter() - start, 3)
    result = replace(result, fingerprint=fingerprint, seconds=seconds)
    try:
        records.add(result)
    except Exception as error:  # the tables have it, if they can be written
        if not isinstance(error, OSError) and not is_store_error(error):
            raise
    return result


def _where(error: Exception) -> str:
    """The place in the code that raised the error, for a report."""
    path, line, _, _ = traceback.extract_tb(error.__traceback__)[-1]
    return f"{'/'.join(Path(path).parts[-3:])}, line {line}"


def run_here(
    action: Action,
    model: Model,
    cases: Sequence[Numbered],
    records: Records,
    step: StepListener,
    finish: CaseListener,
) -> None:
    """Process the cases one after the other in this process."""
    for index, case in cases:
        with reporting_to(functools.partial(step, index)):
            result = run_case(action, model, case, records)
        finish(index, result)


def run_in_processes(
    action: Action,
    cases: Sequence[Numbered],
    records: Records,
    jobs: int,
    step: StepListener,
    finish: CaseListener,
) -> None:
    """Process the cases in several processes that share the threads of this one.

    A case whose process dies, for example from lack of memory, is tried once more by itself and
    then fails. On Ctrl-C the processes stop between two passes of the network.
    """
    pools = _Pools(
        action, records, _Shared.make(1 + max(index for index, _ in cases)), step, finish
    )
    waiting = list(reversed(cases))
    lost: list[Numbered] = []
    while waiting:
        lost += pools.run(waiting, jobs)
    for one in lost:
        for index, case in pools.run([one], 1):
            finish(index, CaseResult(case.name, case.input, error=ENDED))


@dataclass(frozen=True)
class _Pools:
    """Pools of processes, one after the other: if a process dies, so does its pool."""

    action: Action
    records: Records
    shared: _Shared
    step: StepListener
    finish: CaseListener

    def run(self, waiting: list[Numbered], jobs: int) -> list[Numbered]:
        """Take cases from the end of `waiting`, until none is left or a process has died.

        Returns the cases that were being processed at that moment.
        """
        setup = (self.action, self.records, max(1, torch.get_num_threads() // jobs), self.shared)
        pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _start, setup)
        running: dict[Future[CaseResult | None], Numbered] = {}
        try:
            while running or waiting:
                while waiting and len(running) < jobs:
                    with _ctrl_c_later():  # not taken from `waiting` by a pool that has broken
                        running[pool.submit(_work, *waiting[-1])] = waiting[-1]
                        waiting.pop()
                done, _ = wait(running, _POLL, FIRST_COMPLETED)
                for index, _case in running.values():
                    self.step(index, *self.shared.steps_of(index))
                for future in done:
                    future.result()
                    self._settle(future, running.pop(future))
        except BrokenProcessPool:
            pass
        finally:
            self.shared.stop()
            pool.shutdown(cancel_futures=True)
            lost = [one for future, one in running.items() if not self._settle(future, one)]
            self.shared.go_on()
        return lost

    def _settle(self, future: Future[CaseResult | None], numbered: Numbered) -> bool:
        """Report a case's result, if it has one."""
        if future.cancelled() or future.exception() is not None:
            return False
        result = future.result()
        if result is not None:
            self.finish(numbered[0], result)
        return result is not None


@contextmanager
def _ctrl_c_later() -> Iterator[None]:
    """Keep Ctrl-C from processes that are started in this block until they are set up.

    They inherit the blocked signal; a Ctrl-C pressed meanwhile reaches this process at the end.
    Windows has no call for this.
    """
    if os.name == "nt":
        yield
        return
    resource_tracker.ensure_running()  # its start would lift the block
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass(frozen=True)
class _Shared:
    """Memory that all processes share, without locks that a dying process could keep.

    Attributes:
        steps: completed and total steps of each case.
        stopped: whether the work has been cancelled.
    """

    steps: Any
    stopped: Any

    @classmethod
    def make(cls, cases: int) -> _Shared:
        context = multiprocessing.get_context("spawn")
        return cls(context.RawArray("q", 2 * cases), context.RawValue("b", 0))

    def report(self, index: int, done: int, total: int) -> None:
        self.steps[2 * index], self.steps[2 * index + 1] = done, total

    def steps_of(self, index: int) -> tuple[int, int]:
        return self.steps[2 * index], self.steps[2 * index + 1]

    def stop(self) -> None:
        self.stopped.value = 1

    def go_on(self) -> None:
        self.stopped.value = 0

    def is_wanted(self) -> bool:
        return not self.stopped.value


_here: tuple[Action, Records, _Shared] | None = None


def _start(action: Action, records: Records, threads: int, shared: _Shared) -> None:
    """Set up a process; the parent handles Ctrl-C, and this process ends with it."""
    global _here
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what was pressed since it began is dropped
    if os.name != "nt":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    _here = action, records, shared


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


@functools.cache
def _model(action: Action) -> Model:
    return action.load()


def _work(index: int, case: Case) -> CaseResult | None:
    """The result of a case in a worker process; None if cancelled."""
    if _here is None:
        raise RuntimeError("the process was not set up")
    action, records, shared = _here
    with (
        cancelled_unless(shared.is_wanted),
        reporting_to(functools.partial(shared.report, index)),
    ):
        try:
            return run_case(action, _model(action), case, records)
        except Cancelled:
            return None
