"""The U-Net baseline, with the interface of the capsule networks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from caps_med.arguments import check_positive
from caps_med.errors import InvalidParameter
from caps_med.networks.base import SegmentationNetwork, check_input
from caps_med.networks.batching import sample_by_sample
from caps_med.routing.layout import widen


class UNet(SegmentationNetwork):
    """MONAI's BasicUNet (Falk et al. 2019, with instance normalization), giving probabilities.

    It has no capsules: `layers` is empty.

    Args:
        spatial_dims: 2 or 3.
        in_channels: channels of the image.
        out_channels: classes, background included; 1 is binary.
        features: channels of the five scales, and of the last layer. The default is MONAI's
            (2.0 million parameters in 2-D); ``(64, 128, 256, 512, 1024, 64)`` has 31 million.

    Input ``[B, in_channels, *S]`` with each axis a multiple of 16, and at least one above 16;
    output probabilities ``[B, out_channels, *S]``: a sigmoid for one class, otherwise a softmax.

    >>> UNet(spatial_dims=2, in_channels=1, out_channels=4)(torch.rand(1, 1, 32, 48)).shape
    torch.Size([1, 4, 32, 48])
    """

    divisor = 16
    normalizes_coarsest = True
    lists_all = False

    def __init__(
        self,
        spatial_dims: int = 2,
        in_channels: int = 1,
        out_channels: int = 1,
        features: Sequence[int] = (32, 32, 64, 128, 256, 32),
    ) -> None:
        super().__init__()
        if spatial_dims not in (2, 3):
            raise InvalidParameter(f"spatial_dims={spatial_dims}: must be 2 or 3")
        if len(features) != 6 or min(features) < 1:
            raise InvalidParameter(f"features={tuple(features)}: six positive numbers are needed")
        check_positive(in_channels=in_channels, out_channels=out_channels)
        from monai.networks.nets import BasicUNet

        self.spatial_dims, self.in_channels = spatial_dims, in_channels
        self.out_channels = out_channels
        self.unet: nn.Module = BasicUNet(
            spatial_dims, in_channels, out_channels, features=tuple(features)
        )

    @sample_by_sample
    def forward(self, image: Tensor) -> Tensor:
        """Probabilities ``[B, out_channels, *S]``."""
        logits = widen(self.unet(image))
        return torch.sigmoid(logits) if self.out_channels == 1 else logits.softmax(1)

    @sample_by_sample
    def features(self, image: Tensor) -> Tensor:
        """See `SegmentationNetwork.features`: the input of MONAI's last convolution.

        Not recorded by a hook, which would also record what other threads compute meanwhile.
        """
        maps = [self.unet.get_submodule("conv_0")(image)]
        for scale in range(1, 5):
            maps.append(self.unet.get_submodule(f"down_{scale}")(maps[-1]))
        found: Tensor = maps.pop()
        for scale in range(4, 0, -1):
            found = self.unet.get_submodule(f"upcat_{scale}")(found, maps.pop())
        return found

    def check(self, image: Tensor) -> None:
        """See `CapsuleNetwork.check`."""
        check_input("image", image, self.in_channels, self.spatial_dims, self.divisor)
        size = tuple(image.shape[2:])
        if all(edge <= self.divisor for edge in size):
            raise InvalidParameter(
                f"image has spatial size {size}, which leaves a single position to normalize at "
                f"the coarsest scale: pad to {(*size[:-1], 2 * self.divisor)}"
            )
