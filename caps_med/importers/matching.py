"""Match the tensors of an upstream file to those of the network, name by name."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from caps_med.bundles.shapes import Shape, differences, shape_text, shapes
from caps_med.errors import InvalidInput

#: Names listed per kind of difference; a file of another project has hundreds.
_LISTED = 40


@dataclass(frozen=True)
class Slot:
    """One tensor that the network needs.

    Attributes:
        key: its name in the network's state dict.
        source: its name in the upstream file.
        shape: its shape in the upstream file.
        convert: from the upstream layout to the network's; None if they are the same.
    """

    key: str
    source: str
    shape: Shape
    convert: Callable[[Tensor], Tensor] | None = None


@dataclass(frozen=True)
class Matched:
    """A state dict for the network, and the unused tensors of the file: name -> shape."""

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
        project: the expected origin of the file, for the message.
        tensors: tensors of the file.
        slots: the tensors that the network needs; all must be present.
        optional: upstream tensors that its forward pass never uses: name -> shape.

    Raises:
        InvalidInput: a tensor is missing, extra, misshapen, not floating point or not
            finite; each is listed with both shapes.
    """
    found, needed = shapes(tensors), {slot.source: slot.shape for slot in slots}
    listed = differences(found, needed, optional)
    if listed:
        check_project(project, tensors, needed)
        raise InvalidInput(_message(project, listed))
    state = {slot.key: _values(slot, tensors[slot.source]) for slot in slots}
    return Matched(state, {name: found[name] for name in found if name not in needed})


def check_project(project: str, tensors: Mapping[str, Tensor], names: Collection[str]) -> None:
    """Reject a file that contains none of these names.

    Raises:
        InvalidInput: no name is found; the message says what the file contains instead.
    """
    if not any(name in tensors for name in names):
        held = [f"{name} {shape_text(tuple(tensor.shape))}" for name, tensor in tensors.items()]
        first = ", ".join(held[:5]) + (", ..." if len(held) > 5 else "")
        raise InvalidInput(
            f"this is not a file of {project}, as it has none of its tensors; the file holds "
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
