"""The look of an image in a few numbers: what the first entries of z stand for.

A generator that learns from one image for each label map learns to ignore its noise vector: no z
brings it nearer to the target than another. Here a training image's z begins with that image's own
look, measured with fixed statistics, so that z says something about the target; and a synthetic
image is measured with the same statistics, which must give back the z it was made from (the
latent reconstruction of Zhu et al. 2017, BicycleGAN, with an encoder that needs no training).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from caps_med.networks.noise import FieldNoise

#: A class smaller than this, in pixels, has no look of its own; it is given the average one.
SMALLEST = 24
#: Standard deviation in pixels below which structure counts as grain, and the grain of a still
#: image, which keeps the logarithm finite.
SMOOTH, STILL = 1.5, 0.004
#: Directions with less than this share of the largest variance carry no look.
LEAST_VARIANCE = 0.1


class Style:
    """Statistics of images by class, whitened: standard normal over the training data.

    Args:
        statistics: of training crops, ``[N, M]``; NaN where a class is missing.
        most: numbers to keep at most.

    Attributes:
        size: numbers that a look has.
    """

    def __init__(self, statistics: Tensor, most: int) -> None:
        self.mean = statistics.nanmean(0)
        self.mean = torch.where(torch.isnan(self.mean), 0, self.mean)
        centred = self._centred(statistics)
        self.scale = centred.square().mean(0).sqrt().clamp_min(1e-4)
        variances, directions = torch.linalg.eigh((centred / self.scale).T.cov())
        order = variances.argsort(descending=True)[:most]
        kept = order[variances[order] > LEAST_VARIANCE * variances.max()]
        self.whitening = directions[:, kept] / variances[kept].sqrt()
        self.size = len(kept)

    @classmethod
    def fit(cls, crops: Iterable[tuple[Tensor, Tensor]], most: int) -> Style:
        """From images ``[B, C, H, W]`` with their conditions (see `look`)."""
        return cls(torch.cat([measured(image, label) for image, label in crops]).double(), most)

    def look(self, image: Tensor, condition: Tensor) -> Tensor:
        """The look ``[B, size]`` of images ``[B, C, H, W]`` in [0, 1]; differentiable.

        Cut off where the generator cuts it off (`FieldNoise.STYLE_LIMIT` standard deviations).

        Args:
            image: real or synthetic.
            condition: the label map, ``[B, 1, H, W]`` binary or ``[B, K, H, W]`` one-hot.
        """
        centred = self._centred(measured(image, condition))
        scale, whitening = (x.to(centred) for x in (self.scale, self.whitening))
        return (centred / scale @ whitening).clamp(-FieldNoise.STYLE_LIMIT, FieldNoise.STYLE_LIMIT)

    def _centred(self, statistics: Tensor) -> Tensor:
        difference = statistics - self.mean.to(statistics)
        return torch.where(torch.isnan(difference), 0, difference)


def measured(image: Tensor, condition: Tensor) -> Tensor:
    """Mean, unevenness and log grain of each class and channel, ``[B, 3 K C]``; NaN if missing.

    Unevenness is the standard deviation of the smoothed image over the class, grain the root mean
    square of what smoothing takes away.
    """
    classes = torch.cat((1 - condition, condition), 1) if condition.shape[1] == 1 else condition
    weight = classes.unsqueeze(2)  # [B, K, 1, H, W]
    area = weight.sum((3, 4))
    smooth = _smoothed(image)

    def over_class(values: Tensor) -> Tensor:
        return (weight * values.unsqueeze(1)).sum((3, 4)) / area.clamp_min(1)

    mean = over_class(smooth)
    spread = (over_class(smooth.square()) - mean.square()).clamp_min(1e-6).sqrt()
    grain = torch.log((over_class((image - smooth).square()) + STILL**2).sqrt())
    found = torch.stack((mean, spread, grain), 3)
    return torch.where((area < SMALLEST).unsqueeze(3), torch.nan, found).flatten(1)


def smooth_alone(image: Tensor, still: Tensor) -> Tensor:
    """The image, whose gradient reaches of the still one only what is smooth.

    Its grain is asked for in a number a class, and the cheapest way to bring that up is a fixed
    pattern of stripes from the transposed convolutions: the noise alone is to answer for it.
    """
    fine = still - _smoothed(still)
    return image - fine + fine.detach()


def _smoothed(image: Tensor) -> Tensor:
    """Gaussian blur with mirrored edges."""
    reach = round(3 * SMOOTH)
    taps = torch.arange(-reach, reach + 1, device=image.device, dtype=image.dtype)
    kernel = torch.exp(-0.5 * (taps / SMOOTH).square())
    kernel = (kernel / kernel.sum()).repeat(image.shape[1], 1)
    padded = F.pad(image, [reach] * 4, mode="reflect")
    rows = F.conv2d(padded, kernel[:, None, :, None], groups=image.shape[1])
    return F.conv2d(rows, kernel[:, None, None, :], groups=image.shape[1])
