"""Where the noise vector z enters the CapsPix2Pix generator (Bass et al. 2019, section 2.2).

Each source is one class behind the same two calls: extra input channels beside the label map, and
a hook on the capsules at one eighth of the size. Sources that do not use one of them leave it be.
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
from caps_med.routing import Routing

NoiseName = Literal["input", "broadcast", "broadcast_conv", "broadcast_latent", "dropout"]

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
    """

    channels = 0

    def __init__(self, noise_size: int) -> None:
        super().__init__()
        self.noise_size = noise_size

    def channel(self, z: Tensor, spatial: Sequence[int]) -> Tensor:
        """The extra input channels ``[B, channels, *S]``."""
        return z.new_zeros(z.shape[0], 0, *spatial)

    def latent(self, capsules: Tensor, z: Tensor) -> Tensor:
        """The capsules ``[B, J, A, *S/8]`` with the noise in them."""
        return capsules


class InputNoise(NoiseSource):
    """A dense layer from z to one channel of the image; ties the generator to one size."""

    channels = 1

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
) -> NoiseSource:
    """The noise source of that name; `types` and `atoms` are those at one eighth of the size.

    Raises:
        InvalidParameter: an unknown name, or a size that the source cannot use.
    """
    sources: dict[str, Callable[[], NoiseSource]] = {
        "input": lambda: InputNoise(noise_size, image_size),
        "broadcast": lambda: BroadcastNoise(noise_size),
        "broadcast_conv": lambda: BroadcastConvNoise(noise_size, spatial_dims),
        "broadcast_latent": lambda: LatentNoise(noise_size, spatial_dims, types, atoms),
        "dropout": lambda: DropoutNoise(spatial_dims, types, atoms),
    }
    if name not in sources:
        raise InvalidParameter(f"noise_source={name!r}: must be one of {tuple(sources)}")
    return sources[name]()
