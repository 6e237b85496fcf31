"""How kernels are compiled, and the memory in which they work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from caps_med.native.cache import cache_on_disk

Array = NDArray[Any]

#: Bytes of a cache line, where arrays of lanes start: a vector across two of them costs twice.
LINE = 64

_INTO_CALLERS = {"forceinline": True, "no_cpython_wrapper": True}

Function = TypeVar("Function", bound=Callable[..., Any])


def native(function: Function) -> Function:
    """Compile on the first call. No sum is reordered; NaN and infinity keep their meaning."""
    compiled = _compiled(function)
    cache_on_disk(compiled)
    return cast("Function", compiled)


def inlined(function: Function) -> Function:
    """Compile a part of a kernel into its caller: a call would pass every field of every array.

    It is not cached itself, but as a part of its callers. It counts no references to its arrays,
    since its callers hold them: counting is atomic, and waits for what is being written to memory.
    So it can neither make nor return arrays.
    """
    return cast("Function", _compiled(function, _nrt=False, **_INTO_CALLERS))


def inlined_with_arrays(function: Function) -> Function:
    """The same for a part that makes arrays, or returns them."""
    return cast("Function", _compiled(function, **_INTO_CALLERS))


def _compiled(function: Function, **options: bool) -> Any:  # noqa: ANN401 - Numba has no types
    compiler = numba.njit(
        fastmath={"contract", "nsz", "arcp"},
        nogil=True,
        error_model="numpy",
        no_cfunc_wrapper=True,
        **options,
    )
    return compiler(function)


def aligned(shape: Any, like: Array) -> Array:  # noqa: ANN401 - a tuple of any length
    """An empty array of the type of `like` that starts on a cache line."""
    size, step = 1, LINE // like.itemsize
    for length in shape:
        size *= length
    room = np.empty(size + step, like.dtype)
    start = -(room.ctypes.data // like.itemsize) % step
    array: Array = room[start : start + size].reshape(shape)
    return array


#: `aligned` for kernels.
empty = inlined_with_arrays(aligned)
