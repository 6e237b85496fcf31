"""Convolutional blocks of the segmentation networks, and the decoder that they share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from caps_med.layers import ConvCapsule
from caps_med.layers.spatial import tiled_conv_type, tiled_transposed_conv_type
from caps_med.routing import Routing
from caps_med.routing.backends import in_graph, is_transformed

#: Slope of the leaky rectifier below zero, as in MONAI's BasicUNet.
SLOPE = 0.1
#: Positions that PyTorch can add to one sum in float32: the result is then off by 3e-5 of its norm.
_SUMMED = 2**18


class InstanceNorm(nn.Module):
    """Instance normalization (Ulyanov et al. 2016) with a learned scale and offset.

    Deviation from `torch.nn.InstanceNorm2d`: maps of a single position are not refused in
    training; they become the offset.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, maps: Tensor) -> Tensor:
        """``[B, C, *S]`` -> the same shape."""
        if maps.device.type != "cpu":
            return self._of_each(maps)
        # below, one axis: of several, PyTorch reads the gradient of a single sample in the maps'
        # layout, whatever its own
        if in_graph():  # graphs are for any number of samples and positions
            return self._of_each(maps.flatten(2)).view(maps.shape)
        positions = math.prod(maps.shape[2:])
        if _is_channels_last(maps) and positions <= _SUMMED:
            each = [_as_batch(one, self.weight, self.bias) for one in maps.split(1)]
            return each[0] if len(each) == 1 else torch.cat(each)
        samples, channels = maps.shape[:2]
        weight, bias = (values.repeat(samples) for values in (self.weight, self.bias))
        found = _as_batch(maps.reshape(1, samples * channels, positions), weight, bias)
        # no view: to change one in place, as rectifiers do, copies its gradient
        answer: Tensor = torch.ops.aten._unsafe_view(found, maps.shape)
        return answer

    def _of_each(self, maps: Tensor) -> Tensor:
        return torch.instance_norm(
            maps, self.weight, self.bias, None, None, True, 0.0, 1e-5, torch.backends.cudnn.enabled
        )


