"""Processes with a slow core of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchmarks.cluster.cores import own_cores

SHARE, SECONDS = 0.1, 1.0
_CONTROLLER = Path("/sys/fs/cgroup/cpu")
groups_can_be_made = pytest.mark.skipif(
    not (_CONTROLLER / "cpu.cfs_period_us").exists() or not os.access(_CONTROLLER, os.W_OK),
    reason="needs root and control groups, version 1",
)


@groups_can_be_made
def test_a_process_has_its_share_and_no_group_is_left() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as spinning:
        try:
            with own_cores([[spinning.pid]], SHARE):
                begin, used = time.monotonic(), _used(spinning.pid)
                time.sleep(SECONDS)
                used, took = _used(spinning.pid) - used, time.monotonic() - begin
                (group,) = _groups()
                assert (group / "cgroup.procs").read_text() == f"{spinning.pid}\n"
            assert _groups() == []
            assert spinning.poll() is None
        finally:
            spinning.kill()
    assert used < 2 * SHARE * took


def _groups() -> list[Path]:
    return list(_CONTROLLER.glob(f"caps-med-{os.getpid()}-*"))


def _used(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


@groups_can_be_made
def test_no_group_is_left_by_an_error_nor_by_a_process_that_has_ended() -> None:
    with (
        subprocess.Popen(["true"]) as ended,
        pytest.raises(RuntimeError, match="inside"),
        own_cores([[ended.pid], [os.getpid()]], 1),
    ):
        ended.wait()
        raise RuntimeError("inside")
    assert _groups() == []


def test_without_a_share_nothing_is_done(tmp_path: Path) -> None:
    with own_cores([[os.getpid()]], None, tmp_path):
        assert not list(tmp_path.iterdir())


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    where = tmp_path / "none"
    with (
        pytest.raises(OSError, match=f"needs root and the controller cpu .* in {where}"),
        own_cores([[os.getpid()]], 0.5, where),
    ):
        pass
    with pytest.raises(ValueError, match="above 0, got 0"), own_cores([[1]], 0, tmp_path):
        pass
