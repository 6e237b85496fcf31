"""Convolutions by number of spatial axes, memory format, and TensorFlow's padding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.forward_ad import unpack_dual
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from caps_med.convolutions.geometry import (
    Geometry,
    Window,
    is_faster,
    is_supported,
    is_worthwhile,
    kernel_numbers,
    tile_of,
)
from caps_med.convolutions.reach import Reach, TiledReach
from caps_med.errors import InvalidParameter
from caps_med.native.processor import has_fused_additions
from caps_med.routing.backends import active_backend, in_graph, is_transformed

C = TypeVar("C")

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
        InvalidParameter: `spatial_dims` is not 2 or 3.
    """
    return _over_axes(_CONV, spatial_dims)


def transposed_conv_type(spatial_dims: int) -> type[nn.ConvTranspose2d | nn.ConvTranspose3d]:
    """The transposed convolution over 2 or 3 axes.

    Raises:
        InvalidParameter: `spatial_dims` is not 2 or 3.
    """
    return _over_axes(_TRANSPOSED_CONV, spatial_dims)


def _over_axes(types: Mapping[int, C], spatial_dims: int) -> C:
    if spatial_dims not in types:
        raise InvalidParameter(f"spatial_dims={spatial_dims}: must be 2 or 3")
    return types[spatial_dims]


def check_maps(maps: Tensor, convolution: nn.Conv2d | nn.Conv3d) -> None:
    """Reject feature maps that are not `[B, C, *S]` with the channels and axes of a convolution.

    Raises:
        InvalidParameter: names the shape that is needed.
    """
    channels, axes = convolution.in_channels, len(convolution.kernel_size)
    if maps.ndim != axes + 2 or maps.shape[1] != channels:
        sizes = ", ".join("DHW"[-axes:])
        raise InvalidParameter(
            f"maps have shape {tuple(maps.shape)}: [B, {channels}, {sizes}] is needed"
        )


class _Pointwise(_ConvNd):
    """A convolution with kernel 1; oneDNN computes it on CPUs."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        left = set(self.padding) != {0} or _left_to_pytorch(input, weight, bias)
        if left or not (torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled):
            return super()._conv_forward(input, weight, bias)
        return _by_onednn(self, input, weight, bias)


class _Pointwise2d(_Pointwise, nn.Conv2d):
    """In 2-D."""


class _Pointwise3d(_Pointwise, nn.Conv3d):
    """In 3-D."""


class _Tiled(_ConvNd):
    """A convolution by tiles if the routing is native too; see `caps_med.convolutions`."""

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if not _is_tiled(self, input, weight, bias):
            return super()._conv_forward(input, weight, bias)
        return _by_tiles(self, input, weight, bias)


class _Tiled2d(_Tiled, nn.Conv2d):
    """In 2-D."""


class _Tiled3d(_Tiled, nn.Conv3d):
    """In 3-D."""


class _TiledTransposed(_ConvTransposeNd):
    """The same for transposed convolutions."""

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        if output_size is not None:
            whole: Tensor = super().forward(input, output_size)
            return whole
        weight, bias = self.weight, self.bias
        if _is_tiled(self, input, weight, bias):
            return _by_tiles(self, input, weight, bias)
        call = F.conv_transpose2d if len(self.kernel_size) == 2 else F.conv_transpose3d
        return call(
            input, weight, bias, self.stride,
            self.padding,  # type: ignore[arg-type]  # no string for transposed ones
            self.output_padding, self.groups, self.dilation,
        )  # fmt: skip


class _TiledTransposed2d(_TiledTransposed, nn.ConvTranspose2d):
    """In 2-D."""


class _TiledTransposed3d(_TiledTransposed, nn.ConvTranspose3d):
    """In 3-D."""


_POINTWISE: dict[int, type[nn.Conv2d | nn.Conv3d]] = {2: _Pointwise2d, 3: _Pointwise3d}
_TILED: dict[int, type[nn.Conv2d | nn.Conv3d]] = {2: _Tiled2d, 3: _Tiled3d}
_TILED_TRANSPOSED: dict[int, type[nn.ConvTranspose2d | nn.ConvTranspose3d]] = {
    2: _TiledTransposed2d,
    3: _TiledTransposed3d,
}


def tiled_conv_type(spatial_dims: int) -> type[nn.Conv2d | nn.Conv3d]:
    """`conv_type`, computed by tiles on CPUs (`caps_med.convolutions`) where possible.

    Raises:
        InvalidParameter: `spatial_dims` is not 2 or 3.
    """
    return _over_axes(_TILED, spatial_dims)


def tiled_transposed_conv_type(
    spatial_dims: int,
) -> type[nn.ConvTranspose2d | nn.ConvTranspose3d]:
    """`transposed_conv_type`, by tiles.

    Raises:
        InvalidParameter: `spatial_dims` is not 2 or 3.
    """
    return _over_axes(_TILED_TRANSPOSED, spatial_dims)


def vote_conv_type(spatial_dims: int, kernel_size: int) -> type[nn.Conv2d | nn.Conv3d]:
    """`tiled_conv_type` for channels-last maps, with faster kernels of 1 as well.

    For these, PyTorch uses a matrix product on one thread that takes three times as long as
    oneDNN's, which it uses on several threads.

    Raises:
        InvalidParameter: `spatial_dims` is not 2 or 3.
    """
    return _over_axes(_POINTWISE if kernel_size == 1 else _TILED, spatial_dims)


def geometry_of(layer: _ConvNd) -> Geometry:
    """The geometry of a convolution that is the same along all axes."""
    return Geometry(
        len(layer.kernel_size),
        layer.kernel_size[0],
        layer.stride[0],
        int(layer.padding[0]),
        layer.transposed,
    )


def is_tileable(layer: _ConvNd) -> bool:
    """Whether the layer can be computed by tiles."""
    alike = all(len(set(x)) == 1 for x in (layer.kernel_size, layer.stride, layer.padding))
    if (
        not alike
        or not isinstance(layer, _Tiled | _TiledTransposed)
        or layer.groups != 1
        or set(layer.dilation) != {1}
        or set(layer.output_padding) != {0}
    ):
        return False
    geometry = geometry_of(layer)
    return is_supported(geometry, layer.in_channels, layer.out_channels) and is_worthwhile(geometry)


def reach_of(layer: _ConvNd) -> Reach | TiledReach:
    """The inputs that the layer's results depend on along each axis; tile by tile if tileable."""
    one = geometry_of(layer)
    if is_tileable(layer):
        return tile_of(one)
    return Reach(one.kernel_size, one.stride, one.padding, one.transposed)


