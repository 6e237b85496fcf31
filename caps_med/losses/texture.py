"""A texture loss that is insensitive to pixel noise."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class TextureLoss(nn.Module):
    """Mean absolute difference of local band energies, by position and sorted, in 2-D.

    Two images of one scene with different noise differ in every pixel, so a pixelwise loss is
    lowest without noise. Their energies agree: the root mean square of each band of a Laplacian
    pyramid (Burt & Adelson 1983) over windows of `window` positions. Where an image is grainy, its
    reconstruction must be grainy too, and on the same scales.

    Args:
        levels: number of bands, each at half the resolution of the one before.
        window: edge of the windows, in positions of the level; neighbours overlap by half.

    ``loss(image [B, C, H, W], reference [B, C, H, W])`` -> scalar. Each edge must be at least
    `window`; bands that would be smaller than a window are left out.

    >>> TextureLoss()(torch.zeros(1, 1, 32, 32), torch.zeros(1, 1, 32, 32))
    tensor(0.)
    """

    #: Keeps the gradient of a root finite where a band is empty.
    _EPSILON = 1e-5

    def __init__(self, levels: int = 4, window: int = 8) -> None:
        super().__init__()
        self.levels, self.window = levels, window

    def forward(self, image: Tensor, reference: Tensor) -> Tensor:
        """See the class."""
        pairs = zip(self._energies(image), self._energies(reference), strict=True)
        return torch.stack([_difference(a, b) for a, b in pairs]).mean()

    def _energies(self, image: Tensor) -> list[Tensor]:
        found: list[Tensor] = []
        for _ in range(self.levels):
            if found and min(image.shape[2:]) < self.window:
                break
            coarse = F.avg_pool2d(image, 2)
            band = image - F.interpolate(coarse, image.shape[2:], mode="bilinear")
            energy = F.avg_pool2d(band.square(), self.window, self.window // 2)
            found.append((energy + self._EPSILON).sqrt())
            image = coarse
        return found


def _difference(energies: Tensor, reference: Tensor) -> Tensor:
    """Half the difference by position, half that of the sorted energies per image and channel.

    By position alone, structures at unpredictable places (a fibre behind the focal plane) are best
    approximated by a little energy everywhere; the sorted energies require much in a few places.
    """
    ours, theirs = (each.flatten(2).sort(-1).values for each in (energies, reference))
    return (F.l1_loss(energies, reference) + F.l1_loss(ours, theirs)) / 2
