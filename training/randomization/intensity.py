"""Random intensities: a Gaussian for each label, sharpness, noise and the coil's bias field."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from training.randomization.config import Randomization
from training.randomization.geometry import Random, smooth
from training.randomization.label_maps import LabelMaps

#: Blur of a pixel that is this many times as wide, in standard deviations (pixels).
BLUR = 0.42
#: How far the means of related labels scatter.
_SCATTER = 0.07
#: Chance that a constant background is the brightest value instead of the darkest, and its value.
_BRIGHT, _BRIGHTEST = 0.15, 1.3


@dataclass(frozen=True)
class Contrast:
    """Intensities of labels, and of the background.

    Attributes:
        mean, deviation: of each label's Gaussian, ``[B, L]``; index 0 is the background.
        plain: ``[B]``, whether the background is the constant `mean[:, 0]`.
    """

    mean: Tensor
    deviation: Tensor
    plain: Tensor


def random_contrast(
    maps: LabelMaps, masked: Tensor, config: Randomization, random: Random
) -> Contrast:
    """A random contrast for each of the samples; the background of `masked` ones is constant."""
    count, labels = len(masked), len(maps.ids)
    own = random.uniform(*config.mean, count, labels)
    of_class = random.uniform(*config.mean, count, maps.class_count)
    near = of_class[:, maps.classes.long()] + _SCATTER * random.normal(count, labels)
    near = torch.where(maps.classes == 0, own, near)  # what is not segmented is of many kinds
    related = random.chance(config.related, count, 1)
    mean = torch.where(related, near, own).clamp(0, 1)[:, maps.groups]
    deviation = random.uniform(*config.deviation, count, labels)[:, maps.groups]
    plain = masked | random.chance(config.plain_background, count)
    bright = plain & random.chance(_BRIGHT, count)
    # air: usually dark and noisy, at times anything
    air = torch.where(
        random.chance(0.85, count), random.uniform(0, 0.1, count), random.uniform(0, 1, count)
    )
    mean[:, 0] = torch.where(plain, torch.where(bright, _BRIGHTEST, 0.0), air)
    deviation[:, 0] = torch.where(plain, 0, random.uniform(0, 0.05, count))
    return Contrast(mean, deviation, plain)


def blurred(images: Tensor, deviation: Tensor, radius: int) -> Tensor:
    """Gaussian blur of ``[B, C, *S]`` by a standard deviation for each sample and axis ``[B, n]``.

    Beyond the edge the last pixel is repeated; `radius` is that of the kernel, in pixels.
    """
    dims = images.ndim - 2
    steps = torch.arange(-radius, radius + 1, device=images.device)
    for axis in range(dims):
        weights = torch.exp(-0.5 * (steps / deviation[:, axis, None].clamp(min=1e-3)) ** 2)
        weights = weights / weights.sum(1, keepdim=True)
        shape = [1] * dims
        shape[axis] = 2 * radius + 1
        pads = [0] * (2 * dims)
        pads[2 * (dims - 1 - axis)] = pads[2 * (dims - 1 - axis) + 1] = radius
        channels = images.shape[1]
        kernel = weights.repeat_interleave(channels, 0).view(-1, 1, *shape)
        whole = F.pad(images, pads, mode="replicate").reshape(
            1, -1, *(n + 2 * radius * (k == axis) for k, n in enumerate(images.shape[2:]))
        )
        convolve = F.conv2d if dims == 2 else F.conv3d
        images = convolve(whole, kernel, groups=len(kernel)).view(images.shape)
    return images


def sampled(images: Tensor, width: Tensor, random: Random) -> Tensor:
    """Pixels as if every `width`-th had been measured, and the others interpolated linearly.

    Args:
        images: ``[B, C, *S]``.
        width: ``[B, n]``, in pixels, at least 1.
    """
    count, dims = len(images), images.ndim - 2
    for axis in range(dims):
        n = images.shape[2 + axis]
        step = width[:, axis, None]
        phase = random.uniform(0, 1, count, 1) * (step - 1)
        at = (torch.arange(n, device=images.device) - phase) / step
        low = at.floor()
        share = (at - low).to(images.dtype)
        shape = [1] * (dims + 2)
        shape[0], shape[2 + axis] = count, n

        def measured(number: Tensor) -> Tensor:
            place = (number * step + phase).round().long().clamp(0, n - 1)  # noqa: B023
            index = place.view(shape).expand_as(images)  # noqa: B023
            return torch.gather(images, 2 + axis, index)  # noqa: B023

        weight = share.view(shape)
        images = measured(low) * (1 - weight) + measured(low + 1) * weight
    return images


def bias_points(dims: int, count: int, config: Randomization, random: Random) -> Tensor:
    """The logarithm of the bias field on its coarse grid, ``[B, 1, *points]``."""
    points = [config.bias_points] * dims
    strength = random.uniform(0, config.bias, count, *[1] * (dims + 1))
    return random.normal(count, 1, *points) * strength


def bias_field(points: Tensor, size: tuple[int, ...]) -> Tensor:
    """The bias field ``[B, 1, *size]``, a factor."""
    return smooth(points, size).exp()
