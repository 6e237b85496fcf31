"""CapsPix2Pix: a conditional capsule generator from label map and noise to image.

Bass et al. 2019, "Image synthesis with a convolutional capsule generative adversarial network"
(MIDL), figure 2.

Deviations: any number of label channels (one-hot) and image channels; 2-D and 3-D; agreement per
sample (upstream averages it over the batch); dense noise is one of six sources and not the default,
because it fixes the image size; weights start He-normal, where upstream's N(0, 0.02) lets twelve
squashes drive the signal to zero; on request, convolutions continue the border instead of padding
zeros, and transposed convolutions are smoothed or give way to interpolation.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from caps_med.arguments import check_choice, check_positive, check_share
from caps_med.errors import InvalidParameter
from caps_med.layers import ConvCapsule, DeconvCapsule, join_types
from caps_med.layers.convolutional import Padding, Upsampling
from caps_med.layers.initialization import initialize
from caps_med.layers.spatial import channels_last, conv_type
from caps_med.networks.base import Output
from caps_med.networks.batching import sample_by_sample
from caps_med.networks.gan_layers import DIVISOR, PlainLayer, Shape, conv_capsule, deconv_capsule
from caps_med.networks.noise import InputNoise, NoiseName, build_noise
from caps_med.networks.noisy import NoisyGenerator

BorderPadding = Literal["zeros", "replicate"]
#: What it is called in a capsule layer.
_VOTES_PADDING: Mapping[BorderPadding, Padding] = {"zeros": "symmetric", "replicate": "replicate"}


class CapsPix2Pix(NoisyGenerator):
    """Synthesize an image from a label map and a noise vector.

    Args:
        spatial_dims: 2 or 3.
        label_channels: channels of the label map: 1 for a binary mask, else one-hot classes.
        image_channels: channels of the image.
        noise_source: where z enters, see `caps_med.networks.noise`; all but ``"input"`` work at
            any size.
        noise_size: length Z of z, even for ``"field"``; ignored by ``"dropout"``, whose z has one
            entry per capsule type.
        image_size: the one size of ``noise_source="input"``.
        atoms: atoms of the first capsules; the published 16.
        dropout: channel dropout after each capsule layer while training (0.5 as published).
        output: ``"sigmoid"`` (image in [0, 1]) or ``"tanh"`` (in [-1, 1]).
        upsampling: ``"transposed"`` convolutions as published; without a checkerboard:
            ``"smoothed"`` ones, with the same weights, or ``"linear"`` interpolation and a
            convolution; see `caps_med.layers.DeconvCapsule`.
        padding: padding of the convolutions: ``"zeros"`` as published, or ``"replicate"``, which
            leaves no rim along the border.
        fibres: whether the noise ``"field"`` has curved fibres, such as axons behind the focal
            plane.
        codes: number of style codes of training images that the noise ``"field"`` keeps and near
            which new ones are drawn; 0 draws from a standard normal distribution.
        capsules: False replaces every capsule layer with a convolution of the same width (with a
            leaky rectifier): the ablation that shows what routing contributes, without `layers`.

    ``gen(label [B, L, *S], z [B, Z])`` -> image ``[B, C, *S]``; each spatial axis a multiple of 8.

    >>> gen = CapsPix2Pix(spatial_dims=2, label_channels=1, image_channels=1)
    >>> gen(torch.zeros(1, 1, 32, 40), torch.randn(1, gen.noise_size)).shape
    torch.Size([1, 1, 32, 40])
    """

    divisor = DIVISOR

    def __init__(
        self,
        spatial_dims: int = 2,
        label_channels: int = 1,
        image_channels: int = 1,
        noise_source: NoiseName = "broadcast_conv",
        noise_size: int = 64,
        image_size: Sequence[int] | None = None,
        atoms: int = 16,
        dropout: float = 0.0,
        output: Output = "sigmoid",
        upsampling: Upsampling = "transposed",
        padding: BorderPadding = "zeros",
        fibres: bool = True,
        codes: int = 0,
        capsules: bool = True,
    ) -> None:
        super().__init__()
        check_choice(get_args(Output), output=output)
        check_positive(
            label_channels=label_channels, image_channels=image_channels, noise_size=noise_size,
            atoms=atoms,
        )  # fmt: skip
        check_share(dropout=dropout)
        if padding not in get_args(BorderPadding):
            raise InvalidParameter(f"padding={padding!r}: one of {get_args(BorderPadding)}")
        self.padding, self.upsampling = padding, upsampling
        self.spatial_dims, self.label_channels = spatial_dims, label_channels
        self.image_channels = image_channels
        self.dropout, self.output, self.has_capsules = dropout, output, capsules
        a = atoms
        self.noise = build_noise(
            noise_source, noise_size, spatial_dims, image_size, 8, 2 * a, a, image_channels, fibres,
            codes,
        )  # fmt: skip
        conv = conv_type(spatial_dims)
        maps = label_channels + self.noise.channels
        self.conv1 = conv(maps, a, 5, padding=2, padding_mode=padding)
        self.convcaps1 = self._conv((1, a), (2, a), stride=2)
        self.convcaps2 = self._conv((2, a), (4, a))
        self.convcaps3 = self._conv((4, a), (4, 2 * a), stride=2)
        self.convcaps4 = self._conv((4, 2 * a), (8, 2 * a))
        self.convcaps5 = self._conv((8, 2 * a), (8, 4 * a), stride=2)
        self.convcaps6 = self._conv((8, 4 * a), (8, 2 * a))
        self.deconvcaps1 = self._deconv((8, 2 * a), (8, 2 * a))
        self.convcaps8 = self._conv((16, 2 * a), (4, 2 * a))
        self.deconvcaps2 = self._deconv((4, 2 * a), (4, a))
        self.convcaps9 = self._conv((8, a), (4, a))
        self.deconvcaps3 = self._deconv((4, a), (2, a))
        self.convcaps10 = self._conv((3, a), (1, a), kernel_size=1)
        self.conv2 = conv(a, image_channels, 1)
        initialize(self.conv1)
        initialize(self.conv2)
        self.layers = self._layer_infos(a) if capsules else ()

    def resample_by(self, upsampling: Upsampling, padding: BorderPadding) -> None:
        """Change how capsules are enlarged and the border is continued; the weights stay.

        Raises:
            InvalidParameter: a change from or to ``"linear"``, whose weights have other shapes.
        """
        if "linear" in {upsampling, self.upsampling} and upsampling != self.upsampling:
            raise InvalidParameter(
                f"upsampling={upsampling!r}: the weights of 'linear' have other shapes"
            )
        self.upsampling, self.padding = upsampling, padding
        self.conv1.padding_mode = padding
        for layer in self.modules():
            if isinstance(layer, ConvCapsule):
                layer.pad_by(_VOTES_PADDING[padding])
            elif isinstance(layer, DeconvCapsule):
                layer.enlarge_by(upsampling)

    @property
    def image_size(self) -> tuple[int, ...] | None:
        """See `SynthesisNetwork.image_size`."""
        return self.noise.image_size if isinstance(self.noise, InputNoise) else None

    @sample_by_sample
    def capsules(self, label: Tensor, z: Tensor) -> OrderedDict[str, Tensor]:
        """Every layer's capsules ``[B, J, A, *S / stride]`` by name, in order of computation."""
        if not self.has_capsules:
            return super().capsules(label, z)
        return self._capsules(label, z, self.noise.fields(z, label.shape[2:]))

    def _capsules(self, label: Tensor, z: Tensor, fields: Tensor) -> OrderedDict[str, Tensor]:
        c: OrderedDict[str, Tensor] = OrderedDict()
        c["conv1"] = self._first(label, self.noise.channel(z, fields))
        c["convcaps1"] = self._drop(self.convcaps1(c["conv1"]))
        c["convcaps2"] = self._drop(self.convcaps2(c["convcaps1"]))
        c["convcaps3"] = self._drop(self.convcaps3(c["convcaps2"]))
        c["convcaps4"] = self._drop(self.convcaps4(c["convcaps3"]))
        c["convcaps5"] = self._drop(self.convcaps5(c["convcaps4"]))
        c["convcaps6"] = self._drop(self.convcaps6(c["convcaps5"]))
        latent = self.noise.latent(c["convcaps6"], z)
        c["deconvcaps1"] = self._drop(self.deconvcaps1(latent))
        skip = join_types(c["deconvcaps1"], c["convcaps4"])
        c["convcaps8"] = self._drop(self.convcaps8(skip))
        c["deconvcaps2"] = self._drop(self.deconvcaps2(c["convcaps8"]))
        skip = join_types(c["deconvcaps2"], c["convcaps2"])
        c["convcaps9"] = self._drop(self.convcaps9(skip))
        c["deconvcaps3"] = self._drop(self.deconvcaps3(c["convcaps9"]))
        c["convcaps10"] = self.convcaps10(join_types(c["deconvcaps3"], c["conv1"]))
        return c

    def _features(self, label: Tensor, z: Tensor, fields: Tensor) -> Tensor:
        return self._capsules(label, z, fields)["convcaps10"].flatten(1, 2)

    def _maps(self, features: Tensor) -> Tensor:
        maps: Tensor = self.conv2(features)
        return maps

    def _first(self, label: Tensor, noise: Tensor) -> Tensor:
        maps = self.conv1(torch.cat((label, noise), 1))
        return F.leaky_relu(channels_last(maps), 0.01).unsqueeze(1)

    def _drop(self, capsules: Tensor) -> Tensor:
        if not (self.training and self.dropout):
            return capsules
        kept = F.dropout(capsules.new_ones(capsules.shape[:3]), self.dropout)
        return capsules * kept.view(*kept.shape, *(1 for _ in range(self.spatial_dims)))

    def _conv(
        self, below: Shape, above: Shape, kernel_size: int = 5, stride: int = 1
    ) -> ConvCapsule | PlainLayer:
        layer = conv_capsule(
            self.spatial_dims, self._taken(below), above, kernel_size, stride,
            _VOTES_PADDING[self.padding],
        )  # fmt: skip
        return layer if self.has_capsules else PlainLayer(layer)

    def _deconv(self, below: Shape, above: Shape) -> DeconvCapsule | PlainLayer:
        layer = deconv_capsule(self.spatial_dims, self._taken(below), above, self.upsampling)
        return layer if self.has_capsules else PlainLayer(layer)

    def _taken(self, below: Shape) -> Shape:
        """The inputs of a layer: these capsules, or for the ablation all channels as one type."""
        types, atoms = below
        return below if self.has_capsules else (1, types * atoms)
