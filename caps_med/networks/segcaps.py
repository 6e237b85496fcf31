"""SegCaps: a U-shaped network of convolutional capsules for segmentation.

LaLonde & Bagci 2018, "Capsules for Object Segmentation" (arXiv 1804.04241), figure 2; R3 is the
published network, R1 its cheaper ablation that routes three times only where the size changes.

Deviations: any number of classes (one capsule type each, routed against each other; the published
code is binary); any number of image channels; 2-D and 3-D; symmetric padding unless
``padding="tensorflow"`` asks for the published one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from caps_med.arguments import check_choice, check_positive
from caps_med.errors import InvalidParameter
from caps_med.layers import ConvCapsule, DeconvCapsule, Padding, join_types
from caps_med.layers.initialization import initialize
from caps_med.layers.spatial import channels_last, conv_type, pad_same
from caps_med.networks.base import SegmentationNetwork, check_input, class_lengths
from caps_med.networks.batching import sample_by_sample
from caps_med.networks.blocks import PlainCapsule
from caps_med.routing import Routing
from caps_med.routing.layout import widen

Variant = Literal["r3", "r1"]
#: Capsule types and atoms of one layer.
Shape = tuple[int, int]

#: Layers that route three times in R1; `primarycaps` routes once in both.
_R1_ROUTED = {"conv_cap_2_2", "conv_cap_3_2", "deconv_cap_1_1", "deconv_cap_2_1", "deconv_cap_3_1"}


#: Capsule layer -> the layers whose capsules it takes, in order of computation.
INPUTS: Mapping[str, tuple[str, ...]] = {
    "primarycaps": ("conv1",),
    "conv_cap_2_1": ("primarycaps",),
    "conv_cap_2_2": ("conv_cap_2_1",),
    "conv_cap_3_1": ("conv_cap_2_2",),
    "conv_cap_3_2": ("conv_cap_3_1",),
    "conv_cap_4_1": ("conv_cap_3_2",),
    "deconv_cap_1_1": ("conv_cap_4_1",),
    "deconv_cap_1_2": ("deconv_cap_1_1", "conv_cap_3_1"),
    "deconv_cap_2_1": ("deconv_cap_1_2",),
    "deconv_cap_2_2": ("deconv_cap_2_1", "conv_cap_2_1"),
    "deconv_cap_3_1": ("deconv_cap_2_2",),
    "seg_caps": ("deconv_cap_3_1", "conv1"),
}


class SegCaps(SegmentationNetwork):
    """Segment by the length of one capsule per class and pixel.

    Args:
        spatial_dims: 2 or 3.
        in_channels: channels of the image.
        out_channels: classes, background included; 1 is binary (one foreground capsule).
        variant: ``"r3"`` or ``"r1"``.
        atoms: atoms of the first capsules; the published 16.
        padding: see `caps_med.layers.ConvCapsule`.
        normalize: bring the votes of every layer to one scale, which makes the network easier to
            train (deviation; see `caps_med.layers.VoteNorm`).
        capsules: False replaces every capsule layer with a convolution of the same width (with
            instance normalization and a leaky rectifier), and the lengths with a convolution of 1:
            the ablation that shows what routing contributes, without reconstruction or `layers`.

    Input ``[B, in_channels, *S]`` with each axis a multiple of 8; output capsule lengths
    ``[B, out_channels, *S]`` in [0, 1). With the defaults and ``out_channels=1``: 1,425,649
    parameters, reconstruction head included. Its parameters have no gradient in a training without
    a mask: freeze them (``network.reconstruction.requires_grad_(False)``) before
    `DistributedDataParallel` wraps the network, which else needs ``find_unused_parameters=True``.

    >>> SegCaps(spatial_dims=2, in_channels=1, out_channels=4)(torch.rand(1, 1, 32, 40)).shape
    torch.Size([1, 4, 32, 40])
    """

    divisor = 8

    def __init__(
        self,
        spatial_dims: int = 2,
        in_channels: int = 1,
        out_channels: int = 1,
        variant: Variant = "r3",
        atoms: int = 16,
        padding: Padding = "symmetric",
        normalize: bool = False,
        capsules: bool = True,
    ) -> None:
        super().__init__()
        check_choice(get_args(Variant), variant=variant)
        check_positive(in_channels=in_channels, out_channels=out_channels, atoms=atoms)
        self.spatial_dims, self.in_channels, self.out_channels = (
            spatial_dims,
            in_channels,
            out_channels,
        )
        self.variant, self.padding, self.normalize = variant, padding, normalize
        self.has_capsules = capsules
        a = atoms
        self.conv1 = conv_type(spatial_dims)(
            in_channels, a, 5, padding=0 if padding == "tensorflow" else 2,
            padding_mode="replicate" if padding == "replicate" else "zeros",
        )  # fmt: skip
        initialize(self.conv1)
        self.primarycaps = self._conv("primarycaps", (1, a), (2, a), stride=2)
        self.conv_cap_2_1 = self._conv("conv_cap_2_1", (2, a), (4, a))
        self.conv_cap_2_2 = self._conv("conv_cap_2_2", (4, a), (4, 2 * a), stride=2)
        self.conv_cap_3_1 = self._conv("conv_cap_3_1", (4, 2 * a), (8, 2 * a))
        self.conv_cap_3_2 = self._conv("conv_cap_3_2", (8, 2 * a), (8, 4 * a), stride=2)
        self.conv_cap_4_1 = self._conv("conv_cap_4_1", (8, 4 * a), (8, 2 * a))
        self.deconv_cap_1_1 = self._deconv("deconv_cap_1_1", (8, 2 * a), (8, 2 * a))
        self.deconv_cap_1_2 = self._conv("deconv_cap_1_2", (16, 2 * a), (4, 2 * a))
        self.deconv_cap_2_1 = self._deconv("deconv_cap_2_1", (4, 2 * a), (4, a))
        self.deconv_cap_2_2 = self._conv("deconv_cap_2_2", (8, a), (4, a))
        self.deconv_cap_3_1 = self._deconv("deconv_cap_3_1", (4, a), (2, a))
        self.seg_caps = self._conv("seg_caps", (3, a), (out_channels, a), kernel_size=1)
        if capsules:
            self.reconstruction = self._reconstruction_head(out_channels * a, 4 * a)
            self.layers = self._layer_infos(a)
        else:
            self.head = conv_type(spatial_dims)(out_channels * a, out_channels, 1)

    @sample_by_sample
    def forward(self, image: Tensor, mask: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """Capsule lengths ``[B, out_channels, *S]``; with a mask also the reconstruction.

        Without capsules: probabilities, a sigmoid for one class, otherwise a softmax.

        Args:
            image: ``[B, in_channels, *S]``.
            mask: the true label one-hot ``[B, out_channels, *S]``, for training.

        Returns:
            Lengths, or lengths and reconstruction ``[B, in_channels, *S]``.
        """
        capsules = self._run(image)["seg_caps"]
        if not self.has_capsules:
            logits = widen(self.head(capsules.flatten(1, 2)))
            return logits.sigmoid() if self.out_channels == 1 else logits.softmax(1)
        lengths = class_lengths(capsules)
        return lengths if mask is None else (lengths, self.reconstruct(capsules, mask))

    @sample_by_sample
    def capsules(self, image: Tensor) -> OrderedDict[str, Tensor]:
        """See `SegmentationNetwork.capsules`; the class capsules are the last."""
        return self._run(image) if self.has_capsules else super().capsules(image)

    @sample_by_sample
    def features(self, image: Tensor) -> Tensor:
        """See `SegmentationNetwork.features`: the atoms of the class capsules."""
        return self._run(image)["seg_caps"].flatten(1, 2)

    def _run(self, image: Tensor) -> OrderedDict[str, Tensor]:
        found = OrderedDict(conv1=self.first(image))
        for name, below in INPUTS.items():
            layer = self.get_submodule(name)
            found[name] = layer(join_types(*(found[one] for one in below)))
        return found

    def check(self, image: Tensor, mask: Tensor | None = None) -> None:
        """See `CapsuleNetwork.check`."""
        check_input("image", image, self.in_channels, self.spatial_dims, self.divisor)
        if mask is not None and mask.shape != (image.shape[0], self.out_channels, *image.shape[2:]):
            raise InvalidParameter(
                f"mask has shape {tuple(mask.shape)}: "
                f"{(image.shape[0], self.out_channels, *image.shape[2:])} is needed"
            )

    def reconstruct(self, capsules: Tensor, mask: Tensor) -> Tensor:
        """The image ``[B, in_channels, *S]`` in [0, 1] from the masked class capsules.

        Args:
            capsules: ``[B, out_channels, A, *S]``, the layer ``seg_caps``.
            mask: ``[B, out_channels, *S]``, one-hot; all but the marked capsules are zeroed.
        """
        masked = capsules * mask.unsqueeze(2)
        result: Tensor = self.reconstruction(masked.flatten(1, 2))
        return result

    def first(self, image: Tensor) -> Tensor:
        """The capsules of the layer ``conv1``, ``[B, 1, A, *S]``."""
        padded = pad_same(image, 5, 1) if self.padding == "tensorflow" else image
        return torch.relu(channels_last(self.conv1(padded))).unsqueeze(1)

    def _routing(self, name: str) -> Routing:
        once = name == "primarycaps" or (self.variant == "r1" and name not in _R1_ROUTED)
        return Routing(iterations=1 if once else 3, competition="outputs")

    def _conv(
        self, name: str, below: Shape, above: Shape, kernel_size: int = 5, stride: int = 1
    ) -> ConvCapsule | PlainCapsule:
        if not self.has_capsules:
            return PlainCapsule(self.spatial_dims, *below, *above, kernel_size, stride)
        return ConvCapsule(
            self.spatial_dims,
            *below,
            *above,
            kernel_size,
            stride,
            routing=self._routing(name),
            padding=self.padding,
            normalize=self.normalize,
        )

    def _deconv(self, name: str, below: Shape, above: Shape) -> DeconvCapsule | PlainCapsule:
        if not self.has_capsules:
            return PlainCapsule(self.spatial_dims, *below, *above, 4, 2, transposed=True)
        return DeconvCapsule(
            self.spatial_dims, *below, *above, self._routing(name), normalize=self.normalize
        )

    def _reconstruction_head(self, in_channels: int, width: int) -> nn.Sequential:
        conv = conv_type(self.spatial_dims)
        widths = (in_channels, width, 2 * width, self.in_channels)
        first, second, last = (conv(below, above, 1) for below, above in pairwise(widths))
        for layer in (first, second, last):
            initialize(layer)
        return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last, nn.Sigmoid())
