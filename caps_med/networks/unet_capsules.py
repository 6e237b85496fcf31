"""The base of U-shaped networks with capsules inside and an ordinary decoder."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from caps_med.arguments import check_positive
from caps_med.layers.spatial import conv_type
from caps_med.networks.base import LayerInfo, SegmentationNetwork, capsule_lengths, check_input
from caps_med.networks.batching import sample_by_sample
from caps_med.networks.blocks import Decoder, capsule_layer
from caps_med.routing import Routing
from caps_med.routing.layout import widen

#: Capsule types and atoms of one layer.
Shape = tuple[int, int]


class CapsuleUNet(SegmentationNetwork):
    """Base of `ConvCaps` and `UCaps`: capsules between an encoder and a convolutional decoder.

    Subclasses build their capsule layers with `_build_capsules`, build `decoder` and `head`, and
    define `_encode` and `_decode`.
    Without capsules (``capsules=False``) every capsule layer is a convolution of the same width,
    the ablation that shows what routing contributes; such a network has no `layers`.
    """

    divisor = 8
    lists_all = False
    decoder: Decoder
    head: nn.Module

    def __init__(
        self, spatial_dims: int, in_channels: int, out_channels: int, atoms: int, capsules: bool
    ) -> None:
        super().__init__()
        check_positive(in_channels=in_channels, out_channels=out_channels, atoms=atoms)
        conv_type(spatial_dims)  # refuses other numbers of axes
        self.spatial_dims, self.in_channels = spatial_dims, in_channels
        self.out_channels, self.has_capsules = out_channels, capsules

    @property
    def class_types(self) -> int:
        """Types of the class capsules: one per class; for a binary task, both classes."""
        return max(2, self.out_channels)

    @property
    def decoder_channels(self) -> float:
        """See `CapsuleNetwork.decoder_channels`."""
        return self.decoder.channels

    @sample_by_sample
    def forward(self, image: Tensor, mask: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """Probabilities ``[B, out_channels, *S]``: a sigmoid for one class, otherwise a softmax.

        Args:
            image: ``[B, in_channels, *S]``.
            mask: the true label one-hot, in training; the lengths of the class capsules
                ``[B, types, *S / 8]`` are then returned as well, for
                `caps_med.losses.ClassCapsuleLoss`.
        """
        maps, capsules = self._encode(image)
        logits = widen(self.head(self._decode(maps, capsules)))
        answer = logits.sigmoid() if self.out_channels == 1 else logits.softmax(1)
        if mask is None:
            return answer
        return answer, capsule_lengths(next(reversed(capsules.values())))

    @sample_by_sample
    def capsules(self, image: Tensor) -> OrderedDict[str, Tensor]:
        """See `SegmentationNetwork.capsules`; the class capsules are the last."""
        if not self.has_capsules:
            return super().capsules(image)
        return self._encode(image)[1]

    @sample_by_sample
    def features(self, image: Tensor) -> Tensor:
        """See `SegmentationNetwork.features`: the decoder's maps."""
        return self._decode(*self._encode(image))

    def check(self, image: Tensor, mask: Tensor | None = None) -> None:
        """See `CapsuleNetwork.check`."""
        check_input("image", image, self.in_channels, self.spatial_dims, self.divisor)

    def _encode(self, image: Tensor) -> tuple[Sequence[Tensor], OrderedDict[str, Tensor]]:
        """Maps of the leading convolutions, and every layer's capsules by name."""
        raise NotImplementedError

    def _decode(self, maps: Sequence[Tensor], capsules: OrderedDict[str, Tensor]) -> Tensor:
        """The maps that `head` turns into logits."""
        raise NotImplementedError

    def _build_capsules(
        self, first: LayerInfo, layers: Sequence[tuple[str, Shape, int, Routing]]
    ) -> None:
        """Build the layers above the first from their names, shapes, strides and routing."""
        infos = [first]
        for name, above, stride, routing in layers:
            below = infos[-1]
            shapes, chosen = (below.types, below.atoms), routing if self.has_capsules else None
            layer = capsule_layer(chosen, self.spatial_dims, shapes, above, stride=stride)
            self.add_module(name, layer)
            infos.append(LayerInfo(name, *above, below.stride * stride))
        self._capsule_layers = tuple(name for name, *_ in layers)
        self.layers = tuple(infos) if self.has_capsules else ()

    def _run_capsules(self, first: str, capsules: Tensor) -> OrderedDict[str, Tensor]:
        """Every layer's capsules from the first layer's."""
        found = OrderedDict({first: capsules})
        for name in self._capsule_layers:
            capsules = self.get_submodule(name)(capsules)
            found[name] = capsules
        return found


def as_maps(*capsules: Tensor) -> Tensor:
    """Capsules ``[B, J, A, *S]`` as feature maps ``[B, J * A, *S]``, type by type."""
    return torch.cat([each.flatten(1, 2) for each in capsules], 1)
