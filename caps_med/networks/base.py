"""What every capsule network says of itself."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from caps_med.errors import InvalidParameter
from caps_med.layers import ConvCapsule, DeconvCapsule

#: Kept under the root of a capsule's length, so that its gradient at zero is finite.
_EPSILON = 1e-12


@dataclass(frozen=True)
class LayerInfo:
    """One capsule layer: its name, capsule types J, atoms A, and pixels of input per position."""

    name: str
    types: int
    atoms: int
    stride: int


class CapsuleNetwork(nn.Module):
    """Base of the networks here.

    Attributes:
        spatial_dims: 2 or 3.
        divisor: each spatial axis of the input must be a multiple of it.
        layers: the capsule layers in order of computation.
    """

    spatial_dims: int
    divisor: int = 1
    layers: tuple[LayerInfo, ...] = ()

    def _layer_infos(self, first_atoms: int) -> tuple[LayerInfo, ...]:
        """The capsule layers among the children, after `conv1` seen as one capsule type."""
        infos, stride = [LayerInfo("conv1", 1, first_atoms, 1)], 1
        for name, layer in self.named_children():
            if isinstance(layer, ConvCapsule):
                stride *= layer.stride
            elif isinstance(layer, DeconvCapsule):
                stride //= layer.stride
            else:
                continue
            infos.append(LayerInfo(name, layer.out_types, layer.out_atoms, stride))
        return tuple(infos)


def capsule_lengths(capsules: Tensor) -> Tensor:
    """Euclidean length of each capsule: ``[B, J, A, *S]`` -> ``[B, J, *S]``."""
    return torch.sqrt(capsules.square().sum(2) + _EPSILON)


def check_input(
    argument: str, maps: Tensor, channels: int, spatial_dims: int, divisor: int
) -> None:
    """Refuse maps that a network cannot take.

    Raises:
        InvalidParameter: another rank or channel count, or a size that is no multiple of `divisor`;
            the message holds the size to pad to.
    """
    shape = tuple(maps.shape)
    if maps.ndim != spatial_dims + 2 or shape[1] != channels:
        axes = ", ".join(["B", str(channels), *"DHW"[-spatial_dims:]])
        raise InvalidParameter(f"{argument} has shape {shape}: [{axes}] is needed")
    if any(size % divisor for size in shape[2:]):
        padded = tuple(-(-size // divisor) * divisor for size in shape[2:])
        raise InvalidParameter(
            f"{argument} has spatial size {shape[2:]}: each axis must be a multiple of {divisor}; "
            f"pad to {padded}"
        )
