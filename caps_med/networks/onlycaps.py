"""OnlyCaps: capsules at every scale, down and up, without routing iterations.

Bonheur et al. 2022, "OnlyCaps-Net, a Capsule Only Based Neural Network for 2D and 3D Semantic
Segmentation" (MICCAI, pages 340-349; code in savinienb/OnlyCaps-Net).

Deviations: those of `caps_med.layers.UnitCapsule`; 2-D as well; a binary task has two class
capsules. As published: one convolution in front, nothing but capsules after it, soft squash, no
squash of the class capsules, whose lengths are logits, no reconstruction.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from caps_med.arguments import check_positive
from caps_med.errors import InvalidParameter
from caps_med.layers import UnitCapsule, join_types
from caps_med.layers.initialization import initialize
from caps_med.layers.spatial import conv_type
from caps_med.networks.base import LayerInfo, SegmentationNetwork, capsule_lengths, check_input
from caps_med.networks.batching import sample_by_sample
from caps_med.networks.blocks import PlainCapsule
from caps_med.routing.layout import widen

#: Layer -> the layers whose capsules it takes, and what it does to the size, in order.
LAYERS = {
    "capsules_2_1": (("conv1",), "halve"),
    "capsules_2_2": (("capsules_2_1",), "keep"),
    "capsules_4_1": (("capsules_2_2",), "halve"),
    "capsules_4_2": (("capsules_4_1",), "keep"),
    "capsules_8_1": (("capsules_4_2",), "halve"),
    "capsules_8_2": (("capsules_8_1",), "keep"),
    "capsules_4_3": (("capsules_8_2",), "double"),
    "capsules_4_4": (("capsules_4_3", "capsules_4_2"), "keep"),
    "capsules_2_3": (("capsules_4_4",), "double"),
    "capsules_2_4": (("capsules_2_3", "capsules_2_2"), "keep"),
    "capsules_1_1": (("capsules_2_4",), "double"),
    "classes": (("capsules_1_1", "conv1"), "keep"),
}


class OnlyCaps(SegmentationNetwork):
    """Twelve layers of capsules; the lengths of the last ones are the logits of the classes.

    Args:
        spatial_dims: 2 or 3.
        in_channels: channels of the image.
        out_channels: classes, background included; 1 is binary.
        atoms: atoms of every capsule, and number of types in every layer but the last.
        squash: ``"soft"`` or ``"unit"``, see `caps_med.layers.UnitCapsule`.
        capsules: False replaces every capsule layer with a convolution of the same width (with
            instance normalization and a leaky rectifier), and the lengths with a convolution of 1.

    Input ``[B, in_channels, *S]`` with each axis a multiple of 8; output probabilities
    ``[B, out_channels, *S]``, a softmax.

    >>> OnlyCaps(spatial_dims=2, out_channels=3, atoms=4)(torch.rand(1, 1, 16, 24)).shape
    torch.Size([1, 3, 16, 24])
    """

    divisor = 8

    def __init__(
        self,
        spatial_dims: int = 2,
        in_channels: int = 1,
        out_channels: int = 1,
        atoms: int = 12,
        squash: Literal["soft", "unit"] = "soft",
        capsules: bool = True,
    ) -> None:
        super().__init__()
        check_positive(in_channels=in_channels, out_channels=out_channels, atoms=atoms)
        if squash not in get_args(Literal["soft", "unit"]):
            raise InvalidParameter(f"squash={squash!r}: must be 'soft' or 'unit'")
        self.spatial_dims, self.in_channels = spatial_dims, in_channels
        self.out_channels, self.atoms, self.has_capsules = out_channels, atoms, capsules
        self.conv1 = conv_type(spatial_dims)(in_channels, atoms * atoms, 5, padding=2)
        initialize(self.conv1)
        infos = {"conv1": LayerInfo("conv1", atoms, atoms, 1)}
        for name, (below, change) in LAYERS.items():
            types = max(2, out_channels) if name == "classes" else atoms
            in_types = sum(infos[one].types for one in below)
            layer = self._layer(in_types, types, change, squash, name)
            self.add_module(name, layer)
            stride = infos[below[0]].stride
            stride = {"halve": 2 * stride, "keep": stride, "double": stride // 2}[change]
            infos[name] = LayerInfo(name, types, atoms, stride)
            if isinstance(layer, UnitCapsule):
                votes = in_types * layer.types_at_once * atoms / stride**spatial_dims
                self.unit_votes = max(self.unit_votes, votes)
        classes = infos["classes"].types
        self.head = None if capsules else conv_type(spatial_dims)(classes * atoms, classes, 1)
        self.layers = tuple(infos.values()) if capsules else ()

    @sample_by_sample
    def forward(self, image: Tensor) -> Tensor:
        """Probabilities ``[B, out_channels, *S]``; for a binary task those of the foreground."""
        last = self._run(image)["classes"]
        logits = capsule_lengths(last) if self.head is None else self.head(last.flatten(1, 2))
        found = widen(logits).softmax(1)
        return found[:, 1:] if self.out_channels == 1 else found

    @sample_by_sample
    def capsules(self, image: Tensor) -> OrderedDict[str, Tensor]:
        """See `SegmentationNetwork.capsules`; the class capsules are the last."""
        return self._run(image) if self.has_capsules else super().capsules(image)

    @sample_by_sample
    def features(self, image: Tensor) -> Tensor:
        """See `SegmentationNetwork.features`: the atoms of the class capsules."""
        return self._run(image)["classes"].flatten(1, 2)

    def check(self, image: Tensor) -> None:
        """See `CapsuleNetwork.check`."""
        check_input("image", image, self.in_channels, self.spatial_dims, self.divisor)

    def _layer(
        self, in_types: int, out_types: int, change: str, squash: Literal["soft", "unit"], name: str
    ) -> nn.Module:
        doubles = change == "double"
        kernel_size, stride = 4 if doubles else 5, 1 if change == "keep" else 2
        shape = self.spatial_dims, in_types, self.atoms, out_types, self.atoms, kernel_size, stride
        if not self.has_capsules:
            return PlainCapsule(*shape, transposed=doubles)
        return UnitCapsule(*shape, doubles, "none" if name == "classes" else squash)

    def _run(self, image: Tensor) -> OrderedDict[str, Tensor]:
        """Every layer's capsules ``[B, J, A, *S / stride]``."""
        first = torch.unflatten(self.conv1(image), 1, (self.atoms, self.atoms))
        found = OrderedDict(conv1=first)
        for name, (below, _) in LAYERS.items():
            found[name] = self.get_submodule(name)(join_types(*(found[one] for one in below)))
        return found
