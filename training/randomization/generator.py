"""The generator: label maps in, random images with their labels out."""

from __future__ import annotations

import torch
from torch import Tensor

from caps_med.images import Normalization
from training.randomization.config import Randomization
from training.randomization.geometry import Random, random_view, smooth
from training.randomization.intensity import (
    BLUR,
    Contrast,
    bias_field,
    bias_points,
    blurred,
    random_contrast,
    sampled,
)
from training.randomization.label_maps import LabelMaps
from training.randomization.scale import Scale

#: Layers that are averaged into a slice. An odd number: the labels are those of the middle one.
LAYERS = 5
#: Share of the masks that keep what is outside up to their margin, as a loose mask does.
_LOOSE = 0.3
#: Share of the masks that cut the finished image; others are blurred with it.
_SHARP = 0.7


class RandomImages:
    """Draws images from label maps: shape, contrast, sharpness, noise and bias field are random.

    All is computed on the device of the maps, for a batch at once.

    Args:
        maps: on the device on which to draw.
        config: ranges of the random values.
        size: rows and columns of the images, or depth, rows and columns of volumes.
        spacing: distance of the output's rows and of its columns, in millimetres, or of each.
        slice_mm: distance of the slices of volumes; None for that of the rows.
        normalization: that the network will see when it is used; None leaves images as they are.
        planes: share of the slices in the axial, coronal and sagittal plane; volumes are axial.
        neighbours: slices on each side that become channels.
    """

    def __init__(
        self,
        maps: LabelMaps,
        config: Randomization,
        size: tuple[int, ...],
        *,
        spacing: float | tuple[float, float] = 1.0,
        slice_mm: float | None = None,
        normalization: Normalization | None = None,
        planes: tuple[float, float, float] = (1.0, 0.0, 0.0),
        neighbours: int = 0,
    ) -> None:
        self.maps, self.config, self.size = maps, config, size
        self.spacing = spacing if isinstance(spacing, tuple) else (spacing, spacing)
        self.normalization = normalization
        self.planes = torch.tensor(planes, device=maps.start.device).cumsum(0)
        self.slice_mm, self.neighbours = slice_mm or self.spacing[0], neighbours

    def __call__(
        self, generator: torch.Generator, count: int, chosen: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Images ``[B, C, *size]``, in [0, 1] if normalized, and classes, uint8 ``[B, 1, *size]``.

        Args:
            generator: on the device of the maps; the same state gives the same images.
            count: B.
            chosen: ``[B]``, the label map of each image; None chooses at random.
        """
        random = Random(generator)
        if chosen is None:
            chosen = random.choice(len(self.maps), count)
        indices, distances = self._view(chosen, random)
        config, maps = self.config, self.maps
        masked = random.chance(config.masked * (distances is not None), count)
        shown = self._shown(indices, distances, masked, random)
        indices = indices * shown if shown is not None else indices
        contrast = random_contrast(maps, masked, config, random)
        image = self._image(indices, contrast, random)
        points = bias_points(len(self.size), count, config, random)
        image = image * bias_field(points, self.size)
        middle = self._middle(indices)
        if shown is not None:
            image = self._cut(image, shown, contrast, masked, random)
        labels = maps.classes[middle].unsqueeze(1)
        if self.normalization is None:
            return image, labels
        scale = Scale.of(self.normalization, contrast, self._shares(chosen, masked, random), points)
        image = scale.apply(image)
        gamma = torch.exp(config.gamma * random.normal(count))
        return image ** gamma.view(-1, *[1] * (image.ndim - 1)), labels

    @property
    def _flat(self) -> bool:
        return len(self.size) == 2

    def _view(self, chosen: Tensor, random: Random) -> tuple[Tensor, Tensor | None]:
        """Label indices and distances ``[B, D, H, W]``, layers of slices one after the other."""
        count, device = len(chosen), chosen.device
        if self._flat:
            thickness = random.uniform(*self.config.thickness, count, 1)
            slices = torch.arange(2 * self.neighbours + 1, device=device) - self.neighbours
            layers = (torch.arange(LAYERS, device=device) + 0.5) / LAYERS - 0.5
            offsets = thickness * (slices[:, None] + layers).flatten()
            planes = torch.searchsorted(self.planes, random.uniform(0, 1, count)).clamp(max=2)
        else:
            depth = self.size[0]
            offsets = (torch.arange(depth, device=device) - (depth - 1) / 2) * self.slice_mm
            offsets = offsets.expand(count, -1)
            planes = torch.zeros(count, dtype=torch.long, device=device)
        view = random_view(
            self.maps, chosen, planes, offsets, (self.size[-2], self.size[-1]), self.spacing,
            self.config, random, None if self._flat else self.slice_mm,
        )  # fmt: skip
        return view.indices(self.maps)

    def _shown(
        self, indices: Tensor, distances: Tensor | None, masked: Tensor, random: Random
    ) -> Tensor | None:
        """Which voxels a mask shows: all of those that are not masked; None if none is."""
        if distances is None:
            return None
        count, maps = len(indices), self.maps
        wobble = smooth(random.normal(count, 1, 6, 6) * 0.3, (self.size[-2], self.size[-1])).exp()
        margin = random.uniform(*self.config.margin, count, 1, 1, 1) * wobble
        loose = random.chance(_LOOSE, count).view(-1, 1, 1, 1)
        kept = maps.inner[indices] | ((distances <= margin) & (loose | ~maps.outside[indices]))
        return kept | ~masked.view(-1, 1, 1, 1)

    def _image(self, indices: Tensor, contrast: Contrast, random: Random) -> Tensor:
        """Intensities at the simulated resolution, ``[B, C, *size]``."""
        count, config, dims = len(indices), self.config, len(self.size)
        rows = torch.arange(count, device=indices.device).view(-1, 1, 1, 1)
        mean, deviation = contrast.mean[rows, indices], contrast.deviation[rows, indices]
        if self._flat:
            mean, deviation = (self._averaged(each) for each in (mean, deviation))
        else:
            mean, deviation = mean.unsqueeze(1), deviation.unsqueeze(1)
        image = mean + deviation * random.normal(*mean.shape)
        width = random.uniform(*config.resolution, count, dims)
        together = random.chance(0.5, count, 1)
        width = torch.where(together, width[:, :1], width)
        # a half of the rest is coarse along one axis only
        fine = random.chance(0.5, count, dims) & ~together
        edges = self.spacing if self._flat else (self.slice_mm, *self.spacing)
        voxel = torch.tensor(edges, device=width.device)
        width = (torch.where(fine, config.resolution[0], width) / voxel).clamp(min=1)
        radius = max(1, round(3 * BLUR * config.resolution[1] / min(edges)))
        image = blurred(image, BLUR * width * random.uniform(0.7, 1.3, count, 1), radius)
        strength = random.uniform(0, config.noise, count, *[1] * (dims + 1))
        strength = strength * ~contrast.plain.view(strength.shape) + strength * (image > 0.02) * (
            contrast.plain.view(strength.shape)
        )
        return sampled(image + strength * random.normal(*image.shape), width, random)

    def _averaged(self, layers: Tensor) -> Tensor:
        """The layers of each slice as one, ``[B, C, H, W]``."""
        count, depth, *size = layers.shape
        return layers.view(count, depth // LAYERS, LAYERS, *size).mean(2)

    def _middle(self, indices: Tensor) -> Tensor:
        """The voxels whose labels are learned: those of the middle slice, or all."""
        return indices[:, self.neighbours * LAYERS + LAYERS // 2] if self._flat else indices

    def _cut(
        self, image: Tensor, shown: Tensor, contrast: Contrast, masked: Tensor, random: Random
    ) -> Tensor:
        """The background where a sharp mask hides the finished image."""
        if self._flat:
            first = LAYERS // 2
            shown = shown[:, first::LAYERS]
        else:
            shown = shown.unsqueeze(1)
        place = [-1, *[1] * (image.ndim - 1)]
        sharp = masked & random.chance(_SHARP, len(image))
        return torch.where(sharp.view(place) & ~shown, contrast.mean[:, 0].view(place), image)

    def _shares(self, chosen: Tensor, masked: Tensor, random: Random) -> Tensor:
        """How much of the whole image each label fills, ``[B, L]``; background varies."""
        shares = self.maps.shares[chosen].clone()
        shares = torch.where(masked[:, None] & self.maps.outside, 0, shares)
        air = random.uniform(0.2, 0.75, len(chosen))
        rest = shares[:, 1:].sum(1)
        shares[:, 0] = air / (1 - air) * rest
        return shares / shares.sum(1, keepdim=True)
