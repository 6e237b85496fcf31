"""Matrix capsules with EM routing, for classification.

Hinton, Sabour & Frosst 2018, "Matrix capsules with EM routing", figure 1 and section 4.

Deviations: images of any size and number of channels (see `ImageStem`), in two or three dimensions;
an optional decoder; initial weights and the floors of EM, see `caps_med.layers.matrix` and
`caps_med.routing.em`.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor

from caps_med.arguments import check_positive
from caps_med.layers.initialization import initialize
from caps_med.layers.matrix import (
    ATOMS,
    ClassMatrixCapsules,
    ConvMatrixCapsules,
    PoseForm,
    PoseMatrices,
    PrimaryMatrixCapsules,
)
from caps_med.layers.spatial import conv_type
from caps_med.networks.base import LayerInfo
from caps_med.networks.batching import sample_by_sample
from caps_med.networks.classification import ClassificationNetwork, ReconstructionDecoder
from caps_med.routing import EMRouting

#: Edge and stride of the first convolution's kernel.
_KERNEL, _STRIDE = 5, 2


class MatrixCapsules(ClassificationNetwork):
    """Classify by the activation of one matrix capsule a class.

    Args:
        in_channels: channels of the image.
        out_channels: classes E.
        image_size: edges of the image, two or three.
        iterations: of EM in each of the three routed layers. The paper uses three; with two, the
            network learns much faster, see ``docs/results/classification.md``.
        decoder: whether the network can reconstruct its input from the poses; the paper's cannot.
        width: channels A of the first convolution.
        types: capsule types B, C and D of the primary and the two convolutional layers.
        coordinates: whether positions are added to the votes for the classes.
        pose: ``"vector"`` transforms poses as vectors of 16 numbers, like the paper's ablation.

    Input ``[B, in_channels, *image_size]``, output activations ``[B, out_channels]`` in (0, 1).
    With 32 x 32 pixels, two channels and five classes: 317,194 parameters; with ``width=64`` and
    ``types=(8, 16, 16)``: 68,754. The first routed layer casts at most 10 x 10 x 9 x B x C votes of
    16 numbers in 2-D, whatever the size of the image, because the stem bounds it; for an oblong
    image with a short edge, whose pixels the stem repeats, 22 x 8 x 9 x B x C.

    >>> network = MatrixCapsules(1, 10, (28, 28), types=(8, 8, 8))
    >>> network(torch.rand(2, 1, 28, 28)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        in_channels: int = 1,
        out_channels: int = 10,
        image_size: tuple[int, ...] = (28, 28),
        iterations: int = 3,
        decoder: bool = False,
        width: int = 32,
        types: tuple[int, int, int] = (32, 32, 32),
        coordinates: bool = True,
        pose: PoseForm = "matrix",
    ) -> None:
        super().__init__(in_channels, out_channels, image_size)
        check_positive(width=width, types=min(types))
        dims, routing = self.spatial_dims, EMRouting(iterations)
        self.conv1 = conv_type(dims)(self.stem.out_channels, width, _KERNEL, stride=_STRIDE)
        initialize(self.conv1)
        self.primarycaps = PrimaryMatrixCapsules(dims, width, types[0])
        self.convcaps1 = ConvMatrixCapsules(dims, *types[:2], 3, 2, routing, pose)
        self.convcaps2 = ConvMatrixCapsules(dims, *types[1:], 3, 1, routing, pose)
        self.classcaps = ClassMatrixCapsules(types[2], out_channels, routing, coordinates, pose)
        if decoder:
            self.decoder = ReconstructionDecoder(
                out_channels * ATOMS, in_channels, self.reconstruction_size
            )
        stride, first = 2**self.stem.halvings, _KERNEL // 2
        self.layers = (
            LayerInfo("conv1", 1, width, 2 * stride, first),
            LayerInfo("primarycaps", types[0], ATOMS, 2 * stride, first),
            LayerInfo("convcaps1", types[1], ATOMS, 4 * stride, first + 2),
            LayerInfo("convcaps2", types[2], ATOMS, 4 * stride, first + 2 + 4),
            LayerInfo("classcaps", out_channels, ATOMS, max(self.image_size)),
        )

    def _classify(self, image: Tensor) -> tuple[Tensor, Tensor]:
        last = self._computed(self._first(image))["classcaps"]
        return last.activations, last.poses

    @property
    def vote_count(self) -> int:
        """See `ClassificationNetwork.vote_count`."""
        first = tuple((edge - _KERNEL) // _STRIDE + 1 for edge in self.stem.out_size)
        second = self.convcaps1.out_size(first)
        last = self.convcaps2.out_size(second)
        return (
            self.convcaps1.vote_count(first)
            + self.convcaps2.vote_count(second)
            + self.classcaps.vote_count(last)
        )

    @sample_by_sample
    def capsules(self, image: Tensor) -> OrderedDict[str, Tensor]:
        """Every layer's poses; see `ClassificationNetwork.capsules`."""
        maps = self._first(image)
        found = OrderedDict(conv1=maps.unsqueeze(1))
        found.update((name, layer.poses) for name, layer in self._computed(maps).items())
        found["classcaps"] = found["classcaps"][(..., *(None,) * self.spatial_dims)]
        return found

    def activations(self, image: Tensor) -> OrderedDict[str, Tensor]:
        """Activations ``[B, J, *S]`` of every layer of matrix capsules, by name."""
        self.check(image)
        computed = self._computed(self._first(image))
        found = OrderedDict((name, layer.activations) for name, layer in computed.items())
        found["classcaps"] = found["classcaps"][(..., *(None,) * self.spatial_dims)]
        return found

    def _computed(self, maps: Tensor) -> OrderedDict[str, PoseMatrices]:
        found: OrderedDict[str, PoseMatrices] = OrderedDict()
        found["primarycaps"] = self.primarycaps(maps)
        found["convcaps1"] = self.convcaps1(found["primarycaps"])
        found["convcaps2"] = self.convcaps2(found["convcaps1"])
        found["classcaps"] = self.classcaps(found["convcaps2"])
        return found

    def _first(self, image: Tensor) -> Tensor:
        return torch.relu(self.conv1(self.stem(image)))
