"""How the C library's allocator treats freed memory."""

from __future__ import annotations

import ctypes
import os
import sys

#: Parameters of GNU's ``mallopt`` (malloc.h).
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
#: Blocks below this come from the heap, and stay there when they are free; bytes.
LARGEST_BLOCK = 2**30
#: Free memory at the end of the heap that is kept for the next pass; bytes.
KEPT = 2**29


def keep_freed_memory() -> bool:
    """Let this process reuse freed memory instead of returning it to the system at once.

    GNU's malloc maps every block above 32 MB separately and unmaps it when it is freed, so each
    pass of a network over a large image gets its memory anew, page by page and zeroed: SegCaps on
    528 x 528 pixels and two cores takes 1.6 times as long. The price is up to `KEPT` bytes more in
    an idle process. All threads share one heap, because other heaps cannot hold such blocks.

    Returns:
        Whether this was done: only with GNU's C library, and if no ``MALLOC_`` variable is set.
    """
    if sys.platform != "linux" or any(name.startswith("MALLOC_") for name in os.environ):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:  # another C library
        return False
    wanted = ((_MMAP_THRESHOLD, LARGEST_BLOCK), (_TRIM_THRESHOLD, KEPT), (_ARENA_MAX, 1))
    return all([mallopt(parameter, value) for parameter, value in wanted])
