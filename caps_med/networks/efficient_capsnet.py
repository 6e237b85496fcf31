"""Efficient-CapsNet: few capsules, one step of self-attention routing.

Mazzia, Salvetti & Chiaberge 2021, "Efficient-CapsNet: capsule network with self-attention routing",
section 3 and figure 1.

Deviations: images of any size and number of channels (see `ImageStem`), in two or three dimensions:
the kernel of the depthwise convolution is as large as its input.
"""

from __future__ import annotations

from collections import OrderedDict

from torch import Tensor

from caps_med.layers.attention import SelfAttentionCapsules, exponential_squash
from caps_med.layers.spatial import conv_type
from caps_med.networks.base import LayerInfo, class_lengths
from caps_med.networks.batching import sample_by_sample
from caps_med.networks.classification import ClassificationNetwork, ReconstructionDecoder
from caps_med.networks.efficient_convolutions import EfficientConvolutions

_PRIMARY_ATOMS, _CLASS_ATOMS = 8, 16


class EfficientCapsNet(ClassificationNetwork):
    """Classify by the length of one capsule a class, with 16 primary capsules.

    Args:
        in_channels: channels of the image.
        out_channels: classes.
        image_size: edges of the image, two or three.
        decoder: whether the network can reconstruct its input.

    Input ``[B, in_channels, *image_size]``, output capsule lengths ``[B, out_channels]`` in [0, 1).
    With 28 x 28 pixels, one channel and ten classes: 161,824 parameters without the decoder. Images
    of any size have 16 primary capsules, so 16 x `out_channels` votes of 16 numbers.

    >>> import torch
    >>> EfficientCapsNet(in_channels=1, out_channels=10)(torch.rand(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int = 10,
        image_size: tuple[int, ...] = (28, 28),
        decoder: bool = True,
    ) -> None:
        super().__init__(in_channels, out_channels, image_size)
        self.features = EfficientConvolutions(self.spatial_dims, self.stem.out_channels)
        channels, size = self.features.out_channels, self.features.out_size(self.stem.out_size)
        conv = conv_type(self.spatial_dims)
        self.primarycaps = conv(channels, channels, size, groups=channels)  # type: ignore[arg-type]  # the axes are 2 or 3
        in_capsules = channels // _PRIMARY_ATOMS
        self.classcaps = SelfAttentionCapsules(
            in_capsules, _PRIMARY_ATOMS, out_channels, _CLASS_ATOMS
        )
        if decoder:
            self.decoder = ReconstructionDecoder(
                out_channels * _CLASS_ATOMS, in_channels, self.reconstruction_size
            )
        self.layers = (
            LayerInfo(
                "features", 1, channels, 2 ** (self.stem.halvings + 1), self.features.left_out
            ),
            LayerInfo("primarycaps", in_capsules, _PRIMARY_ATOMS, max(self.image_size)),
            LayerInfo("classcaps", out_channels, _CLASS_ATOMS, max(self.image_size)),
        )

    def _classify(self, image: Tensor) -> tuple[Tensor, Tensor]:
        capsules = self.classcaps(self._primary(self.features(self.stem(image))))
        return class_lengths(capsules), capsules

    @property
    def vote_count(self) -> int:
        """See `ClassificationNetwork.vote_count`."""
        return self.classcaps.vote_count

    @sample_by_sample
    def capsules(self, image: Tensor) -> OrderedDict[str, Tensor]:
        """See `ClassificationNetwork.capsules`; all but `features` have one position."""
        maps = self.features(self.stem(image))
        primary = self._primary(maps)
        one = (..., *(None,) * self.spatial_dims)
        return OrderedDict(
            features=maps.unsqueeze(1),
            primarycaps=primary[one],
            classcaps=self.classcaps(primary)[one],
        )

    def _primary(self, maps: Tensor) -> Tensor:
        """Primary capsules ``[B, I, 8]``."""
        return exponential_squash(
            self.primarycaps(maps).flatten(1).unflatten(1, (-1, _PRIMARY_ATOMS))
        )
