"""Random augmentation of whole batches on the device that trains.

The transforms of `training.transforms` change one sample at a time on the CPU, which a fast GPU
waits for. Here the images lie in the device's memory and a batch is cut, warped and varied at
once. The strengths are those of the same `Augmentation`, the distributions nearly: three axes are
rotated in 3-D, displacements are elastic in 3-D too, and the bias field is a smooth random field.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from training.data.samples import Sample
from training.transforms import Augmentation

#: Distance of the points whose random displacement is interpolated, in pixels.
ELASTIC_SPACING = 24
#: Points along each axis of the random field that is interpolated to a bias field.
FIELD_POINTS = 3


@dataclass(frozen=True)
class ContrastShift:
    """Augmentation beyond one modality; nothing by default.

    Attributes:
        inverted: probability that bright becomes dark.
        coarse: largest factor by which the resolution falls, in 30 % of the batches.
    """

    inverted: float = 0.0
    coarse: float = 1.0


class DeviceSamples:
    """Labelled images of one rank in a device's memory, continued at the end to one size.

    Args:
        samples: see `training.data.samples.Sample`.
        device: where they are kept.
    """

    def __init__(self, samples: Sequence[Sample], device: torch.device) -> None:
        images = [torch.as_tensor(np.asarray(s["image"]), dtype=torch.float32) for s in samples]
        labels = [torch.as_tensor(np.asarray(s["label"]), dtype=torch.float32) for s in samples]
        self.sizes = np.array([image.shape[1:] for image in images])
        size = tuple(int(edge) for edge in self.sizes.max(0))
        self.images = torch.stack([_continued(x, size, "replicate") for x in images]).to(device)
        self.labels = torch.stack([_continued(x, size, "constant") for x in labels]).to(device)
        self.labelled = [np.argwhere(label[0].numpy() > 0) for label in labels]

    def __len__(self) -> int:
        return len(self.images)


class BatchAugmentation:
    """Draw augmented crops of `DeviceSamples`.

    Args:
        crop: size of the crops.
        augmentation: strengths; None only cuts.
        foreground: share of the crops that is centred on a labelled pixel.
        shift: see `ContrastShift`.
    """

    def __init__(
        self,
        crop: Sequence[int],
        augmentation: Augmentation | None,
        foreground: float = 0.0,
        shift: ContrastShift | None = None,
    ) -> None:
        self.crop, self.augmentation = tuple(crop), augmentation
        self.foreground, self.shift = foreground, shift or ContrastShift()

    def draw(
        self, samples: DeviceSamples, batch: int, rng: np.random.Generator
    ) -> tuple[Tensor, Tensor]:
        """Images ``[B, C, *crop]`` in [0, 1] and class indices ``[B, 1, *crop]``."""
        chosen = rng.integers(len(samples), size=batch)
        where = torch.as_tensor(chosen, device=samples.images.device)
        images, labels = samples.images[where], samples.labels[where]
        grid = self._grid(samples, chosen, rng)
        image = F.grid_sample(images, grid, "bilinear", "border", align_corners=True)
        label = F.grid_sample(labels, grid, "nearest", "zeros", align_corners=True)
        if self.augmentation is not None:
            image = self._varied(image, self.augmentation, rng)
        return image, label.round()

    def _grid(self, samples: DeviceSamples, chosen: np.ndarray, rng: np.random.Generator) -> Tensor:
        """Where each position of the crops is in the images, as `grid_sample` takes it."""
        crop, size = np.array(self.crop), np.array(samples.images.shape[2:])
        centres = np.stack([self._centre(samples, int(i), rng) for i in chosen])
        linear = np.stack([self._linear(len(crop), rng) for _ in chosen])
        scale = np.maximum(size - 1, 1)
        theta = linear * (crop - 1)[None, None, :] / scale[None, :, None]
        shift = 2 * centres / scale - 1
        affine = np.concatenate([theta[:, ::-1, ::-1], shift[:, ::-1, None]], 2)
        where = torch.as_tensor(affine.astype(np.float32), device=samples.images.device)
        grid = F.affine_grid(where, [len(chosen), 1, *self.crop], align_corners=True)
        if self.augmentation is None or not self.augmentation.elastic:
            return grid
        coarse = (
            self._displacements(len(chosen), rng) * 2 / scale[::-1].reshape(-1, *(1,) * len(crop))
        )
        moved = torch.as_tensor(coarse.astype(np.float32), device=grid.device)
        return grid + _interpolated(moved, self.crop).movedim(1, -1)

    def _centre(self, samples: DeviceSamples, index: int, rng: np.random.Generator) -> np.ndarray:
        """A crop's centre: at a labelled pixel or anywhere, the crop inside the image or around."""
        half, size = (np.array(self.crop) - 1) / 2, samples.sizes[index]
        ends = np.sort(np.stack([half, size - 1 - half]), 0)
        labelled = samples.labelled[index]
        if len(labelled) and rng.random() < self.foreground:
            return np.asarray(np.clip(labelled[rng.integers(len(labelled))], *ends))
        return np.asarray(rng.uniform(*ends))

    def _linear(self, dims: int, rng: np.random.Generator) -> np.ndarray:
        """Rotation, zoom, shear and flips as one matrix."""
        matrix, a = np.eye(dims), self.augmentation
        if a is None:
            return matrix
        for first in range(dims):
            for second in range(first + 1, dims):
                turn, angle = np.eye(dims), rng.uniform(-a.rotation, a.rotation)
                turn[[first, second], [first, second]] = math.cos(angle)
                turn[first, second], turn[second, first] = -math.sin(angle), math.sin(angle)
                matrix = matrix @ turn
        matrix = matrix @ np.diag(1 + rng.uniform(-a.zoom, a.zoom, dims))
        sheared = rng.uniform(-a.shear, a.shear, (dims, dims))
        np.fill_diagonal(sheared, 1)
        flips = np.ones(dims)
        flips[-1] -= 2 * (rng.random() < a.flip_columns)
        flips[-2] -= 2 * (rng.random() < a.flip_rows)
        return matrix @ sheared @ np.diag(flips)

    def _displacements(self, batch: int, rng: np.random.Generator) -> np.ndarray:
        """Random displacements of a coarse grid in pixels, ``[B, D, *points]``, x first."""
        assert self.augmentation is not None  # noqa: S101 - of the only caller
        dims = len(self.crop)
        points = [max(2, round(edge / ELASTIC_SPACING) + 1) for edge in self.crop]
        most = rng.uniform(0, self.augmentation.elastic, (batch, *(1,) * (dims + 1)))
        return np.asarray(rng.uniform(-1, 1, (batch, dims, *points)) * most)

    def _varied(self, image: Tensor, a: Augmentation, rng: np.random.Generator) -> Tensor:
        """Bias field, gamma, brightness, resolution, blur, noise and inversion."""
        batch = len(image)

        def of_each(values: np.ndarray) -> Tensor:
            shape = (batch, *(1,) * (image.ndim - 1))
            return torch.as_tensor(values, dtype=torch.float32, device=image.device).view(shape)

        def some(share: float) -> np.ndarray:
            return rng.random(batch) < share

        points = (FIELD_POINTS,) * len(self.crop)
        field = torch.as_tensor(rng.normal(0, a.field, (batch, 1, *points))).float()
        bias = _interpolated(field.to(image.device), self.crop) * of_each(some(0.4))
        image = image * bias.exp()
        gamma = np.where(some(0.6), np.exp(rng.uniform(-a.contrast, a.contrast, batch)), 1)
        image = image.clamp(0, 1).pow(of_each(gamma))
        bright = np.where(some(0.5), 1 + rng.uniform(-a.brightness, a.brightness, batch), 1)
        image = image * of_each(bright)
        if self.shift.coarse > 1 and rng.random() < 0.3:
            axis = int(rng.integers(-1, len(self.crop)))
            image = coarser(image, rng.uniform(1, self.shift.coarse), axis)
        if a.blur:
            smooth = blurred(image, rng.uniform(min(0.2, a.blur), a.blur))
            image = torch.where(of_each(some(0.2)) > 0, smooth, image)
        noise = of_each(np.where(some(0.5), rng.uniform(0, a.noise, batch), 0))
        image = (image + noise * torch.randn_like(image)).clamp(0, 1)
        dark = of_each(some(self.shift.inverted))
        return image + dark * (1 - 2 * image)


