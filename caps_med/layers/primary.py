"""Primary capsules: the first capsules of a network, from feature maps."""

from __future__ import annotations

from torch import Tensor, nn

from caps_med.layers.initialization import initialize
from caps_med.layers.spatial import check_maps, conv_type
from caps_med.routing import squash


class PrimaryCapsules(nn.Module):
    """Capsules by one convolution and squash, without routing (Sabour et al. 2017, section 4).

    Args:
        spatial_dims: 2 or 3.
        in_channels: channels of the feature maps.
        out_types: capsule types J.
        out_atoms: atoms A of a capsule.
        kernel_size: edge of the kernel; no padding.
        stride: of the convolution.

    ``layer(maps [B, C, *S])`` -> capsules ``[B, J, A, *S']`` with lengths below one. The channels
    of the convolution are ordered type first, then atom; its weights start He-normal.

    >>> import torch
    >>> PrimaryCapsules(2, 256, out_types=32, out_atoms=8)(torch.rand(1, 256, 20, 20)).shape
    torch.Size([1, 32, 8, 6, 6])
    """

    def __init__(
        self,
        spatial_dims: int,
        in_channels: int,
        out_types: int,
        out_atoms: int,
        kernel_size: int = 9,
        stride: int = 2,
    ) -> None:
        super().__init__()
        self.out_types, self.out_atoms, self.stride = out_types, out_atoms, stride
        self.conv = conv_type(spatial_dims)(in_channels, out_types * out_atoms, kernel_size, stride)
        initialize(self.conv)

    def forward(self, maps: Tensor) -> Tensor:
        """See the class; raises `InvalidParameter` for maps of the wrong shape."""
        check_maps(maps, self.conv)
        capsules: Tensor = self.conv(maps)
        return squash(capsules.unflatten(1, (self.out_types, self.out_atoms)))
