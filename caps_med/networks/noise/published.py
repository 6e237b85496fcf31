"""The noise sources of Bass et al. 2019, section 2.2."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from caps_med.arguments import check_multiple
from caps_med.errors import InvalidParameter
from caps_med.layers.initialization import initialize
from caps_med.layers.spatial import conv_type
from caps_med.networks.gan_layers import DIVISOR, conv_capsule
from caps_med.networks.noise.source import NoiseSource
from caps_med.routing.backends import in_graph


class InputNoise(NoiseSource):
    """A dense layer from z to one input channel; ties the generator to one image size."""

    channels = 1
    placed = True

    def __init__(
        self, noise_size: int, spatial_dims: int, image_size: Sequence[int] | None
    ) -> None:
        super().__init__(noise_size)
        if image_size is None:
            raise InvalidParameter("noise_source='input' needs image_size=(H, W)")
        self.image_size = tuple(image_size)
        if len(self.image_size) != spatial_dims:
            raise InvalidParameter(
                f"image_size={self.image_size}: {spatial_dims} edges are needed, as spatial_dims "
                f"is {spatial_dims}"
            )
        for edge in self.image_size:
            check_multiple(DIVISOR, image_size=edge)
        self.fc = nn.Linear(noise_size, math.prod(self.image_size))

    def channel(self, z: Tensor, fields: Tensor) -> Tensor:
        """See `NoiseSource.channel`."""
        spatial = fields.shape[2:]
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

    def channel(self, z: Tensor, fields: Tensor) -> Tensor:
        """See `NoiseSource.channel`."""
        spatial = fields.shape[2:]
        rows = torch.arange(spatial[0], device=z.device) % self.noise_size
        column = z[:, rows].view(z.shape[0], 1, spatial[0], *(1 for _ in spatial[1:]))
        return column.expand(-1, -1, *spatial)


class BroadcastConvNoise(NoiseSource):
    """z at every position as Z channels, a 5x5 convolution to one channel, leaky ReLU 0.01.

    Since z is the same at every position, so is the channel, except for a border of two pixels. If
    no gradient is needed, it is computed on a map of five positions along each axis, and the middle
    one is repeated: on a CPU the same to the last bit, in half of the time of a small generator.
    """

    channels = 1

    def __init__(self, noise_size: int, spatial_dims: int) -> None:
        super().__init__(noise_size)
        self.conv_noise = conv_type(spatial_dims)(noise_size, 1, 5, padding=2)
        initialize(self.conv_noise)

    def channel(self, z: Tensor, fields: Tensor) -> Tensor:
        """See `NoiseSource.channel`."""
        spatial = fields.shape[2:]
        whole = in_graph() or torch.is_grad_enabled()
        size = spatial if whole else [min(edge, self._distinct) for edge in spatial]
        field = z.view(*z.shape, *(1 for _ in size)).expand(-1, -1, *size)
        maps = F.leaky_relu(self.conv_noise(field), 0.01)
        return maps if whole else _stretched(maps, spatial)

    @property
    def _distinct(self) -> int:
        """Distinct positions per axis: the middle, and the border where padding is read."""
        return 1 + 2 * int(self.conv_noise.padding[0])


def _stretched(maps: Tensor, spatial: Sequence[int]) -> Tensor:
    """Maps ``[B, C, *S']`` enlarged by repeating the middle position along each axis."""
    for axis, (edge, given) in enumerate(zip(spatial, maps.shape[2:], strict=True), start=2):
        if edge == given:
            continue
        before = given // 2
        first, middle, last = maps.split([before, 1, given - before - 1], axis)
        size = [-1] * maps.ndim
        size[axis] = 1 + edge - given
        maps = torch.cat([first, middle.expand(size), last], axis)
    return maps


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
        self.conv_latent = conv_capsule(spatial_dims, below, (types, atoms))

    def latent(self, capsules: Tensor, z: Tensor) -> Tensor:
        """See `NoiseSource.latent`."""
        atoms = z.view(z.shape[0], self.types, -1, *(1 for _ in capsules.shape[3:]))
        atoms = atoms.expand(-1, -1, -1, *capsules.shape[3:])
        mixed: Tensor = self.conv_latent(torch.cat((capsules, atoms), 2))
        return mixed


class DropoutNoise(NoiseSource):
    """Dropout (0.5) of whole capsule types after a capsule layer, on at inference too.

    Upstream applies `Dropout2d` to capsules ``[B, J, A, H, W]``, which drops along J. Deviation:
    upstream draws from the global generator; here type j is dropped if z[j] < 0, so that a seed
    always gives the same image.
    """

    def __init__(self, spatial_dims: int, types: int, atoms: int) -> None:
        super().__init__(types)
        self.conv_dropout = conv_capsule(spatial_dims, (types, atoms), (types, atoms))

    def latent(self, capsules: Tensor, z: Tensor) -> Tensor:
        """See `NoiseSource.latent`."""
        mixed: Tensor = self.conv_dropout(capsules)
        kept = (z >= 0).view(*mixed.shape[:2], *(1 for _ in mixed.shape[2:]))
        return mixed * kept * 2
