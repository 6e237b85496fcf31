"""Runs cases one after the other, each bounded in time, and lists what came of them."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks.siege.case import Breach, Case, Skip
from benchmarks.siege.memory import descendants
from benchmarks.siege.service import MIB, Siege

Verdict = Literal["pass", "FAIL", "skip"]


@dataclass(frozen=True)
class Result:
    """What came of a case.

    Attributes:
        overrun: seconds that a worker was held past its deadline; negative before it.
        peak: bytes of memory of the service and its processes.
    """

    case: Case
    outcome: str
    verdict: Verdict
    overrun: float
    peak: int

    @property
    def row(self) -> tuple[str, ...]:
        """Its row in the table."""
        overrun, peak = f"{max(0.0, self.overrun):.1f} s", f"{self.peak // MIB} MiB"
        return self.case.name, self.case.tried, self.outcome, overrun, peak, self.verdict


HEADINGS = ("case", "tried", "outcome", "overrun", "memory peak", "verdict")


def run_all(cases: Iterable[Case]) -> Iterator[Result]:
    """Run cases in order, each in a folder of its own."""
    for case in cases:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            yield run(case, Siege(Path(folder)))


def run(case: Case, siege: Siege) -> Result:
    """Run one case; whatever it raises becomes part of the result."""
    late = threading.Event()
    verdict: Verdict = "FAIL"
    try:
        with _killed_after(case.seconds, siege, late):
            outcome = case.attack(siege)
        verdict = "pass"
    except Breach as breach:
        outcome = str(breach)
    except Skip as skip:
        outcome, verdict = str(skip), "skip"
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        outcome = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
    if late.is_set():
        outcome, verdict = f"not over after {case.seconds:g} s; {outcome}", "FAIL"
    return Result(case, outcome, verdict, siege.overrun, siege.peak)


@contextmanager
def _killed_after(seconds: float, siege: Siege, late: threading.Event) -> Iterator[None]:
    """Kill the services of a case that takes too long, so that its requests end."""

    def kill() -> None:
        late.set()
        for server in siege.processes:
            for pid in (*descendants(server), server):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    timer = threading.Timer(seconds, kill)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def table(results: Sequence[Result]) -> str:
    """The results as an aligned text table."""
    rows = [HEADINGS, *(result.row for result in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join(lines)
