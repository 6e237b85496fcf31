"""The intensity scale of the whole image that a random slice stands for.

Where a network is used, an image is normalized as a whole. Of a random image only a slice or a
crop is drawn; the distribution of all its intensities is known all the same: it is a mixture of the
labels' Gaussians, widened by the bias field.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from caps_med.images import Normalization
from caps_med.images.normalization import MODE_SHARE
from training.randomization.intensity import Contrast

#: Intensities at which the distribution is tabulated.
LOWEST, HIGHEST, STEPS = -0.2, 2.5, 271
#: Values of the bias field over which the distribution is averaged.
_BIASES = 8


@dataclass(frozen=True)
class Scale:
    """A monotone map of intensities for each sample, as a table.

    Attributes:
        table: ``[B, STEPS]``, what the intensities from `LOWEST` to `HIGHEST` become.
        background: ``[B]``, a constant background's intensity; NaN if it is not constant.
        shown_as: ``[B]``, what that becomes.
    """

    table: Tensor
    background: Tensor
    shown_as: Tensor

    @classmethod
    def of(
        cls, normalization: Normalization, contrast: Contrast, shares: Tensor, points: Tensor
    ) -> Self:
        """That of `normalization` over whole images in which labels have these `shares`."""
        levels = torch.linspace(LOWEST, HIGHEST, STEPS, device=shares.device)
        below = _distribution(levels, contrast, shares, points.flatten(1))
        plain = contrast.plain
        background = torch.where(plain, contrast.mean[:, 0], torch.nan)
        dark = contrast.mean[:, 0] < 0.5
        if normalization.ranks:
            table = torch.where(plain[:, None], _with_mode(below, dark[:, None]), below)
            shown_as = torch.where(dark, MODE_SHARE / 2, 1 - MODE_SHARE / 2)
            return cls(table, background, shown_as)
        return cls._between(normalization, levels, below, contrast, shares)

    @classmethod
    def _between(
        cls,
        normalization: Normalization,
        levels: Tensor,
        below: Tensor,
        contrast: Contrast,
        shares: Tensor,
    ) -> Self:
        """Between two percentiles."""
        plain, dark = contrast.plain, contrast.mean[:, 0] < 0.5
        air = torch.where(plain, shares[:, 0], 0)[:, None]
        whole = (1 - air) * below + torch.where(dark[:, None], air, 0)
        low = _percentile(whole, levels, (normalization.lower or 0) / 100)
        low = torch.where(plain & dark, 0.0, low)
        high = _percentile(whole, levels, normalization.upper / 100)
        high = torch.where(plain & ~dark, contrast.mean[:, 0], high)
        table = (levels - low[:, None]) / (high - low).clamp(min=1e-3)[:, None]
        shown_as = torch.where(dark, 0.0, 1.0)
        background = torch.where(plain, contrast.mean[:, 0], torch.nan)
        return cls(table.clamp(0, 1), background, shown_as)

    def apply(self, images: Tensor) -> Tensor:
        """``[B, C, *S]`` on the scale, in [0, 1]."""
        flat = images.flatten(1)
        at = ((flat - LOWEST) * ((STEPS - 1) / (HIGHEST - LOWEST))).clamp(0, STEPS - 1.001)
        low = at.floor()
        share = at - low
        index = low.long()
        scaled = torch.lerp(self.table.gather(1, index), self.table.gather(1, index + 1), share)
        constant = (flat - self.background[:, None]).abs() < 1e-6
        return torch.where(constant, self.shown_as[:, None], scaled).view(images.shape).clamp(0, 1)


def _distribution(levels: Tensor, contrast: Contrast, shares: Tensor, points: Tensor) -> Tensor:
    """Share of the intensities below each level ``[B, STEPS]``; a constant background is left out.

    Args:
        points: ``[B, P]``, the logarithm of the bias field at its points.
    """
    counted = shares.clone()
    counted[:, 0] = torch.where(contrast.plain, 0, shares[:, 0])
    counted = counted / counted.sum(1, keepdim=True).clamp(min=1e-6)
    mean, deviation = contrast.mean[:, None], contrast.deviation.clamp(min=0.01)[:, None]
    below = torch.zeros(len(shares), len(levels), device=levels.device)
    chosen = torch.linspace(0, points.shape[1] - 1, _BIASES, device=levels.device).long()
    for factor in points[:, chosen].exp().unbind(1):
        z = (levels[:, None] / factor[:, None, None] - mean) / deviation
        below += (torch.special.ndtr(z) * counted[:, None]).sum(-1) / _BIASES
    return below


def _with_mode(below: Tensor, dark: Tensor) -> Tensor:
    """Ranks that leave room for a constant background at their dark or bright end."""
    return torch.where(dark, MODE_SHARE, 0.0) + (1 - MODE_SHARE) * below


def _percentile(below: Tensor, levels: Tensor, share: float) -> Tensor:
    """The level below which a share of the voxels lies, ``[B]``."""
    at = torch.searchsorted(below.contiguous(), torch.full_like(below[:, :1], share))
    return levels[at.squeeze(1).clamp(max=len(levels) - 1)]
