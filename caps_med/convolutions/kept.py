"""Transform kernels once for many convolutions."""

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

    Transforming the weights of a SegCaps takes a tenth of the time of a slice. The weights must not
    change meanwhile.

    Args:
        kernels: empty at first; None keeps nothing.
    """
    token = _kept.set(kernels)
    try:
        yield
    finally:
        _kept.reset(token)


def kept_kernels() -> Kernels | None:
    """The kernels of the surrounding block, if there is one."""
    return _kept.get()
