"""Generators with a single input, for tools that cannot pass a noise vector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from caps_med.networks import SPADE, CapsPix2Pix, Pix2Pix, SynthesisNetwork


class Seeded(SynthesisNetwork):
    """A generator with only a label map as input; z is drawn from `seed`, one for the whole batch.

    MONAI's bundle commands give a network one input. Arguments and weights are those of the
    generator, which is the other base class.
    """

    def __init__(self, seed: int = 0, **arguments: Any) -> None:  # noqa: ANN401
        super().__init__(**arguments)
        self.seed = seed

    def forward(self, label: Tensor, z: Tensor | None = None) -> Tensor:
        """The image ``[B, C, *S]`` of a label map ``[B, L, *S]``."""
        if z is None:
            z = self.noise_of_seed(self.seed).to(label).expand(label.shape[0], -1)
        image: Tensor = super().forward(label, z)
        return image


class SeededGenerator(Seeded, CapsPix2Pix):
    """CapsPix2Pix.

    >>> import torch
    >>> SeededGenerator(seed=7)(torch.zeros(2, 1, 16, 16)).shape
    torch.Size([2, 1, 16, 16])
    """


class SeededPix2Pix(Seeded, Pix2Pix):
    """pix2pix.

    >>> import torch
    >>> SeededPix2Pix(seed=7, width=8)(torch.zeros(2, 1, 16, 16)).shape
    torch.Size([2, 1, 16, 16])
    """


class SeededSPADE(Seeded, SPADE):
    """SPADE.

    >>> import torch
    >>> SeededSPADE(seed=7, width=8)(torch.zeros(2, 1, 16, 16)).shape
    torch.Size([2, 1, 16, 16])
    """


#: Name in the registry -> the class with a seed.
SEEDED: Mapping[str, type[Seeded]] = {
    "CapsPix2Pix": SeededGenerator,
    "Pix2Pix": SeededPix2Pix,
    "SPADE": SeededSPADE,
}
