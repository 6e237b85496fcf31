"""The convolutions of Efficient-CapsNet, shared with the plain network of equal size."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from caps_med.layers.spatial import conv_type

_BATCH_NORM = {2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
#: Channels, kernel and stride of each convolution.
_CONVOLUTIONS = ((32, 5, 1), (64, 3, 1), (64, 3, 1), (128, 3, 2))


class EfficientConvolutions(nn.Sequential):
    """Four convolutions without padding, each followed by a ReLU and batch normalization.

    Mazzia, Salvetti & Chiaberge 2021, figure 1. Input ``[B, in_channels, *S]``, output
    ``[B, out_channels, *out_size(S)]``.

    Args:
        spatial_dims: 2 or 3.
        in_channels: channels of the image.
    """

    out_channels = _CONVOLUTIONS[-1][0]
    #: Pixels before the one at the centre of the first position; only the last stride is not 1.
    left_out = sum(kernel // 2 for _, kernel, _ in _CONVOLUTIONS)

    def __init__(self, spatial_dims: int, in_channels: int) -> None:
        conv, norm = conv_type(spatial_dims), _BATCH_NORM[spatial_dims]
        blocks: list[nn.Module] = []
        for width, kernel, stride in _CONVOLUTIONS:
            blocks += [conv(in_channels, width, kernel, stride), nn.ReLU(), norm(width)]
            in_channels = width
        super().__init__(*blocks)

    @staticmethod
    def out_size(size: Sequence[int]) -> tuple[int, ...]:
        """The edges of the output for an input with these edges."""
        for _, kernel, stride in _CONVOLUTIONS:
            size = [(edge - kernel) // stride + 1 for edge in size]
        return tuple(size)