def kernel_bytes(network: nn.Module) -> list[int]:
    """Bytes of the transformed kernels of each layer that can be computed by tiles."""
    found = (layer for layer in network.modules() if isinstance(layer, _Tiled | _TiledTransposed))
    return [
        4 * kernel_numbers(geometry_of(layer), layer.in_channels, layer.out_channels)
        for layer in found
        if is_tileable(layer)
    ]


def _is_tiled(
    layer: _ConvNd,
    maps: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    sizes: tuple[int, ...] | None = None,
) -> bool:
    """Whether these maps are computed by tiles.

    Args:
        layer: the layer that convolves them.
        maps: all, or a part.
        weight, bias: the layer's. A parametrization recomputes them on each access.
        sizes: of the whole result, if the maps are a part.
    """
    if (
        torch.compiler.is_compiling()  # which cannot follow the questions below
        or not is_tileable(layer)
        or _left_to_pytorch(maps, weight, bias)
        or active_backend(maps.device) != "numba"
        or not has_fused_additions()
    ):
        return False
    geometry = geometry_of(layer)
    return is_faster(geometry, len(maps), sizes or geometry.sizes(maps.shape[2:]))


def _by_tiles(
    layer: _ConvNd,
    maps: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    window: Window | None = None,
) -> Tensor:
    from caps_med.convolutions.winograd import convolve  # loads Numba

    geometry = geometry_of(layer)
    if layer.padding_mode != "zeros":
        maps = F.pad(maps, layer._reversed_padding_repeated_twice, mode=layer.padding_mode)
        geometry = replace(geometry, padding=0)
    return convolve(maps, weight, bias, geometry, window)


def convolve_window(layer: Convolution, maps: Tensor, window: Window) -> Tensor:
    """The result of a zero-padded layer in a window; `maps` is the part that the window reads."""
    weight, bias = layer.weight, layer.bias
    if _is_tiled(layer, maps, weight, bias, window.sizes):
        return _by_tiles(layer, maps, weight, bias, window)
    result: Tensor = layer(maps)
    stride = layer.stride[0]
    spans = zip(window.starts, window.box, strict=True)
    for axis, (start, (first, stop)) in enumerate(spans, 2):
        offset = start * stride if layer.transposed else start // stride
        result = result.narrow(axis, first - offset, stop - first)
    return result


def _left_to_pytorch(maps: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether to leave the choice to PyTorch: for graphs, forward-mode derivatives, transforms of
    `torch.func`, maps without a batch axis, and other types and devices.
    """
    return (
        in_graph()
        or maps.ndim != weight.ndim
        or not (maps.device.type == weight.device.type == "cpu")
        or torch.is_autocast_enabled("cpu")
        or not (maps.dtype == weight.dtype == torch.float32)
        or type(maps) is not Tensor
        or is_transformed()
        or any(unpack_dual(x).tangent is not None for x in (maps, weight, bias) if x is not None)
    )


def _by_onednn(layer: _ConvNd, maps: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    none = [0] * (maps.ndim - 2)
    found: Tensor = torch.mkldnn_convolution(
        maps, weight, bias, none, layer.stride, layer.dilation, layer.groups
    )
    return found


def channels_last(maps: Tensor) -> Tensor:
    """``[N, C, *S]`` with the channels of a position side by side: convolutions and routing then
    run up to three times faster, and each layer passes its capsules on in this layout. Unchanged
    under transforms of `torch.func`, because `vmap` supports only the usual layout.
    """
    if is_transformed():
        return maps
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return maps.contiguous(memory_format=formats[maps.ndim])


def pad_same(maps: Tensor, kernel_size: int, stride: int) -> Tensor:
    """Zero-pad ``[N, C, *S]`` like TensorFlow's ``same``: the odd pixel goes after."""
    pads: list[int] = []
    for size in reversed(maps.shape[2:]):
        total = max(kernel_size - (size % stride or stride), 0)
        pads += [total // 2, total - total // 2]
    return F.pad(maps, pads)
