"""The style of an image in a few numbers, which the first entries of z encode.

A generator that sees one image for each label map learns to ignore its noise vector: no z brings it
closer to the target than another. Here the z of a training image begins with that image's own style
code, measured with fixed statistics, so that z says something about the target. A synthetic image
is measured with the same statistics, which must give back the code it was made from (the latent
reconstruction of Zhu et al. 2017, BicycleGAN, with an encoder that needs no training).
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from caps_med.networks.noise import FieldNoise
from training.evaluation.metrics.planes import as_slices

#: A class with fewer pixels has no style of its own; it is given the average one.
MIN_AREA = 24
#: Standard deviation of the Gaussian that separates structure from grain, in pixels.
SIGMA = 1.5
#: Grain of a noise-free image, which keeps the logarithm finite.
MIN_GRAIN = 0.004
#: Directions with less than this share of the largest variance are left out.
MIN_VARIANCE = 0.1


class Style:
    """An encoder of fixed statistics by class, whitened: standard normal over the training data.

    Args:
        statistics: of training crops, ``[N, M]``; NaN where a class is missing.
        max_size: numbers to keep at most.

    Attributes:
        size: length of a style code.
    """

    def __init__(self, statistics: Tensor, max_size: int) -> None:
        self.mean = statistics.nanmean(0)
        self.mean = torch.where(torch.isnan(self.mean), 0, self.mean)
        centred = self._centred(statistics)
        self.scale = centred.square().mean(0).sqrt().clamp_min(1e-4)
        variances, directions = torch.linalg.eigh((centred / self.scale).T.cov())
        order = variances.argsort(descending=True)[:max_size]
        kept = order[variances[order] > MIN_VARIANCE * variances.max()]
        self.whitening = directions[:, kept] / variances[kept].sqrt()
        self.size = len(kept)

    @classmethod
    def fit(cls, crops: Iterable[tuple[Tensor, Tensor]], max_size: int) -> Style:
        """From images ``[B, C, *S]`` with their conditions (see `encode`)."""
        statistics = torch.cat([style_statistics(image, label) for image, label in crops])
        return cls(statistics.double(), max_size)

    def most_complete(self, crops: Iterable[tuple[Tensor, Tensor]], count: int) -> Tensor:
        """Style codes ``[count, size]`` of those crops that show the most classes.

        A class that a crop does not show has the average style, so that codes of crops with few
        classes are of an average between all images.

        Args:
            crops: as for `fit`, at least `count`.
        """
        statistics = torch.cat([style_statistics(image, label) for image, label in crops])
        missing = torch.isnan(statistics).sum(1)
        chosen = missing.argsort(stable=True)[:count]
        return self._code(statistics[chosen.sort().values].double())

    def encode(self, image: Tensor, condition: Tensor) -> Tensor:
        """The style codes ``[B, size]`` of images ``[B, C, *S]`` in [0, 1]; differentiable.

        Clamped as in the generator, to `FieldNoise.STYLE_LIMIT` standard deviations.

        Args:
            image: real or synthetic.
            condition: the label map, ``[B, 1, *S]`` binary or ``[B, K, *S]`` one-hot.
        """
        return self._code(style_statistics(image, condition))

    def _code(self, statistics: Tensor) -> Tensor:
        centred = self._centred(statistics)
        scale, whitening = (x.to(centred) for x in (self.scale, self.whitening))
        return (centred / scale @ whitening).clamp(-FieldNoise.STYLE_LIMIT, FieldNoise.STYLE_LIMIT)

    def _centred(self, statistics: Tensor) -> Tensor:
        difference = statistics - self.mean.to(statistics)
        return torch.where(torch.isnan(difference), 0, difference)


def style_statistics(image: Tensor, condition: Tensor) -> Tensor:
    """Mean, unevenness and log grain of each class and channel, ``[B, 3 K C]``; NaN if missing.

    Unevenness is the standard deviation of the smoothed image over the class, grain the root mean
    square of what smoothing removes.
    """
    classes = torch.cat((1 - condition, condition), 1) if condition.shape[1] == 1 else condition
    weight = classes.unsqueeze(2)  # [B, K, 1, *S]
    space = tuple(range(3, weight.ndim))
    area = weight.sum(space)
    smooth = _smoothed(image)

    def over_class(values: Tensor) -> Tensor:
        return (weight * values.unsqueeze(1)).sum(space) / area.clamp_min(1)

    mean = over_class(smooth)
    spread = (over_class(smooth.square()) - mean.square()).clamp_min(1e-6).sqrt()
    grain = torch.log((over_class((image - smooth).square()) + MIN_GRAIN**2).sqrt())
    statistics = torch.stack((mean, spread, grain), 3)
    return torch.where((area < MIN_AREA).unsqueeze(3), torch.nan, statistics).flatten(1)


def detach_fine_structure(image: Tensor, clean: Tensor) -> Tensor:
    """The image, with no gradient through the fine structure of the clean one.

    The style asks for grain by one number per class, and the cheapest way to raise it is a fixed
    pattern of stripes from the transposed convolutions: the noise alone should provide it.
    """
    fine = clean - _smoothed(clean)
    return image - fine + fine.detach()


def _smoothed(image: Tensor) -> Tensor:
    """Gaussian blur with mirrored edges, of volumes slice by slice."""
    if image.ndim == 5:
        slices = torch.unflatten(_smoothed(as_slices(image)), 0, (len(image), image.shape[2]))
        return slices.movedim(1, 2)
    reach = round(3 * SIGMA)
    taps = torch.arange(-reach, reach + 1, device=image.device, dtype=image.dtype)
    kernel = torch.exp(-0.5 * (taps / SIGMA).square())
    kernel = (kernel / kernel.sum()).repeat(image.shape[1], 1)
    padded = F.pad(image, [reach] * 4, mode="reflect")
    rows = F.conv2d(padded, kernel[:, None, :, None], groups=image.shape[1])
    return F.conv2d(rows, kernel[:, None, None, :], groups=image.shape[1])
