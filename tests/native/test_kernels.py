"""What is common to kernels."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numba
import numpy as np
import pytest

from caps_med.convolutions import winograd_kernels
from caps_med.native import compile, lanes, memory, products, rows
from caps_med.routing import numba_em_kernels, numba_kernels


@pytest.mark.parametrize(
    ("kernels", "parts"),
    [
        (numba_kernels, (compile, lanes, memory, rows)),
        (numba_em_kernels, (compile,)),
        (winograd_kernels, (compile, lanes, memory, products, rows)),
    ],
)
def test_a_change_of_what_kernels_are_made_of_reaches_numbas_cache_on_disk(
    kernels: ModuleType, parts: tuple[ModuleType, ...]
) -> None:
    """The cache watches the file of the kernels alone."""
    digest = hashlib.sha256()
    for module in parts:
        digest.update(Path(str(module.__file__)).read_bytes())
    assert digest.hexdigest() == kernels.NATIVE_SHA256, f"write it into {kernels.__name__}"


@compile.inlined
def _larger_at(left: Any, right: Any, place: int) -> Any:  # noqa: ANN401 - arrays, a number
    larger = left
    if right[place] > left[place]:
        larger = right
    return larger[place]


@numba.njit  # type: ignore[untyped-decorator]
def _sum_of_larger(left: Any, right: Any) -> Any:  # noqa: ANN401 - as above
    total = 0
    for place in range(len(left)):
        total += _larger_at(left, right, place)
    return total


def test_parts_of_kernels_count_no_references_to_arrays() -> None:
    """Counting is atomic, and waits for what is being written to memory."""
    assert _sum_of_larger(np.array([1, 5]), np.array([2, 3])) == 7
    compiled: Any = _larger_at
    (code,) = compiled.inspect_asm().values()
    assert "NRT_" not in code
