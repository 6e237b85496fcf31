"""Rows of any length as lanes, and back."""

from __future__ import annotations

from caps_med.native import LANES
from caps_med.native.compile import Array, inlined
from caps_med.native.memory import load_4, load_8, load_16, store_4, store_8, store_16


@inlined
def load_rows(
    source: Array, first: int, stride: int, rows: Array, lanes: Array, index: tuple[int, ...]
) -> None:
    """``lanes[*index]`` ``[A]`` from rows of A numbers, `stride` apart, starting at `first`."""
    A = lanes.shape[-2]
    whole = A - A % LANES
    for a in range(0, whole, LANES):
        load_16(source, first + a, rows, stride, lanes, (*index, a))
    if A & 8:
        load_8(source, first + whole, rows, stride, lanes, (*index, whole))
    if A & 4:
        load_4(source, first + whole + (A & 8), rows, stride, lanes, (*index, whole + (A & 8)))
    for a in range(A - A % 4, A):
        for p in range(LANES):
            place = (*index, a, p)
            lanes[place] = source[first + stride * rows[p] + a]


@inlined
def store_rows(
    lanes: Array, index: tuple[int, ...], target: Array, first: int, stride: int, rows: Array
) -> None:
    """The reverse of `load_rows`."""
    A = lanes.shape[-2]
    whole = A - A % LANES
    for a in range(0, whole, LANES):
        store_16(lanes, (*index, a), target, first + a, rows, stride)
    if A & 8:
        store_8(lanes, (*index, whole), target, first + whole, rows, stride)
    if A & 4:
        store_4(lanes, (*index, whole + (A & 8)), target, first + whole + (A & 8), rows, stride)
    for a in range(A - A % 4, A):
        for p in range(LANES):
            place = (*index, a, p)
            target[first + stride * rows[p] + a] = lanes[place]