def coarser(image: Tensor, factor: float, axis: int = -1) -> Tensor:
    """Maps averaged over `factor` pixels, along one axis or all (-1), and interpolated back."""
    size = image.shape[2:]
    small = [
        max(1, round(edge / factor)) if axis in (-1, number) else edge
        for number, edge in enumerate(size)
    ]
    return _interpolated(F.interpolate(image, small, mode="area"), size)


def blurred(image: Tensor, sigma: float) -> Tensor:
    """``[B, C, *S]`` smoothed by a Gaussian; the image is continued by its last pixels."""
    reach = max(1, math.ceil(3 * sigma))
    points = torch.arange(-reach, reach + 1, device=image.device, dtype=image.dtype)
    kernel = torch.exp(-0.5 * (points / sigma) ** 2)
    kernel = kernel / kernel.sum()
    for axis in range(2, image.ndim):
        lines = image.movedim(axis, -1)
        flat = F.pad(lines.reshape(-1, 1, lines.shape[-1]), (reach, reach), mode="replicate")
        image = F.conv1d(flat, kernel.view(1, 1, -1)).view(lines.shape).movedim(-1, axis)
    return image


def _interpolated(maps: Tensor, size: Sequence[int]) -> Tensor:
    mode = "bilinear" if len(size) == 2 else "trilinear"
    return F.interpolate(maps, tuple(size), mode=mode, align_corners=True)


def _continued(maps: Tensor, size: Sequence[int], mode: str) -> Tensor:
    pads: list[int] = []
    for have, want in zip(maps.shape[:0:-1], size[::-1], strict=True):
        pads += [0, want - have]
    return F.pad(maps[None], pads, mode=mode)[0]
