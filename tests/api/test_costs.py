"""Estimates of memory, held against what calls really take."""

from __future__ import annotations

import subprocess
import sys

import pytest

from api.processes import import_path

MIB = 2**20


@pytest.mark.skipif(sys.platform != "linux", reason="peaks are read from /proc")
@pytest.mark.parametrize(
    "asked",
    [
        "brain-t1-tissue segment 256 256",
        "brain-t1-tissue segment 96 96 24",
        "brain-t1-tissue segment 1 1 400",
        "brain-t1-tissue uncertainty 256 256",
        "brain-t1-tissue disagree 96 96 24",
        "brain-t1-tissue features 256 256",
        "brain-t1-tissue features 1 3000",
        "brain-t1-tissue manipulate 256 256",
        "brain-t1-synthesis synthesize 256 256",
        "digits inspect 28 28",
        "brain-t1-synthesis interpolate 192 192",
    ],
)
def test_an_estimate_covers_what_a_call_takes(asked: str) -> None:
    """Not less than that, and not so much more that what fits would be refused.

    Blocks above 128 KiB are returned to the system when they are freed, so a peak is what is in
    use: how much of the freed memory lies in gaps of the heap differs from run to run (by a factor
    of three for the stack of slices).
    """
    printed = subprocess.run(  # in a process of its own: peaks count from its start
        [sys.executable, "-m", "tests.api.peaks", *asked.split()],
        check=True, capture_output=True, text=True, timeout=300,
        env={**import_path(), "OMP_NUM_THREADS": "1", "PATH": "",
             "MALLOC_MMAP_THRESHOLD_": str(128 * 1024)},
    ).stdout  # fmt: skip
    taken, held, working = map(int, printed.split())
    small = asked.startswith("digits")
    assert taken <= held + working <= 4 * taken + (32 if small else 64) * MIB
