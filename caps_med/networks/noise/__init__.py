"""Where the noise vector z enters the CapsPix2Pix generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from caps_med.errors import InvalidParameter
from caps_med.networks.noise.field import FieldNoise
from caps_med.networks.noise.published import (
    BroadcastConvNoise,
    BroadcastNoise,
    DropoutNoise,
    InputNoise,
    LatentNoise,
)
from caps_med.networks.noise.source import NoiseSource

__all__ = [
    "BroadcastConvNoise",
    "FieldNoise",
    "InputNoise",
    "NoiseName",
    "NoiseSource",
    "build_noise",
]

NoiseName = Literal["input", "broadcast", "broadcast_conv", "broadcast_latent", "dropout", "field"]


def build_noise(
    name: NoiseName,
    noise_size: int,
    spatial_dims: int,
    image_size: Sequence[int] | None,
    types: int,
    atoms: int,
    features: int,
    image_channels: int,
    fibres: bool = True,
    codes: int = 0,
) -> NoiseSource:
    """Build the noise source with the given name.

    Args:
        name: see `caps_med.networks.noise.published`, and `FieldNoise` for ``"field"``.
        noise_size: length Z of the noise vector.
        spatial_dims: 2 or 3.
        image_size: the one size of ``"input"``.
        types, atoms: of the capsules at one eighth of the size.
        features: atoms of the last capsules.
        image_channels: channels of the image.
        fibres: whether ``"field"`` has fibres.
        codes: style codes that ``"field"`` keeps, see `FieldNoise.drawn`.

    Raises:
        InvalidParameter: an unknown name, or a size that the source cannot use.
    """
    sources: dict[str, Callable[[], NoiseSource]] = {
        "input": lambda: InputNoise(noise_size, spatial_dims, image_size),
        "broadcast": lambda: BroadcastNoise(noise_size),
        "broadcast_conv": lambda: BroadcastConvNoise(noise_size, spatial_dims),
        "broadcast_latent": lambda: LatentNoise(noise_size, spatial_dims, types, atoms),
        "dropout": lambda: DropoutNoise(spatial_dims, types, atoms),
        "field": lambda: FieldNoise(
            noise_size, spatial_dims, features, image_channels, fibres, codes
        ),
    }
    if name not in sources:
        raise InvalidParameter(f"noise_source={name!r}: must be one of {tuple(sources)}")
    return sources[name]()
