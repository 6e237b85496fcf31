"""The base of classification networks: image sizes, the decoder, the decision."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from caps_med.arguments import check_positive
from caps_med.errors import InvalidParameter
from caps_med.layers.spatial import conv_type
from caps_med.networks.base import CapsuleNetwork, LayerInfo
from caps_med.networks.batching import sample_by_sample

#: A stem brings the longest edge to at most this, so that votes stay bounded for images of any
#: size, and repeats the pixels of images whose shortest edge is below `SMALLEST_EDGE`.
LARGEST_EDGE, SMALLEST_EDGE = 48, 20
#: Channels of a stem's convolutions.
_STEM_WIDTH = 32


class ClassificationNetwork(CapsuleNetwork):
    """Base of networks that map an image to a score in [0, 1] per class; several may be present.

    Called with ``[B, in_channels, *image_size]`` they answer ``[B, out_channels]``.

    Attributes:
        in_channels: channels of the image.
        out_channels: classes J.
        image_size: the one size that the network takes.
        stem: see `ImageStem`.
        decoder: see `ReconstructionDecoder`; None without reconstruction. If nothing is
            reconstructed in training, its parameters have no gradient: freeze them
            (``decoder.requires_grad_(False)``) before `DistributedDataParallel` wraps the network.
    """

    in_channels: int
    out_channels: int
    image_size: tuple[int, ...]
    stem: ImageStem
    decoder: ReconstructionDecoder | None
    whole_training_batches = True

    def __init__(self, in_channels: int, out_channels: int, image_size: Sequence[int]) -> None:
        super().__init__()
        check_positive(in_channels=in_channels, out_channels=out_channels)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.image_size, self.spatial_dims = tuple(image_size), len(image_size)
        self.stem = ImageStem(in_channels, self.image_size)
        self.decoder = None

    def forward(self, image: Tensor) -> Tensor:
        """Scores ``[B, out_channels]``, the lengths or activations of the class capsules."""
        return self.classify(image)[0]

    @sample_by_sample
    def classify(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """Scores ``[B, out_channels]`` and class capsules ``[B, out_channels, A]``.

        In training mode a batch is computed whole, as batch normalization requires; in evaluation
        mode each sample is computed alone, so that an answer does not depend on its neighbours.
        """
        return self._classify(image)

    def classify_together(self, image: Tensor) -> tuple[Tensor, Tensor]:
        """As `classify`, but the batch is computed whole in evaluation mode, too.

        This is several times as fast for small images; the answers are equal up to rounding.
        """
        self.check(image)
        return self._classify(image)

    def _classify(self, image: Tensor) -> tuple[Tensor, Tensor]:
        raise NotImplementedError

    def capsules(self, image: Tensor) -> OrderedDict[str, Tensor]:
        """Every layer's capsules ``[B, J, A, *S]`` by name, in order of computation.

        The class capsules come last, with one position: ``[B, out_channels, A, 1, 1]``.
        """
        raise NotImplementedError

    def _position(self, layer: LayerInfo, pixel: int) -> int:
        stem = self.stem
        behind = (pixel >> stem.halvings) * stem.repeats + stem.repeats // 2
        return (behind - layer.first) // (layer.stride >> stem.halvings)

    @property
    def vote_count(self) -> int:
        """Numbers in the votes of one image, over all layers; 0 without routing."""
        return 0

    def reconstruct(self, class_capsules: Tensor, present: Tensor) -> Tensor:
        """Reconstruct images ``[B, in_channels, *reconstruction_size]`` in [0, 1] from capsules.

        Args:
            class_capsules: ``[B, out_channels, A]``.
            present: ``[B, out_channels]``, 1 for the classes to draw: the true ones in training,
                the longest capsule in use; all other capsules are zeroed.

        Raises:
            InvalidParameter: the network was built without a decoder, or the shapes do not match.
        """
        if self.decoder is None:
            raise InvalidParameter(f"this {type(self).__name__} was built without a decoder")
        if present.shape != class_capsules.shape[:2]:
            raise InvalidParameter(
                f"present has shape {tuple(present.shape)}: {tuple(class_capsules.shape[:2])} is "
                "needed"
            )
        masked = class_capsules * present.unsqueeze(-1).to(class_capsules.dtype)
        result: Tensor = self.decoder(masked.flatten(1))
        return result

    @property
    def reconstructs(self) -> bool:
        """Whether the network has a decoder."""
        return self.decoder is not None

    @property
    def reconstruction_size(self) -> tuple[int, ...]:
        """The size of reconstructions: that of the image behind the stem's halvings."""
        return tuple(-(-edge // 2**self.stem.halvings) for edge in self.image_size)

    def reconstruction_target(self, image: Tensor) -> Tensor:
        """`image` averaged to `reconstruction_size`."""
        if self.reconstruction_size == self.image_size:
            return image
        return F.interpolate(image, self.reconstruction_size, mode="area")

    def check(self, image: Tensor) -> None:
        """See `CapsuleNetwork.check`."""
        if image.shape[1:] != (self.in_channels, *self.image_size):
            raise InvalidParameter(
                f"image has shape {tuple(image.shape)}: [B, "
                f"{', '.join(str(n) for n in (self.in_channels, *self.image_size))}] is needed"
            )


class ImageStem(nn.Module):
    """Bring an image to a size at which routing is affordable.

    As long as the longest edge is above 48, a convolution (kernel 3, stride 2, padding 1, ReLU)
    halves it; if the shortest is below 20, pixels are repeated. From 20 to 48 pixels, such as the
    28 of MNIST, the stem does nothing and has no parameters.

    Attributes:
        halvings: number of convolutions.
        repeats: number of times that each pixel is repeated along each axis.
        out_channels: channels behind the stem.
        out_size: size behind the stem.
    """

    def __init__(self, in_channels: int, image_size: Sequence[int]) -> None:
        super().__init__()
        size = tuple(image_size)
        if len(size) not in (2, 3) or min(size) < 1:
            raise InvalidParameter(f"image_size={size}: two or three edges are needed")
        self.halvings, convolutions, channels = 0, [], in_channels
        while max(size) > LARGEST_EDGE:
            conv = conv_type(len(size))(channels, _STEM_WIDTH, 3, stride=2, padding=1)
            convolutions += [conv, nn.ReLU()]
            size, channels = tuple(-(-edge // 2) for edge in size), _STEM_WIDTH
            self.halvings += 1
        self.repeats = -(-SMALLEST_EDGE // min(size)) if min(size) < SMALLEST_EDGE else 1
        if self.repeats * max(size) > 2 * LARGEST_EDGE:
            raise InvalidParameter(
                f"image_size={tuple(image_size)}: one edge is too many times as long as another"
            )
        self.convolutions = nn.Sequential(*convolutions)
        self.out_channels = channels
        self.out_size = tuple(edge * self.repeats for edge in size)

    def forward(self, image: Tensor) -> Tensor:
        """``[B, C, *image_size]`` -> ``[B, out_channels, *out_size]``."""
        maps: Tensor = self.convolutions(image)
        return maps if self.repeats == 1 else F.interpolate(maps, self.out_size, mode="nearest")


class ReconstructionDecoder(nn.Module):
    """Reconstruct an image from masked class capsules with three dense layers.

    Sabour et al. 2017, section 4.1: 512 and 1,024 units with ReLU, then one sigmoid per pixel.

    >>> ReconstructionDecoder(160, 1, (28, 28))(torch.rand(2, 160)).shape
    torch.Size([2, 1, 28, 28])
    """

    def __init__(self, in_features: int, channels: int, size: Sequence[int]) -> None:
        super().__init__()
        self.shape = (channels, *size)
        self.layers = nn.Sequential(
            nn.Linear(in_features, 512),
            nn.ReLU(),
            nn.Linear(512, 1024),
            nn.ReLU(),
            nn.Linear(1024, int(torch.Size(self.shape).numel())),
            nn.Sigmoid(),
        )

    def forward(self, features: Tensor) -> Tensor:
        """``[B, in_features]`` -> ``[B, channels, *size]`` in [0, 1]."""
        result: Tensor = self.layers(features).unflatten(1, self.shape)
        return result
