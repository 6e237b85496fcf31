"""Generators whose noise comes from a source of `caps_med.networks.noise`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from caps_med.networks.base import SynthesisNetwork
from caps_med.networks.batching import sample_by_sample
from caps_med.networks.noise import NoiseSource
from caps_med.routing.layout import widen


class NoisyGenerator(SynthesisNetwork):
    """Base of these generators: compute features, turn them into maps, add grain to the maps.

    Attributes:
        noise: where z enters.
    """

    noise: NoiseSource

    @property
    def noise_size(self) -> int:
        """Length Z of the noise vector."""
        return self.noise.noise_size

    @property
    def slice_noise_size(self) -> int:
        """See `SynthesisNetwork.slice_noise_size`."""
        return self.noise.slice_noise_size

    def drawn(self, normal: Tensor, uniform: Tensor) -> Tensor:
        """See `SynthesisNetwork.drawn`."""
        return self.noise.drawn(normal, uniform)

    def noise_of_slices(
        self, z: Tensor, depths: Tensor, lengths: Sequence[float] | None = None
    ) -> Tensor:
        """See `SynthesisNetwork.noise_of_slices`."""
        return self.noise.of_slices(z, depths, lengths)

    @property
    def windowed(self) -> bool:
        """See `SynthesisNetwork.windowed`."""
        return not self.noise.placed

    @sample_by_sample
    def forward(self, label: Tensor, z: Tensor) -> Tensor:
        """The image ``[B, C, *S]`` of a label map ``[B, L, *S]`` and noise ``[B, Z]``."""
        return self.clean_and_image(label, z)[1]

    @sample_by_sample
    def clean_and_image(self, label: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        """See `SynthesisNetwork.clean_and_image`."""
        fields = self.noise.fields(z, label.shape[2:])
        features = self._features(label, z, fields)
        maps = self._maps(self.noise.modulate(features, z))
        clean = self._activated(maps)
        if not self.noise.grainy:
            return clean, clean
        return clean, self._activated(self.noise.add_grain(maps, features, z, fields))

    def _features(self, label: Tensor, z: Tensor, fields: Tensor) -> Tensor:
        """The last features ``[B, A, *S]``; `fields` are those of the noise."""
        raise NotImplementedError

    def _maps(self, features: Tensor) -> Tensor:
        """The maps ``[B, C, *S]`` that become the image."""
        raise NotImplementedError

    def _activated(self, maps: Tensor) -> Tensor:
        maps = widen(maps)
        return torch.sigmoid(maps) if self.output == "sigmoid" else torch.tanh(maps)
