"""What is common to kernels."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import ModuleType

import pytest

from caps_med.convolutions import winograd_kernels
from caps_med.native import compile, lanes, memory, products, rows
from caps_med.routing import numba_kernels


@pytest.mark.parametrize(
    ("kernels", "parts"),
    [
        (numba_kernels, (compile, lanes, memory, rows)),
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
