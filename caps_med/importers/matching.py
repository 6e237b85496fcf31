"""Tensors of an upstream file against the network that is to hold them, name by name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from caps_med.errors import InvalidInput

#: Names listed per kind of difference; a file of another project has hundreds.
_LISTED = 40

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Slot:
    """One tensor that the network needs.

    Attributes:
        key: its name in the network's state dict.
        source: its name in the upstream file.
        shape: its shape in the upstream file.
        convert: from the upstream layout to the network's; None where they are the same.
    """

    key: str
    source: str
    shape: Shape
    convert: Callable[[Tensor], Tensor] | None = None


@dataclass(frozen=True)
class Matched:
    """A state dict for the network, and what of the file it did not use: name -> shape."""

    state: dict[str, Tensor]
    unused: dict[str, Shape]


def match(
    project: str,
    tensors: Mapping[str, Tensor],
    slots: Sequence[Slot],
    optional: Mapping[str, Shape],
) -> Matched:
    """The network's state dict from an upstream file's tensors.

    Args:
        project: whose file this should be, for the message.
        tensors: the file's.
        slots: what the network needs; every one must be there.
        optional: upstream tensors that its forward pass never uses: name -> shape.

    Raises:
        InvalidInput: a tensor is missing, extra, of another shape, not of floating point or not
            finite; every one is listed with both shapes.
    """
    known = {slot.source: slot.shape for slot in slots} | dict(optional)
    needed = {slot.source for slot in slots}
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    missing = [
        f"{name}: needed {_text(shape)}, the file has none"
        for name, shape in known.items()
        if name in needed and name not in found
    ]
    extra = [
        f"{name}: the file has {_text(shape)}, none is needed"
        for name, shape in found.items()
        if name not in known
    ]
    misshapen = [
        f"{name}: needed {_text(known[name])}, the file has {_text(shape)}"
        for name, shape in found.items()
        if name in known and shape != known[name]
    ]
    if missing or extra or misshapen:
        check_project(project, tensors, needed)
        listed = {"missing": missing, "extra": extra, "wrong shape": misshapen}
        raise InvalidInput(_message(project, listed))
    state = {slot.key: _values(slot, tensors[slot.source]) for slot in slots}
    return Matched(state, {name: found[name] for name in found if name not in needed})


def check_project(project: str, tensors: Mapping[str, Tensor], names: Collection[str]) -> None:
    """Refuse a file that holds none of these names.

    Raises:
        InvalidInput: that is so; the message says what the file holds instead.
    """
    if not any(name in tensors for name in names):
        held = [f"{name} {_text(tuple(tensor.shape))}" for name, tensor in tensors.items()]
        first = ", ".join(held[:5]) + (", ..." if len(held) > 5 else "")
        raise InvalidInput(
            f"this is not a file of {project}: none of its tensors is in it; the file holds "
            f"{len(held)}: {first or 'nothing'}"
        )


def _values(slot: Slot, tensor: Tensor) -> Tensor:
    if not tensor.is_floating_point():
        raise InvalidInput(f"tensor {slot.source} is of {tensor.dtype}: floating point is needed")
    values = tensor.detach() if slot.convert is None else slot.convert(tensor.detach())
    values = values.to(torch.float32, copy=True).contiguous()
    if not torch.isfinite(values).all():
        raise InvalidInput(f"tensor {slot.source} holds values that are not finite")
    return values


def _message(project: str, differences: Mapping[str, list[str]]) -> str:
    lines = [f"these are not the tensors of {project}:"]
    for kind, entries in differences.items():
        lines += [f"  {kind}: {entry}" for entry in entries[:_LISTED]]
        if len(entries) > _LISTED:
            lines.append(f"  {kind}: and {len(entries) - _LISTED} more")
    return "\n".join(lines)


def _text(shape: Shape) -> str:
    return f"[{', '.join(map(str, shape))}]"
