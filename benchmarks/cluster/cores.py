"""A slow core of its own for each of several processes, by the control groups of Linux.

    with own_cores([[pid, pid_of_its_child], [other_pid]], share=0.5):
        ...  # each of the two lists has half a core together, and no more

Where more processes work than the machine has cores, those that are measured take the others' time.
With a quota (CFS bandwidth control) each has a slow core of its own, and the rest of the machine is
left to the others. https://docs.kernel.org/scheduler/sched-bwc.html
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

#: Where the controller `cpu` of control groups, version 1, is.
_ROOT = Path("/sys/fs/cgroup/cpu")
_PERIOD_US = 100_000


@contextmanager
def own_cores(
    groups: Sequence[Iterable[int]], share: float | None, root: Path = _ROOT
) -> Iterator[None]:
    """Let each group of processes have that share of a core until the block ends.

    What they start in the block shares their core.

    Args:
        groups: ids of processes.
        share: of a core; ``None`` leaves the processes as they are.
        root: the folder of the controller.

    Raises:
        ValueError: `share` is not above 0.
        OSError: such groups cannot be made here.
    """
    if share is None:
        yield
        return
    if share <= 0:
        raise ValueError(f"the share of a core must be above 0, got {share}")
    with ExitStack() as stack:
        for number, pids in enumerate(groups):
            stack.enter_context(_core(root / f"caps-med-{os.getpid()}-{number}", pids, share))
        yield


@contextmanager
def _core(group: Path, pids: Iterable[int], share: float) -> Iterator[None]:
    try:
        group.mkdir()
        (group / "cpu.cfs_period_us").write_text(f"{_PERIOD_US}")
        (group / "cpu.cfs_quota_us").write_text(f"{round(share * _PERIOD_US)}")
    except OSError as error:
        with suppress(OSError):
            group.rmdir()
        raise OSError(
            "a share of a core needs root and the controller cpu of control groups, version 1, "
            f"in {group.parent}: {error}"
        ) from None
    try:
        _move(pids, group)
        yield
    finally:
        while left := (group / "cgroup.procs").read_text().split():
            _move(map(int, left), group.parent)
        group.rmdir()


def _move(pids: Iterable[int], group: Path) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            (group / "cgroup.procs").write_text(f"{pid}")
