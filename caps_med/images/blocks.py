"""Process a large array part by part: intermediate results take little memory and stay cached."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

#: Entries of a block.
ENTRIES = 2**18


def blocks(shape: Sequence[int]) -> Iterator[slice]:
    """Slices along the first axis of an array of this shape, with about `ENTRIES` entries each.

    >>> list(blocks((5, 2**17)))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, ENTRIES // max(1, int(np.prod(shape[1:], dtype=np.int64))))
    for start in range(0, shape[0], step):
        yield slice(start, min(start + step, shape[0]))
