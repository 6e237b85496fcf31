"""Noise that has a style and a field: this project's own source."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from caps_med.errors import InvalidParameter
from caps_med.layers.ordered import Ordered
from caps_med.layers.spatial import conv_type
from caps_med.networks.noise.depth import path_of
from caps_med.networks.noise.fields import SCALES, fixed_patterns, random_fields
from caps_med.networks.noise.source import NoiseSource


class FieldNoise(Ordered, NoiseSource):
    """The first half of z is a style code, the second half a random field (this project's own).

    The published sources give every pixel the same numbers, so no noise vector can express the
    grain of a detector or a cloudy background; and ``"broadcast_conv"`` reduces all of z to one
    number. Here the style enters as `STYLE_CHANNELS` constant channels, and the fields of
    `caps_med.networks.noise.fields` as one channel per scale. Both enter again before the output:
    the style as a gain and a shift of each feature (as in Perez et al. 2018, FiLM), because the
    input beside the label map has to pass twelve squashes; the fields times an amplitude that the
    last capsules and the style set at every pixel.
    """

    #: Channels that carry the style.
    STYLE_CHANNELS = 8
    placed = True
    grainy = True
    #: Standard deviation of these channels, beside label maps of 0 and 1: a dozen channels at full
    #: strength drown the labels, and small initial weights do not help, as Adam grows all alike
    #: (observed: hardly any contrast after a hundred steps).
    STRENGTH = 0.1
    #: Initial amplitude of each field before the softplus; after it 0.13, 0.02, 0.2 and 0.7.
    AMPLITUDES = (-2.0, -4.0, -1.5, 0.0)
    #: Pixels over which the fields, and last the fibres, are correlated between slices where the
    #: data did not tell: as within a slice. White noise is not, from one slice to the next.
    LENGTHS = (0.5, *(float(scale) for scale in SCALES[1:]), 32.0)
    #: Style codes are clamped to so many standard deviations: no training image lies beyond.
    STYLE_LIMIT = 2.0
    #: Standard deviation around a kept style code.
    SPREAD = 0.2
    patterns: Tensor
    codes: Tensor
    spread: Tensor

    def __init__(
        self,
        noise_size: int,
        spatial_dims: int,
        features: int,
        image_channels: int,
        fibres: bool = True,
        codes: int = 0,
    ) -> None:
        super().__init__(noise_size)
        self.fibres, self.count = fibres, len(SCALES) + fibres
        self.channels = self.STYLE_CHANNELS + self.count
        if noise_size < 4 or noise_size % 2:
            raise InvalidParameter(
                f"noise_size={noise_size}: noise_source='field' needs an even number from 4"
            )
        if codes < 0:
            raise InvalidParameter(f"codes={codes}: must be at least 0")
        grains = image_channels * self.count
        self.fc_look = nn.Linear(noise_size // 2, self.STYLE_CHANNELS)
        self.fc_gain = nn.Linear(noise_size // 2, features)
        self.fc_shift = nn.Linear(noise_size // 2, features)
        for layer in (self.fc_gain, self.fc_shift):
            nn.init.normal_(layer.weight, 0.0, 0.01)
            nn.init.zeros_(layer.bias)
        self.fc_grain = nn.Linear(noise_size // 2, grains)
        self.conv_grain = conv_type(spatial_dims)(features, grains, 1)
        nn.init.normal_(self.conv_grain.weight, 0.0, 0.01)
        nn.init.normal_(self.fc_grain.weight, 0.0, 0.01)
        with torch.no_grad():
            amplitudes = torch.tensor(self.AMPLITUDES[: self.count])
            self.fc_grain.bias.view(image_channels, -1).copy_(amplitudes)
        basis = fixed_patterns(noise_size // 2, spatial_dims)
        self.register_buffer("patterns", basis, persistent=False)
        self.register_load_state_dict_post_hook(_draw_again)  # type: ignore[no-untyped-call]  # PyTorch's own
        self.code_count = codes
        if codes:
            self.register_buffer("codes", torch.zeros(codes, noise_size // 2))
            self.register_buffer("spread", torch.ones(noise_size // 2))

    def keep_codes(self, codes: Tensor) -> None:
        """Keep style codes ``[N, M]`` for `drawn` to choose from: as many as there is room for,
        repeated if there are fewer. Entries beyond M remain standard normal.
        """
        size = codes.shape[1]
        rows = torch.arange(self.code_count) % len(codes)
        self.codes[:, :size] = codes[rows].to(self.codes)
        self.spread[:size] = self.SPREAD

    def drawn(self, normal: Tensor, uniform: Tensor) -> Tensor:
        """See `SynthesisNetwork.drawn`: near one of the kept style codes, if there are any.

        A mixture of narrow Gaussians preserves distinct modes of the training images, such as
        contrasts, whereas a single Gaussian also draws between them.
        """
        if not self.code_count:
            return normal
        chosen = (uniform * self.code_count).long().clamp(max=self.code_count - 1)
        codes, spread = (x.to(normal) for x in (self.codes, self.spread))
        half = self.noise_size // 2
        style = codes[chosen.to(normal.device)] + spread * normal[:, :half]
        return torch.cat((style, normal[:, half:]), 1)

    def fields(self, z: Tensor, spatial: Sequence[int]) -> Tensor:
        """See `NoiseSource.fields`."""
        _, vectors = self._parts(z)
        return random_fields(vectors, self.patterns, spatial, self.fibres)

    def channel(self, z: Tensor, fields: Tensor) -> Tensor:
        """See `NoiseSource.channel`."""
        style, _ = self._parts(z)
        spatial = fields.shape[2:]
        styles = self.fc_look(style).view(z.shape[0], self.STYLE_CHANNELS, *(1 for _ in spatial))
        return self.STRENGTH * torch.cat((styles.expand(-1, -1, *spatial), fields), 1)

    def modulate(self, features: Tensor, z: Tensor) -> Tensor:
        """See `NoiseSource.modulate`."""
        style, _ = self._parts(z)
        gain, shift = (
            layer(style).view(*features.shape[:2], *(1 for _ in features.shape[2:]))
            for layer in (self.fc_gain, self.fc_shift)
        )
        modulated: Tensor = features * (1 + gain) + shift
        return modulated

    def add_grain(self, maps: Tensor, features: Tensor, z: Tensor, fields: Tensor) -> Tensor:
        """See `NoiseSource.add_grain`."""
        style, _ = self._parts(z)
        scale = self.fc_grain(style).view(z.shape[0], -1, *(1 for _ in maps.shape[2:]))
        amplitude = F.softplus(self.conv_grain(features) + scale)
        amplitude = amplitude.unflatten(1, (maps.shape[1], self.count))
        grain: Tensor = (amplitude * fields.unsqueeze(1)).sum(2)
        return maps + grain

    @property
    def slice_noise_size(self) -> int:
        """See `NoiseSource.slice_noise_size`: a style code, and a vector for each field."""
        return self.noise_size // 2 * (1 + self.count)

    def of_slices(self, z: Tensor, depths: Tensor, lengths: Sequence[float] | None) -> Tensor:
        """See `NoiseSource.of_slices`: one style, and 3-D fields through which the slices cut."""
        style, field = z.chunk(2, 1)
        far = [depths.double() / length for length in lengths or self.LENGTHS[: self.count]]
        paths = [path_of(field, places, number) for number, places in enumerate(far)]
        return torch.cat([style.expand(len(depths), -1), *paths], 1)

    def _parts(self, z: Tensor) -> tuple[Tensor, list[Tensor]]:
        """The style code and one field vector, or one per field, ``[B, Z / 2]`` each."""
        style, *vectors = z.split(self.noise_size // 2, 1)
        return style.clamp(-self.STYLE_LIMIT, self.STYLE_LIMIT), vectors


def _draw_again(noise: nn.Module, _: object) -> None:
    """Draw the patterns when weights are loaded: they are not saved, and ``meta`` has none."""
    assert isinstance(noise, FieldNoise)  # noqa: S101 - of its own hook
    count, *period = noise.patterns.shape
    noise.patterns = fixed_patterns(count, len(period)).to(noise.fc_look.weight)
