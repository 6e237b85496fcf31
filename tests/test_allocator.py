"""Freed memory stays with the process; seen from outside, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

#: Fills and frees a block as large as a layer's votes, twice, and prints new page faults.
_PROGRAM = """
import ctypes, resource, sys
from caps_med.allocator import keep_freed_memory
print(keep_freed_memory() if sys.argv[1] == "kept" else None)
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
size = 100 * 2**20
for _ in range(2):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    block = library.malloc(ctypes.c_size_t(size))
    ctypes.memset(block, 1, size)
    library.free(ctypes.c_void_p(block))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def run(mode: str, **variables: str) -> list[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
    answer = subprocess.run(
        [sys.executable, "-c", _PROGRAM, mode],
        capture_output=True, text=True, check=True, env=environment | variables,
    )  # fmt: skip
    return answer.stdout.split()


@pytest.mark.skipif(sys.platform != "linux", reason="GNU's malloc alone is set")
def test_a_block_that_was_freed_costs_no_page_faults_again() -> None:
    done, first, second = run("kept")
    assert done == "True"
    assert int(first) > 10  # huge pages take few faults
    assert int(second) < 0.1 * int(first)
    _, first, second = run("plain")
    assert int(second) > 0.5 * int(first)


def test_what_the_user_has_set_stays() -> None:
    assert run("kept", MALLOC_TRIM_THRESHOLD_="131072")[0] == "False"
