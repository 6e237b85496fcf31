"""Kernels that are transformed once for many convolutions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from caps_med.convolutions.geometry import Geometry

#: Weights and their transformed kernels, by the weight's identity, geometry and first plane.
Kernels = dict[tuple[int, Geometry, int], tuple[Tensor, NDArray[Any]]]

_kept: ContextVar[Kernels | None] = ContextVar("caps_med_kernels", default=None)


@contextmanager
def keep_kernels(kernels: Kernels | None) -> Iterator[None]:
    """Transform each weight once for all blocks with the same `kernels`.

    To transform the weights of a SegCaps takes a tenth of the time of a slice. They must not change
    meanwhile.

    Args:
        kernels: empty at first; None keeps nothing.
    """
    token = _kept.set(kernels)
    try:
        yield
    finally:
        _kept.reset(token)


def kept_kernels() -> Kernels | None:
    """Those of the block that this is in, if it is in one."""
    return _kept.get()
