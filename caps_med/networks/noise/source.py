"""The interface of the noise sources."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


class NoiseSource(nn.Module):
    """Base: adds no input channel and leaves latent capsules and image unchanged.

    Attributes:
        noise_size: length Z of the noise vector ``[B, Z]``.
        channels: extra input channels beside the label map's.
        placed: whether a pixel's noise depends on its position; an image is then never cut into
            windows, each of which would start the noise anew.
        grainy: whether `add_grain` changes the image.
    """

    channels = 0
    placed = False
    grainy = False

    def __init__(self, noise_size: int) -> None:
        super().__init__()
        self.noise_size = noise_size

    @property
    def slice_noise_size(self) -> int:
        """Length of the noise vectors from `of_slices`."""
        return self.noise_size

    def of_slices(self, z: Tensor, depths: Tensor, lengths: Sequence[float] | None) -> Tensor:
        """The noise vectors ``[D, slice_noise_size]`` for the slices of one volume: here all are z.

        Args:
            z: ``[1, Z]``.
            depths: ``[D]``, positions of the slices in pixels.
            lengths: correlation length of each random field, in pixels; None for those of
                isotropic fields.
        """
        return z.expand(len(depths), -1)

    def drawn(self, normal: Tensor, uniform: Tensor) -> Tensor:
        """See `SynthesisNetwork.drawn`: standard normal here."""
        return normal

    def fields(self, z: Tensor, spatial: Sequence[int]) -> Tensor:
        """Random fields ``[B, F, *S]`` that `channel` and `add_grain` share; none here."""
        return z.new_zeros(z.shape[0], 0, *spatial)

    def channel(self, z: Tensor, fields: Tensor) -> Tensor:
        """The extra input channels ``[B, channels, *S]``; `fields` gives their size."""
        return z.new_zeros(z.shape[0], 0, *fields.shape[2:])

    def latent(self, capsules: Tensor, z: Tensor) -> Tensor:
        """The capsules ``[B, J, A, *S/8]`` with the noise in them."""
        return capsules

    def modulate(self, features: Tensor, z: Tensor) -> Tensor:
        """The last capsules ``[B, A, *S]``, scaled and shifted by z."""
        return features

    def add_grain(self, maps: Tensor, features: Tensor, z: Tensor, fields: Tensor) -> Tensor:
        """The maps ``[B, C, *S]`` that become the image, plus the noise of each pixel.

        Args:
            maps: without the noise.
            features: ``[B, A, *S]``, the last capsules.
            z: ``[B, Z]``.
            fields: the output of `fields`.
        """
        return maps
