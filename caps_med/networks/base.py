"""The interface of the networks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from caps_med.errors import InvalidParameter
from caps_med.layers import ConvCapsule, DeconvCapsule
from caps_med.routing.layout import widen

#: Kept under the root of a capsule's length, so that its gradient at zero is finite.
_EPSILON = 1e-12


#: The last nonlinearity of a generator: images in [0, 1] or in [-1, 1].
Output = Literal["sigmoid", "tanh"]


@dataclass(frozen=True)
class LayerInfo:
    """One capsule layer: its name, capsule types J, atoms A, and input pixels per position.

    Attributes:
        first: the first of the input pixels for which position 0 stands: convolutions without
            padding leave out those before. For classification, counted behind the stem.
    """

    name: str
    types: int
    atoms: int
    stride: int
    first: int = 0


class CapsuleNetwork(nn.Module):
    """Base of the networks here.

    Attributes:
        spatial_dims: 2 or 3.
        divisor: each spatial axis of the input must be a multiple of it.
        normalizes_coarsest: whether the network normalizes its coarsest maps, which must then have
            more than one position: an input of `divisor` along every axis is too small.
        layers: the capsule layers in order of computation.
        lists_all: whether `layers` make up nearly all of the network; if not, it also has
            convolutions.
        unit_votes: numbers per input position that the votes of the largest layer with unit routing
            occupy at once without gradients; 0 without such layers.
        whole_training_batches: whether samples of a batch see one another while training, as in
            batch normalization.
    """

    spatial_dims: int
    divisor: int = 1
    normalizes_coarsest: bool = False
    lists_all: bool = True
    unit_votes: float = 0.0
    whole_training_batches: bool = False
    layers: tuple[LayerInfo, ...] = ()

    @property
    def explored(self) -> CapsuleNetwork:
        """The network whose layers are shown: for an ensemble, its first member."""
        return self

    @property
    def decoder_channels(self) -> float:
        """Channels per input position that the convolutional decoder holds at its peak.

        The decoder is not among `layers`; 0 without one.
        """
        return 0.0

    def nearest_position(self, layer: LayerInfo, pixel: int, count: int) -> int:
        """Of `count` positions of a layer along an axis, the one that stands for an input pixel, or
        is nearest to it.
        """
        return min(max(0, self._position(layer, pixel)), count - 1)

    def _position(self, layer: LayerInfo, pixel: int) -> int:
        return (pixel - layer.first) // layer.stride

    def capsules(self, *inputs: Any) -> OrderedDict[str, Tensor]:  # noqa: ANN401 - each network has its own
        """Every layer's capsules ``[B, J, A, *S / stride]`` by name, in order of computation.

        Raises:
            InvalidParameter: the network has no capsules.
        """
        raise InvalidParameter(f"{type(self).__name__} has no capsules to show")

    def check(self, *inputs: Any, **named: Any) -> None:  # noqa: ANN401 - each network has its own
        """Reject inputs that the network cannot process.

        Raises:
            InvalidParameter: a shape is wrong; the message gives the required one.
        """
        raise NotImplementedError

    def _layer_infos(self, first_atoms: int) -> tuple[LayerInfo, ...]:
        """`conv1` as one capsule type, then the capsule layers among the children."""
        infos, stride = [LayerInfo("conv1", 1, first_atoms, 1)], 1
        for name, layer in self.named_children():
            if isinstance(layer, ConvCapsule):
                stride *= layer.stride
            elif isinstance(layer, DeconvCapsule):
                stride //= layer.stride
            else:
                continue
            infos.append(LayerInfo(name, layer.out_types, layer.out_atoms, stride))
        return tuple(infos)


class SegmentationNetwork(CapsuleNetwork):
    """Base of networks that map an image to one probability per class and position.

    Called with ``[B, in_channels, *S]`` they return ``[B, out_channels, *S]`` in [0, 1].

    Attributes:
        in_channels: channels of the image.
        out_channels: classes, background included; 1 is binary.
    """

    in_channels: int
    out_channels: int

    def capsules(self, image: Tensor) -> OrderedDict[str, Tensor]:
        """Every layer's capsules ``[B, J, A, *S / stride]`` by name, in order of computation.

        Raises:
            InvalidParameter: the network has no capsules.
        """
        raise InvalidParameter(f"{type(self).__name__} has no capsules to show")

    def features(self, image: Tensor) -> Tensor:
        """Maps ``[B, F, *S]`` at image size, from which the last layer computes the output.

        Raises:
            InvalidParameter: the network has no such maps, for example an ensemble.
        """
        raise InvalidParameter(f"a {type(self).__name__} has no features of its own")


class SynthesisNetwork(CapsuleNetwork):
    """Base of networks that map a label map and a noise vector to an image.

    Called with ``[B, label_channels, *S]`` and ``[B, noise_size]`` they return
    ``[B, image_channels, *S]``; the same z always gives the same image.

    Attributes:
        label_channels: channels of the label map: 1 for a binary mask, else one-hot classes.
        image_channels: channels of the image.
        output: ``"sigmoid"`` (image in [0, 1]) or ``"tanh"`` (in [-1, 1]).
    """

    label_channels: int
    image_channels: int
    output: Output

    @property
    def noise_size(self) -> int:
        """Length Z of the noise vector."""
        raise NotImplementedError

    @property
    def slice_noise_size(self) -> int:
        """Length of the noise vectors from `noise_of_slices`, which the network also accepts."""
        return self.noise_size

    def noise_of_seed(self, seed: int) -> Tensor:
        """The noise vector ``[1, Z]`` for a seed, on the CPU: the same on every machine."""
        generator = torch.Generator().manual_seed(seed)
        # whatever PyTorch's default type and device are: in another type it draws other numbers
        given = torch.empty(0, dtype=torch.float32, device="cpu")
        normal = given.new_empty(1, self.noise_size).normal_(generator=generator)
        return self.drawn(normal, given.new_empty(1).uniform_(generator=generator))

    def drawn(self, normal: Tensor, uniform: Tensor) -> Tensor:
        """Noise vectors ``[B, Z]`` like those the network was trained with.

        Args:
            normal: ``[B, Z]``, standard normal; most networks use it unchanged.
            uniform: ``[B]``, in [0, 1): selects among the style codes, if the network keeps any.
        """
        return normal

    def noise_of_slices(
        self, z: Tensor, depths: Tensor, lengths: Sequence[float] | None = None
    ) -> Tensor:
        """The noise vectors ``[D, slice_noise_size]`` for the slices of one volume.

        If the noise has random fields, the slices are cuts through 3-D fields, so that neighbours
        are alike and distant slices are not; otherwise all slices have the same noise.

        Args:
            z: ``[1, Z]``, noise vector of the volume.
            depths: ``[D]``, positions of the slices in pixels.
            lengths: correlation length of each random field, in pixels; None for those of
                isotropic fields.
        """
        return z.expand(len(depths), -1)

    @property
    def image_size(self) -> tuple[int, ...] | None:
        """The only size that the network accepts; None if it accepts any."""
        return None

    @property
    def traced_size(self) -> tuple[int, ...] | None:
        """The only size that an exported program accepts; None if it accepts any."""
        return self.image_size

    @property
    def windowed(self) -> bool:
        """Whether a large image may be assembled from windows: noise is independent of position."""
        return True

    def capsules(self, label: Tensor, z: Tensor) -> OrderedDict[str, Tensor]:
        """Every layer's capsules ``[B, J, A, *S / stride]`` by name, in order of computation.

        Raises:
            InvalidParameter: the network has no capsules.
        """
        raise InvalidParameter(f"{type(self).__name__} has no capsules to show")

    def clean_and_image(self, label: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        """The image without its grain, and the image; the same if the network adds no grain."""
        image: Tensor = self(label, z)
        return image, image

    def check(self, label: Tensor, z: Tensor) -> None:
        """See `CapsuleNetwork.check`."""
        check_input("label", label, self.label_channels, self.spatial_dims, self.divisor)
        sizes = {self.noise_size, self.slice_noise_size}
        if z.shape not in [(label.shape[0], size) for size in sizes]:
            raise InvalidParameter(
                f"z has shape {tuple(z.shape)}: [B, Z] = {(label.shape[0], self.noise_size)} is "
                "needed"
            )


def capsule_lengths(capsules: Tensor) -> Tensor:
    """Euclidean length of each capsule: ``[B, J, A, *S]`` -> ``[B, J, *S]``, at least float32."""
    return torch.sqrt(widen(capsules).square().sum(2) + _EPSILON)


def class_lengths(capsules: Tensor) -> Tensor:
    """The lengths ``[B, J, *S]`` of squashed class capsules, without rounding errors above one.

    PyTorch's binary cross-entropy, for example, refuses values above one.
    """
    return capsule_lengths(capsules).clamp_max(1)


def check_input(
    argument: str, maps: Tensor, channels: int, spatial_dims: int, divisor: int
) -> None:
    """Reject maps that a network cannot process.

    Raises:
        InvalidParameter: wrong rank or channel count, or a size that is not a multiple of
            `divisor`; the message gives the size to pad to.
    """
    shape = tuple(maps.shape)
    if maps.ndim != spatial_dims + 2 or shape[1] != channels:
        axes = ", ".join(["B", str(channels), *"DHW"[-spatial_dims:]])
        raise InvalidParameter(f"{argument} has shape {shape}: [{axes}] is needed")
    if any(size % divisor or size < 1 for size in shape[2:]):
        padded = tuple(max(1, -(-size // divisor)) * divisor for size in shape[2:])
        raise InvalidParameter(
            f"{argument} has spatial size {shape[2:]}: each axis must be a multiple of {divisor}; "
            f"pad to {padded}"
        )
