"""CapsNet: classification by the length of one capsule a class.

Sabour, Frosst & Hinton 2017, "Dynamic routing between capsules", section 4, figures 1 and 2.

Deviations: images of any size and number of channels (see `ImageStem`), in two or three dimensions;
the decoder of a large image draws it at the size behind the stem; weights of the class capsules are
drawn so that lengths start below 0.5 (released code: normal with a standard deviation of
0.1, plus a bias before the squash, which the paper does not have and we leave out).
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor

from caps_med.arguments import check_positive
from caps_med.layers import DenseCapsules
from caps_med.layers.initialization import initialize
from caps_med.layers.primary import PrimaryCapsules
from caps_med.layers.spatial import conv_type
from caps_med.networks.base import LayerInfo, class_lengths
from caps_med.networks.batching import sample_by_sample
from caps_med.networks.classification import ClassificationNetwork, ReconstructionDecoder
from caps_med.routing import Routing

#: Of both convolutions.
_KERNEL = 9
_PRIMARY_ATOMS, _CLASS_ATOMS = 8, 16


class CapsNet(ClassificationNetwork):
    """Classify by the length of one capsule a class.

    Args:
        in_channels: channels of the image.
        out_channels: classes.
        image_size: edges of the image, two or three.
        iterations: of routing between primary and class capsules.
        decoder: whether the network can reconstruct its input.
        width: channels of the first convolution.
        primary_types: capsule types of the primary capsules.
        learn_priors: see `caps_med.layers.DenseCapsules`.

    Input ``[B, in_channels, *image_size]``, output capsule lengths ``[B, out_channels]`` in [0, 1).
    With 28 x 28 pixels, one channel and ten classes: 8,215,568 parameters, 6,804,224 without the
    decoder. A pass casts at most 8,192 x `out_channels` votes of 16 numbers in 2-D, whatever the
    size of the image: behind the stem there are at most 16 x 16 positions of 32 types. For an
    oblong image with a short edge, whose pixels the stem repeats, there are up to 40 x 11.

    >>> CapsNet(in_channels=1, out_channels=10, image_size=(28, 28))(torch.rand(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int = 10,
        image_size: tuple[int, ...] = (28, 28),
        iterations: int = 3,
        decoder: bool = True,
        width: int = 256,
        primary_types: int = 32,
        learn_priors: bool = False,
    ) -> None:
        super().__init__(in_channels, out_channels, image_size)
        check_positive(width=width, primary_types=primary_types)
        self.conv1 = conv_type(self.spatial_dims)(self.stem.out_channels, width, _KERNEL)
        initialize(self.conv1)
        self.primarycaps = PrimaryCapsules(
            self.spatial_dims, width, primary_types, _PRIMARY_ATOMS, _KERNEL
        )
        grid = [(edge - 2 * (_KERNEL - 1) - 1) // 2 + 1 for edge in self.stem.out_size]
        positions = int(torch.Size(grid).numel())
        self.classcaps = DenseCapsules(
            primary_types * positions, _PRIMARY_ATOMS, out_channels, _CLASS_ATOMS,
            Routing(iterations), learn_priors,
        )  # fmt: skip
        if decoder:
            self.decoder = ReconstructionDecoder(
                out_channels * _CLASS_ATOMS, in_channels, self.reconstruction_size
            )
        stride = 2**self.stem.halvings
        self.layers = (
            LayerInfo("conv1", 1, width, stride, _KERNEL // 2),
            LayerInfo("primarycaps", primary_types, _PRIMARY_ATOMS, 2 * stride, _KERNEL - 1),
            LayerInfo("classcaps", out_channels, _CLASS_ATOMS, max(self.image_size)),
        )

    def _classify(self, image: Tensor) -> tuple[Tensor, Tensor]:
        capsules = self.classcaps(_listed(self.primarycaps(self._first(image))))
        return class_lengths(capsules), capsules

    @property
    def vote_count(self) -> int:
        """See `ClassificationNetwork.vote_count`."""
        return self.classcaps.vote_count

    @sample_by_sample
    def capsules(self, image: Tensor) -> OrderedDict[str, Tensor]:
        """See `ClassificationNetwork.capsules`."""
        found: OrderedDict[str, Tensor] = OrderedDict()
        maps = self._first(image)
        found["conv1"] = maps.unsqueeze(1)
        found["primarycaps"] = self.primarycaps(maps)
        last = self.classcaps(_listed(found["primarycaps"]))
        found["classcaps"] = last[(..., *(None,) * self.spatial_dims)]
        return found

    def _first(self, image: Tensor) -> Tensor:
        return torch.relu(self.conv1(self.stem(image)))


def _listed(capsules: Tensor) -> Tensor:
    """``[B, J, A, *S]`` as ``[B, J * positions, A]``: type by type, position by position."""
    return capsules.flatten(3).movedim(2, 3).flatten(1, 2)