def _as_batch(maps: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Normalize samples, side by side as channels, as a batch of one.

    Instance normalization does so, too, but would copy a sample with channels last twice. All its
    positions are added to one sum then, losing digits if there are many.
    """
    return torch.batch_norm(
        maps, weight, bias, None, None, True, 0.0, 1e-5, torch.backends.cudnn.enabled
    )


class ConvBlock(nn.Sequential):
    """Convolution without bias, instance normalization, and a rectifier.

    Args:
        spatial_dims: 2 or 3.
        in_channels, out_channels: of the convolution.
        kernel_size: edge of the kernel; the maps are padded with zeros to keep their size.
        stride: 1 keeps the size, 2 halves it.
        dilation: of the kernel.
        activation: None for a leaky rectifier of slope 0.1.
        transposed: whether the convolution is transposed; kernel 4 and stride 2 then double the
            size.
    """

    def __init__(
        self,
        spatial_dims: int,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 3,
        stride: int = 1,
        dilation: int = 1,
        activation: nn.Module | None = None,
        transposed: bool = False,
    ) -> None:
        kind = (
            tiled_transposed_conv_type(spatial_dims)
            if transposed
            else tiled_conv_type(spatial_dims)
        )
        conv = kind(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding=dilation * (kernel_size - 1) // 2,
            dilation=dilation,
            bias=False,
        )
        rectifier = nn.LeakyReLU(SLOPE, inplace=True)  # nothing else needs the normalized maps
        super().__init__(conv, InstanceNorm(out_channels), activation or rectifier)


class PlainCapsule(nn.Module):
    """The ablation of a capsule layer: a `ConvBlock` of the same width.

    Arguments and shapes as for `ConvCapsule` or, if `transposed`, `DeconvCapsule`. Every input
    channel reaches every output channel, so it has `in_types` times as many weights.
    """

    def __init__(
        self,
        spatial_dims: int,
        in_types: int,
        in_atoms: int,
        out_types: int,
        out_atoms: int,
        kernel_size: int,
        stride: int = 1,
        transposed: bool = False,
    ) -> None:
        super().__init__()
        self.out_types, self.out_atoms, self.stride = out_types, out_atoms, stride
        self.block = ConvBlock(
            spatial_dims, in_types * in_atoms, out_types * out_atoms, kernel_size, stride,
            transposed=transposed,
        )  # fmt: skip

    def forward(self, capsules: Tensor) -> Tensor:
        """``[B, I, A_in, *S]`` -> ``[B, J, A, *S']``."""
        maps: Tensor = self.block(capsules.flatten(1, 2))
        return torch.unflatten(maps, 1, (self.out_types, self.out_atoms))


def capsule_layer(
    routing: Routing | None,
    spatial_dims: int,
    below: tuple[int, int],
    above: tuple[int, int],
    stride: int = 1,
) -> ConvCapsule | PlainCapsule:
    """A capsule layer of kernel 3 from types and atoms `below` to `above`.

    If `routing` is None, its ablation.

    >>> capsule_layer(None, 2, (8, 16), (8, 32), stride=2)(torch.rand(1, 8, 16, 8, 8)).shape
    torch.Size([1, 8, 32, 4, 4])
    """
    if routing is None:
        return PlainCapsule(spatial_dims, *below, *above, 3, stride)
    return ConvCapsule(spatial_dims, *below, *above, 3, stride, routing=routing)


class Decoder(nn.Module):
    """The right half of a U-Net: double the size, join the skip connection, convolve.

    Args:
        spatial_dims: 2 or 3.
        in_channels: of the coarsest maps.
        upsampled: channels after each transposed convolution, coarsest first.
        skips: channels of the maps joined there.
        widths: channels of the blocks that follow, for each scale.

    Attributes:
        channels: channels per output position held at the peak: the joined maps, the skip
            connection beside them, and the widest block.
    """

    def __init__(
        self,
        spatial_dims: int,
        in_channels: int,
        upsampled: Sequence[int],
        skips: Sequence[int],
        widths: Sequence[Sequence[int]],
    ) -> None:
        super().__init__()
        up = tiled_transposed_conv_type(spatial_dims)
        self.up, self.blocks = nn.ModuleList(), nn.ModuleList()
        held = (
            n + 2 * skip + max(w, default=0)
            for n, skip, w in zip(upsampled, skips, widths, strict=True)
        )
        finer = [2 ** (spatial_dims * scale) for scale in reversed(range(len(upsampled)))]
        self.channels: float = max(n / times for n, times in zip(held, finer, strict=True))
        for channels, skip, scale in zip(upsampled, skips, widths, strict=True):
            self.up.append(up(in_channels, channels, kernel_size=2, stride=2))
            self.blocks.append(conv_blocks(spatial_dims, channels + skip, *scale))
            in_channels = scale[-1] if scale else channels + skip

    def forward(self, maps: Tensor, skips: Sequence[Tensor]) -> Tensor:
        """Maps ``[B, C, *S]`` and, coarsest first, the ``[B, C_i, *(2^i S)]`` to join."""
        for up, blocks, skip in zip(self.up, self.blocks, skips, strict=True):
            maps = blocks(torch.cat([up(maps), skip], 1))
        return maps


def conv_blocks(spatial_dims: int, *widths: int) -> nn.Sequential:
    """`ConvBlock`s from each number of channels to the next."""
    return nn.Sequential(*(ConvBlock(spatial_dims, a, b) for a, b in pairwise(widths)))


def _is_channels_last(maps: Tensor) -> bool:
    """Whether maps have the layout in which tiled convolutions leave them."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return (
        not is_transformed()
        and not maps.is_contiguous()
        and maps.is_contiguous(memory_format=formats[maps.ndim])
    )


def halved(maps: Tensor) -> Tensor:
    """Max pooling of 2 along every axis."""
    pool = F.max_pool2d if maps.ndim == 4 else F.max_pool3d
    return pool(maps, 2)
