"""Where the noise vector z enters the CapsPix2Pix generator (Bass et al. 2019, section 2.2).

Each source is one class behind the same four calls: extra input channels beside the label map, a
hook on the capsules at one eighth of the size, and two on what becomes the image. Sources that do
not use one of them leave it be. The sixth source, ``"field"``, is this project's own: see
`caps_med.networks.noise_field`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from caps_med.errors import InvalidParameter
from caps_med.layers import ConvCapsule
from caps_med.layers.convolutional import initialize
from caps_med.networks.noise_field import COUNT, patterns, spanned
from caps_med.routing import Routing

NoiseName = Literal["input", "broadcast", "broadcast_conv", "broadcast_latent", "dropout", "field"]

#: Capsule types and atoms of one layer.
Shape = tuple[int, int]
#: Every layer of CapsPix2Pix routes so.
INPUT_ROUTING = Routing(iterations=3, competition="inputs")

_CONV = {2: nn.Conv2d, 3: nn.Conv3d}


class NoiseSource(nn.Module):
    """Base: no channel at the input, latent capsules unchanged.

    Attributes:
        noise_size: length Z of the noise vector ``[B, Z]``.
        channels: extra input channels beside the label map's.
        placed: whether a pixel's noise depends on where it is; then an image is never cut into
            windows, each of which would begin the noise anew.
    """

    channels = 0
    placed = False

    def __init__(self, noise_size: int) -> None:
        super().__init__()
        self.noise_size = noise_size

    def channel(self, z: Tensor, spatial: Sequence[int]) -> Tensor:
        """The extra input channels ``[B, channels, *S]``."""
        return z.new_zeros(z.shape[0], 0, *spatial)

    def latent(self, capsules: Tensor, z: Tensor) -> Tensor:
        """The capsules ``[B, J, A, *S/8]`` with the noise in them."""
        return capsules

    def lit(self, features: Tensor, z: Tensor) -> Tensor:
        """The last capsules ``[B, A, *S]`` as the image is to show them."""
        return features

    def grain(self, maps: Tensor, features: Tensor, z: Tensor) -> Tensor:
        """The maps ``[B, C, *S]`` that become the image, with the noise of each pixel in them.

        Args:
            maps: without it.
            features: ``[B, A, *S]``, the last capsules.
            z: ``[B, Z]``.
        """
        return maps


class InputNoise(NoiseSource):
    """A dense layer from z to one channel of the image; ties the generator to one size."""

    channels = 1
    placed = True

    def __init__(self, noise_size: int, image_size: Sequence[int] | None) -> None:
        super().__init__(noise_size)
        if image_size is None:
            raise InvalidParameter("noise_source='input' needs image_size=(H, W): it is one size")
        self.image_size = tuple(image_size)
        self.fc = nn.Linear(noise_size, int(torch.tensor(self.image_size).prod()))

    def channel(self, z: Tensor, spatial: Sequence[int]) -> Tensor:
        """See `NoiseSource.channel`."""
        if tuple(spatial) != self.image_size:
            raise InvalidParameter(
                f"label has spatial size {tuple(spatial)}: noise_source='input' was built for "
                f"{self.image_size}; resize the label map, or train with 'broadcast_conv'"
            )
        plane: Tensor = self.fc(z)
        return plane.view(z.shape[0], 1, *spatial)


class BroadcastNoise(NoiseSource):
    """Row r of one extra channel holds z[r mod Z]."""

    channels = 1
    placed = True

    def channel(self, z: Tensor, spatial: Sequence[int]) -> Tensor:
        """See `NoiseSource.channel`."""
        rows = torch.arange(spatial[0], device=z.device) % self.noise_size
        column = z[:, rows].view(z.shape[0], 1, spatial[0], *(1 for _ in spatial[1:]))
        return column.expand(-1, -1, *spatial)


class BroadcastConvNoise(NoiseSource):
    """z at every position as Z channels, a 5x5 convolution to one channel, leaky ReLU 0.01."""

    channels = 1

    def __init__(self, noise_size: int, spatial_dims: int) -> None:
        super().__init__(noise_size)
        self.conv_noise = _CONV[spatial_dims](noise_size, 1, 5, padding=2)
        initialize(self.conv_noise)

    def channel(self, z: Tensor, spatial: Sequence[int]) -> Tensor:
        """See `NoiseSource.channel`."""
        field = z.view(*z.shape, *(1 for _ in spatial)).expand(-1, -1, *spatial)
        return F.leaky_relu(self.conv_noise(field), 0.01)


class LatentNoise(NoiseSource):
    """z split among the capsule types at one eighth of the size, as extra atoms."""

    def __init__(self, noise_size: int, spatial_dims: int, types: int, atoms: int) -> None:
        super().__init__(noise_size)
        if noise_size % types:
            raise InvalidParameter(
                f"noise_size={noise_size}: noise_source='broadcast_latent' splits it among {types} "
                f"capsule types; use a multiple of {types}"
            )
        self.types = types
        below = (types, atoms + noise_size // types)
        self.conv_latent = capsule_layer(spatial_dims, below, (types, atoms))

    def latent(self, capsules: Tensor, z: Tensor) -> Tensor:
        """See `NoiseSource.latent`."""
        atoms = z.view(z.shape[0], self.types, -1, *(1 for _ in capsules.shape[3:]))
        atoms = atoms.expand(-1, -1, -1, *capsules.shape[3:])
        mixed: Tensor = self.conv_latent(torch.cat((capsules, atoms), 2))
        return mixed


class DropoutNoise(NoiseSource):
    """Dropout (0.5) of whole capsule types after a capsule layer, on at inference too.

    Upstream's `Dropout2d` meets capsules ``[B, J, A, H, W]`` and so drops along J. Deviation: it
    draws from the global generator; here type j is dropped where z[j] < 0, so that a seed gives
    the same image again.
    """

    def __init__(self, spatial_dims: int, types: int, atoms: int) -> None:
        super().__init__(types)
        self.conv_dropout = capsule_layer(spatial_dims, (types, atoms), (types, atoms))

    def latent(self, capsules: Tensor, z: Tensor) -> Tensor:
        """See `NoiseSource.latent`."""
        mixed: Tensor = self.conv_dropout(capsules)
        kept = (z >= 0).view(*mixed.shape[:2], *(1 for _ in mixed.shape[2:]))
        return mixed * kept * 2


class FieldNoise(NoiseSource):
    """The first half of z is a look, the second half a random field (this project's own).

    The published sources give every pixel the same numbers, so no noise vector can ask for the
    grain of a detector or for clouds of background; and ``"broadcast_conv"`` brings all of z down
    to one number. Here the look enters as `LOOKS` constant channels, and the fields of
    `caps_med.networks.noise_field` as one channel a scale. Both enter again in front of the image:
    the look as a gain and a shift of each feature (as in Perez et al. 2018, FiLM), for what enters
    at the label map has twelve squashes to pass, the fields times an amplitude that the last
    capsules and the look decide at every pixel.
    """

    #: Channels that carry the look.
    LOOKS = 8
    channels = LOOKS + COUNT
    placed = True
    #: Standard deviation of these channels, beside label maps of 0 and 1: a dozen channels at full
    #: strength drown the labels, and weights that start small do not help, as Adam lets all grow
    #: alike (seen: hardly any contrast after a hundred steps).
    STRENGTH = 0.1
    #: Before training, of each field, before a softplus: 0.13, 0.02, 0.2 and 0.7.
    AMPLITUDES = (-2.0, -4.0, -1.5, 0.0)
    #: Beyond so many standard deviations a look stays as it is: no training image has been there.
    FARTHEST = 2.0
    patterns: Tensor

    def __init__(
        self, noise_size: int, spatial_dims: int, features: int, image_channels: int
    ) -> None:
        super().__init__(noise_size)
        if noise_size < 4 or noise_size % 2:
            raise InvalidParameter(
                f"noise_size={noise_size}: noise_source='field' halves it: an even number from 4"
            )
        grains = image_channels * COUNT
        self.fc_look = nn.Linear(noise_size // 2, self.LOOKS)
        self.fc_gain = nn.Linear(noise_size // 2, features)
        self.fc_shift = nn.Linear(noise_size // 2, features)
        for layer in (self.fc_gain, self.fc_shift):
            nn.init.normal_(layer.weight, 0.0, 0.01)
            nn.init.zeros_(layer.bias)
        self.fc_grain = nn.Linear(noise_size // 2, grains)
        self.conv_grain = _CONV[spatial_dims](features, grains, 1)
        nn.init.normal_(self.conv_grain.weight, 0.0, 0.01)
        nn.init.normal_(self.fc_grain.weight, 0.0, 0.01)
        with torch.no_grad():
            self.fc_grain.bias.copy_(torch.tensor(self.AMPLITUDES).repeat(image_channels))
        basis = patterns(noise_size // 2, spatial_dims)
        self.register_buffer("patterns", basis, persistent=False)

    def channel(self, z: Tensor, spatial: Sequence[int]) -> Tensor:
        """See `NoiseSource.channel`."""
        look, field = self._halves(z)
        looks = self.fc_look(look).view(z.shape[0], self.LOOKS, *(1 for _ in spatial))
        looks = looks.expand(-1, -1, *spatial)
        return self.STRENGTH * torch.cat((looks, spanned(field, self.patterns, spatial)), 1)

    def _halves(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Look and field ``[B, Z / 2]``."""
        look, field = z.chunk(2, 1)
        return look.clamp(-self.FARTHEST, self.FARTHEST), field

    def lit(self, features: Tensor, z: Tensor) -> Tensor:
        """See `NoiseSource.lit`."""
        look, _ = self._halves(z)
        gain, shift = (
            layer(look).view(*features.shape[:2], *(1 for _ in features.shape[2:]))
            for layer in (self.fc_gain, self.fc_shift)
        )
        lit: Tensor = features * (1 + gain) + shift
        return lit

    def grain(self, maps: Tensor, features: Tensor, z: Tensor) -> Tensor:
        """See `NoiseSource.grain`."""
        look, field = self._halves(z)
        scale = self.fc_grain(look).view(z.shape[0], -1, *(1 for _ in maps.shape[2:]))
        amplitude = F.softplus(self.conv_grain(features) + scale)
        amplitude = amplitude.unflatten(1, (maps.shape[1], COUNT))
        fields = spanned(field, self.patterns, maps.shape[2:]).unsqueeze(1)
        grain: Tensor = (amplitude * fields).sum(2)
        return maps + grain


def capsule_layer(
    spatial_dims: int, below: Shape, above: Shape, kernel_size: int = 5, stride: int = 1
) -> ConvCapsule:
    """A convolutional capsule layer as CapsPix2Pix has them: input competition, vote bias."""
    return ConvCapsule(
        spatial_dims,
        *below,
        *above,
        kernel_size,
        stride,
        routing=INPUT_ROUTING,
        vote_bias=True,
        routing_bias=False,
    )


def build_noise(
    name: NoiseName,
    noise_size: int,
    spatial_dims: int,
    image_size: Sequence[int] | None,
    types: int,
    atoms: int,
    features: int,
    image_channels: int,
) -> NoiseSource:
    """The noise source of that name.

    Args:
        types, atoms: of the capsules at one eighth of the size.
        features: atoms of the last capsules.

    Raises:
        InvalidParameter: an unknown name, or a size that the source cannot use.
    """
    sources: dict[str, Callable[[], NoiseSource]] = {
        "input": lambda: InputNoise(noise_size, image_size),
        "broadcast": lambda: BroadcastNoise(noise_size),
        "broadcast_conv": lambda: BroadcastConvNoise(noise_size, spatial_dims),
        "broadcast_latent": lambda: LatentNoise(noise_size, spatial_dims, types, atoms),
        "dropout": lambda: DropoutNoise(spatial_dims, types, atoms),
        "field": lambda: FieldNoise(noise_size, spatial_dims, features, image_channels),
    }
    if name not in sources:
        raise InvalidParameter(f"noise_source={name!r}: must be one of {tuple(sources)}")
    return sources[name]()
