"""Compare tensors by name and shape."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

Shape = tuple[int, ...]


def shapes(tensors: Mapping[str, Tensor]) -> dict[str, Shape]:
    """Name -> shape."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def differences(
    found: Mapping[str, Shape],
    needed: Mapping[str, Shape],
    optional: Mapping[str, Shape] | None = None,
) -> dict[str, list[str]]:
    """``missing``, ``extra`` and ``wrong shape`` -> one text per tensor; empty if all match.

    Args:
        found: name -> shape.
        needed: tensors that must be present.
        optional: tensors that may be present, with this shape.
    """
    known = {**needed, **(optional or {})}
    listed = {
        "missing": [
            f"{name}: needed {shape_text(shape)}, found none"
            for name, shape in needed.items()
            if name not in found
        ],
        "extra": [
            f"{name}: found {shape_text(shape)}, none is needed"
            for name, shape in found.items()
            if name not in known
        ],
        "wrong shape": [
            f"{name}: needed {shape_text(known[name])}, found {shape_text(shape)}"
            for name, shape in found.items()
            if name in known and shape != known[name]
        ],
    }
    return {kind: entries for kind, entries in listed.items() if entries}


def mismatches(
    found: Mapping[str, Tensor], needed: Mapping[str, Tensor], most: int | None = None
) -> str:
    """The differences between two state dicts, in one line; empty if there are none.

    Args:
        most: number of tensors to name; None for all.
    """
    listed = differences(shapes(found), shapes(needed))
    named = [f"{kind} {entry}" for kind, entries in listed.items() for entry in entries]
    more = len(named[most:]) if most is not None else 0
    return "; ".join([*named[:most], *([f"and {more:,} more"] if more else [])])


def shape_text(shape: Shape) -> str:
    """``[3, 4]``."""
    return f"[{', '.join(map(str, shape))}]"
