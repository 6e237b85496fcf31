"""Convolutions by number of spatial axes, memory format, and TensorFlow's padding."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from caps_med.errors import InvalidParameter

Convolution = nn.Conv2d | nn.Conv3d | nn.ConvTranspose2d | nn.ConvTranspose3d

# MONAI's `Conv` factory holds the same tables; importing it takes longer than torch itself.
_CONV: dict[int, type[nn.Conv2d | nn.Conv3d]] = {2: nn.Conv2d, 3: nn.Conv3d}
_TRANSPOSED_CONV: dict[int, type[nn.ConvTranspose2d | nn.ConvTranspose3d]] = {
    2: nn.ConvTranspose2d,
    3: nn.ConvTranspose3d,
}


def conv_type(spatial_dims: int) -> type[nn.Conv2d | nn.Conv3d]:
    """The convolution over 2 or 3 axes.

    Raises:
        InvalidParameter: another number of axes.
    """
    if spatial_dims not in _CONV:
        raise InvalidParameter(f"spatial_dims={spatial_dims}: must be 2 or 3")
    return _CONV[spatial_dims]


def transposed_conv_type(spatial_dims: int) -> type[nn.ConvTranspose2d | nn.ConvTranspose3d]:
    """The transposed convolution over 2 or 3 axes.

    Raises:
        InvalidParameter: another number of axes.
    """
    if spatial_dims not in _TRANSPOSED_CONV:
        raise InvalidParameter(f"spatial_dims={spatial_dims}: must be 2 or 3")
    return _TRANSPOSED_CONV[spatial_dims]


class _Pointwise(_ConvNd):
    """A convolution of one position to one; without gradients its own way on CPUs."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if _left_to_pytorch(input, weight):
            return super()._conv_forward(input, weight, bias)
        return _by_onednn(self, input, weight, bias)


class _Pointwise2d(_Pointwise, nn.Conv2d):
    """Of pictures."""


class _Pointwise3d(_Pointwise, nn.Conv3d):
    """Of volumes."""


_POINTWISE: dict[int, type[nn.Conv2d | nn.Conv3d]] = {2: _Pointwise2d, 3: _Pointwise3d}


def vote_conv_type(spatial_dims: int, kernel_size: int) -> type[nn.Conv2d | nn.Conv3d]:
    """`conv_type` of maps that are channels last.

    On one thread PyTorch leaves kernels of 1 to a product of matrices that takes three times as
    long as oneDNN's, which it takes on several threads.

    Raises:
        InvalidParameter: another number of axes.
    """
    kind = conv_type(spatial_dims)
    return _POINTWISE[spatial_dims] if kernel_size == 1 else kind


def _left_to_pytorch(maps: Tensor, weight: Tensor) -> bool:
    """Whether PyTorch's own choice is needed: for gradients, graphs, other types and devices."""
    return (
        torch.is_grad_enabled()
        or torch.compiler.is_compiling()
        or torch.is_autocast_enabled(maps.device.type)
        or not torch.backends.mkldnn.is_available()
        or not torch.backends.mkldnn.enabled
        or not (maps.device.type == weight.device.type == "cpu")
        or not (maps.dtype == weight.dtype == torch.float32)
        or type(maps) is not Tensor
    )


def _by_onednn(layer: _ConvNd, maps: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    none = [0] * (maps.ndim - 2)
    found: Tensor = torch.mkldnn_convolution(
        maps, weight, bias, none, layer.stride, layer.dilation, layer.groups
    )
    return found


def channels_last(maps: Tensor) -> Tensor:
    """``[N, C, *S]`` with the channels of a position side by side: convolutions and routing run
    up to three times faster so, and each layer leaves its capsules so for the next.
    """
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return maps.contiguous(memory_format=formats[maps.ndim])


def pad_same(maps: Tensor, kernel_size: int, stride: int) -> Tensor:
    """Zero-pad ``[N, C, *S]`` as TensorFlow's ``same`` does: the odd pixel goes after."""
    pads: list[int] = []
    for size in reversed(maps.shape[2:]):
        total = max(kernel_size - (size % stride or stride), 0)
        pads += [total // 2, total - total // 2]
    return F.pad(maps, pads)
