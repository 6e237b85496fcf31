"""New label maps from those of a data set: deformed, recombined, and kept only if plausible.

A new map is drawn by one of three methods from one or two originals, each mirrored where that is
plausible and smoothly deformed:

- *deformed*: one original;
- *joined*: two originals cut along a line (a plane in 3-D). Where they differ, each connected part
  is taken whole from the original on whose side of the line most of it lies; where both have an
  axon, one continues as the other;
- *blended*: two originals that change into each other across a line, by interpolation of the
  signed distances to their boundaries (Raya & Udupa 1990). For organs and tissues, which fill the
  image.

A map whose shape statistics (`training.labelmaps.shapes`) lie outside those of the originals, or
that nearly equals one of them, is rejected and drawn again. Everything follows from the seed and
the map's number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple

import monai.transforms as mt
import numpy as np
import torch
from monai.networks.layers import gaussian_1d
from monai.transforms.utils import create_grid
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from scipy import ndimage
from scipy.signal import oaconvolve
from torch import Tensor

from caps_med.errors import InvalidInput
from training.evaluation.dice import mean_dice
from training.labelmaps.shapes import TOLERANCE, Labels, Shapes
from training.labelmaps.symmetry import Symmetries, plausible_mirrorings

#: Highest Dice of a new map with any original, mirrored or not.
SIMILAR = 0.9
#: Number of draws before a map is given up.
ATTEMPTS = 240
#: Least part of their differences that each of two joined originals must contribute.
_LEAST_PART = 0.15
#: Spacing of the deformation grid, as a part of the image's shortest edge, and range of scaling.
_GRID, _ZOOM = 1 / 5, 0.08


class Strength(NamedTuple):
    """The strength of a deformation: rotation in radians, displacement in grid spacings.

    Displacements below half the spacing cannot fold the image.
    """

    rotation: float
    displacement: tuple[float, float]


#: For structures that have their place in the image, and for those that lie anywhere.
GENTLE, FREE = Strength(0.1, (0.04, 0.12)), Strength(0.2, (0.05, 0.22))
#: Standard deviation in pixels of the smoothing of edges before they are deformed.
_STEPS = 0.6
#: Bytes of classes that are deformed at once.
_AT_ONCE = 2**28

#: Sizes of a voxel along each axis, in any unit: the smallest of them is what a pixel is.
Spacing = Sequence[float]
Method = Literal["deformed", "joined", "blended", "spline model"]
Random = np.random.Generator
#: Methods of drawing, and number of failed draws after which the next one is tried.
_METHODS: tuple[Method, ...] = ("deformed", "joined", "blended")
_PATIENCE = 20


class Origin(BaseModel):
    """Where a new label map comes from.

    Attributes:
        how: method that made it; ``spline model`` is `training.labelmaps.phantoms`.
        originals: names of the label maps that it was made from.
        mirrored: how each of them was mirrored.
        attempts: number of draws until it was plausible.
        nearest: the most similar original; None without originals.
        nearest_dice: Dice with it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    how: Method
    originals: tuple[str, ...] = ()
    mirrored: tuple[str, ...] = ()
    attempts: int = 1
    nearest: str | None = None
    nearest_dice: float | None = None


class ImplausibleShapes(InvalidInput):
    """No new label map was like the originals; the message lists what failed most often."""


class LabelMapSampler:
    """Draws new label maps like some originals.

    Args:
        originals: name -> label map ``[*S]`` of ids, in any integer type that holds its own; only
            those of equal size are recombined.
        seed: of all draws.
        tolerance: see `Shapes.of`.
        symmetries: see `plausible_mirrorings`.
        spacings: name -> size of its voxels, by which volumes are deformed; others are cubes.
    """

    def __init__(
        self,
        originals: Mapping[str, Labels],
        seed: int = 0,
        tolerance: float = TOLERANCE,
        symmetries: Symmetries = "auto",
        spacings: Mapping[str, Spacing] | None = None,
    ) -> None:
        kind = np.result_type(*originals.values())  # a new map may have the ids of all of them
        self.names = tuple(originals)
        self.labels = tuple(label.astype(kind, copy=False) for label in originals.values())
        self.spacings = tuple(
            tuple((spacings or {}).get(name, (1.0,) * label.ndim))
            for name, label in originals.items()
        )
        self.seed = seed
        self.shapes = Shapes.of(self.labels, tolerance)
        self.mirrorings = plausible_mirrorings(self.labels, symmetries)

    def draw(self, number: int) -> tuple[Labels, Origin]:
        """New label map `number`, of the size of one original, and its origin.

        Raises:
            ImplausibleShapes: `ATTEMPTS` draws failed.
        """
        order = np.random.default_rng([self.seed, number, 0, 4]).permutation(len(_METHODS))

        def draw(rng: Random, attempt: int) -> tuple[Labels, Origin] | None:
            how = _METHODS[order[attempt // _PATIENCE % len(_METHODS)]]
            return self._draw(rng, how, FREE if attempt >= ATTEMPTS / 2 else self.strength)

        return self.first_plausible(number, draw)

    def first_plausible(
        self, number: int, draw: Callable[[Random, int], tuple[Labels, Origin] | None]
    ) -> tuple[Labels, Origin]:
        """The first of `ATTEMPTS` draws that is like the originals but nearly equals none.

        Args:
            number: of the new map.
            draw: gives a label map ``[*S]`` and its origin, or None if the draw failed; its second
                argument is the number of draws before.

        Raises:
            ImplausibleShapes: every draw failed.
        """
        failed: Counter[str] = Counter()
        for attempt in range(ATTEMPTS):
            # the 2 tells the seed from those of phantoms; NumPy ignores trailing zeros
            drawn = draw(np.random.default_rng([self.seed, number, attempt, 2]), attempt)
            if drawn is None:
                failed["nothing to join"] += 1
                continue
            label, origin = drawn
            if outside := self.shapes.outside(label):
                failed.update(outside)
                continue
            nearest, dice = self.nearest(label)
            if dice > SIMILAR:
                failed[f"too similar to an original (Dice above {SIMILAR})"] += 1
                continue
            found = {"attempts": attempt + 1, "nearest": nearest, "nearest_dice": round(dice, 4)}
            return label, origin.model_copy(update=found)
        raise ImplausibleShapes(self._failure(number, failed))

    def nearest(self, label: Labels) -> tuple[str, float]:
        """Name of the original most similar to a map ``[*S]``, mirrored or not, and their Dice."""
        found = [("", 0.0)]
        for name, original in zip(self.names, self.labels, strict=True):
            for mirrored in self.mirrorings:
                turned = mirrored(original)
                if turned.shape == label.shape:
                    found.append((name, mean_dice(turned, label, self.shapes.foreground)))
        return max(found, key=lambda one: one[1])

    def _failure(self, number: int, failed: Counter[str]) -> str:
        def allowed(name: str) -> str:
            if name not in self.shapes.ranges:
                return ""
            low, high = self.shapes.ranges[name]
            return f", allowed {max(low, 0):.3g} to {high:.3g}"

        most = [f"{name} ({count} times{allowed(name)})" for name, count in failed.most_common(4)]
        return (
            f"new label map {number}: none of {ATTEMPTS} draws resembles the {len(self.labels)} "
            f"originals. Outside: {'; '.join(most)}. Give more label maps or a higher --tolerance"
        )

    @cached_property
    def strength(self) -> Strength:
        """Of the first deformations; after half of the attempts they are `FREE`."""
        dims = self.labels[0].ndim
        return FREE if any(len(m.flipped) == dims for m in self.mirrorings) else GENTLE

    def _draw(self, rng: Random, how: Method, strength: Strength) -> tuple[Labels, Origin] | None:
        first = int(rng.integers(len(self.labels)))
        shape = self.labels[first].shape
        partners = [k for k, label in enumerate(self.labels) if k != first and label.shape == shape]
        if not partners:
            how = "deformed"
        chosen = [first] if how == "deformed" else [first, partners[rng.integers(len(partners))]]
        varied = [self._mirrored_and_deformed(k, rng, strength) for k in chosen]
        label: Labels | None = varied[0][0]
        if how != "deformed":
            one, other = (label for label, _ in varied)
            voxel = _in_pixels(self.spacings[first])
            across = _distance_from_line(shape, voxel, rng)
            width = rng.uniform(0.02, 0.25) * _shortest_edge(shape, voxel)
            label = (
                join(one, other, across)
                if how == "joined"
                else blend(one, other, across, width, self.shapes.ids, voxel)
            )
        if label is None:
            return None
        names = tuple(self.names[k] for k in chosen)
        origin = Origin(
            how=how, originals=names, mirrored=tuple(mirroring for _, mirroring in varied)
        )
        return self.shapes.without_specks(label), origin

    def _mirrored_and_deformed(
        self, number: int, rng: Random, strength: Strength
    ) -> tuple[Labels, str]:
        """An original, and how it was mirrored."""
        label, voxel = self.labels[number], self.spacings[number]
        fitting = [m for m in self.mirrorings if m(label).shape == label.shape]
        mirroring = fitting[rng.integers(len(fitting))]
        return deform(mirroring(label), self.shapes.ids, rng, strength, voxel), str(mirroring)


def deform(
    label: Labels,
    ids: Sequence[int],
    rng: Random,
    strength: Strength = FREE,
    spacing: Spacing | None = None,
) -> Labels:
    """A label map ``[*S]`` under a smooth random deformation (MONAI's), mirrored at its border.

    Deformed are the signed distances to each class's boundary; each pixel then takes the class in
    which it lies deepest. So edges stay smooth under strong stretching, and no new id appears.

    Args:
        label: ``[*S]`` of `ids`.
        ids: of all classes.
        rng: draws the deformation.
        strength: of the deformation.
        spacing: of the voxels of a volume; None for cubes.
    """
    voxel = _in_pixels(spacing or (1.0,) * label.ndim)
    seed = int(rng.integers(2**32))
    best = np.full(label.shape, -np.inf, np.float32)
    found = np.zeros_like(label)
    step = max(1, _AT_ONCE // (4 * label.size))
    for start in range(0, len(ids), step):
        chosen = ids[start : start + step]
        depths = np.stack([_signed_distance(label == one, voxel) for one in chosen])
        depths = depths.astype(np.float32)
        if len(ids) == 2:  # of more classes, layers one pixel thick would vanish
            depths = ndimage.gaussian_filter(depths, (0,) + (_STEPS,) * label.ndim, mode="nearest")
        deformation = _deformation(label.shape, strength, voxel).set_random_state(seed=seed)
        for one, depth in zip(chosen, deformation(torch.from_numpy(depths)).numpy(), strict=True):
            found[depth > best] = one
            best = np.maximum(best, depth)
    return found


def _in_pixels(spacing: Spacing) -> tuple[float, ...]:
    """Sizes of a voxel in units of its smallest one."""
    return tuple(float(size / min(spacing)) for size in spacing)


def _shortest_edge(shape: tuple[int, ...], voxel: Spacing) -> float:
    return min(count * size for count, size in zip(shape, voxel, strict=True))


def _deformation(
    shape: tuple[int, ...], strength: Strength, voxel: Spacing
) -> mt.RandomizableTransform:
    shared = {
        "prob": 1.0,
        "scale_range": _ZOOM,
        "mode": "bilinear",
        "padding_mode": "reflection",
    }
    spacing = max(4, round(_shortest_edge(shape, voxel) * _GRID))
    if len(shape) == 2:
        magnitude = tuple(spacing * part for part in strength.displacement)
        return mt.Rand2DElastic(
            spacing=(spacing, spacing),
            magnitude_range=magnitude,
            rotate_range=strength.rotation,
            **shared,
        )
    # noise blurred with standard deviation s keeps (2 s sqrt(pi)) ** -0.5 of its own along an axis
    kept = [max(1.0, 2 * spacing / size * np.pi**0.5) ** 0.5 for size in voxel]
    factor = spacing * float(np.prod(kept))
    magnitude = tuple(factor * part for part in strength.displacement)
    return _Elastic3D(
        voxel,
        sigma_range=(spacing, spacing),
        magnitude_range=magnitude,
        rotate_range=(strength.rotation,) * 3,
        **shared,
    )


class _Elastic3D(mt.Rand3DElastic):
    """`monai.transforms.Rand3DElastic` in space rather than in voxels, which need not be cubes.

    Args:
        voxel: its sizes, in the units of all lengths.
    """

    def __init__(self, voxel: Spacing, **arguments: Any) -> None:  # noqa: ANN401 - MONAI's
        super().__init__(**arguments)
        self.voxel = tuple(voxel)

    def __call__(self, img: Tensor) -> Tensor:
        """The volumes ``[C, *S]``, deformed alike."""
        shape = img.shape[1:]
        self.randomize(shape)
        grid = create_grid(shape, spacing=self.voxel, backend="torch")
        grid[:3] += torch.from_numpy(self._blurred(self.rand_offset)) * self.magnitude
        grid = self.rand_affine_grid(grid=grid)
        grid[:3] /= torch.tensor(self.voxel).view(-1, 1, 1, 1)
        found: Tensor = self.resampler(img, grid, mode=self.mode, padding_mode=self.padding_mode)
        return found

    def _blurred(self, noise: NDArray[np.float32]) -> NDArray[np.float32]:
        """Noise ``[3, *S]`` by MONAI's Gaussian filter, whose kernels are as long as the volume:
        by Fourier transforms, in a hundredth of the time.
        """
        for axis, size in enumerate(self.voxel, 1):
            kernel = gaussian_1d(torch.tensor(self.sigma / size), 3.0).numpy()
            along = kernel.reshape([-1 if i == axis else 1 for i in range(noise.ndim)])
            noise = oaconvolve(noise, along, mode="same", axes=axis)
        return noise


def _distance_from_line(shape: tuple[int, ...], voxel: Spacing, rng: Random) -> NDArray[np.float64]:
    """The signed distance ``[*S]`` of each pixel from a random line (plane) near the middle."""
    normal = rng.standard_normal(len(shape))
    normal /= np.linalg.norm(normal)
    through = rng.uniform(0.3, 0.7, len(shape)) * shape
    places = np.indices(shape).astype(np.float64) - through.reshape(-1, *(1 for _ in shape))
    return np.tensordot(normal * voxel, places, 1)


def join(one: Labels, other: Labels, across: NDArray[np.float64]) -> Labels | None:
    """Two label maps ``[*S]`` joined in whole parts: `one` on the negative side of a line.

    Args:
        one, other: of equal size.
        across: ``[*S]``, signed distance from the line.

    Returns:
        None if one of them would contribute nearly nothing.
    """
    different = one != other
    structure = ndimage.generate_binary_structure(one.ndim, one.ndim)
    blobs, count = ndimage.label(different, structure)
    if not count:
        return None
    side = ndimage.mean(across > 0, blobs, np.arange(count + 1)) > 0.5
    from_other = side[blobs] & different
    part = from_other.sum() / different.sum()
    if not _LEAST_PART <= part <= 1 - _LEAST_PART:
        return None
    return np.where(from_other, other, one)


def blend(
    one: Labels,
    other: Labels,
    across: NDArray[np.float64],
    width: float,
    ids: Sequence[int],
    voxel: Spacing | None = None,
) -> Labels:
    """Two label maps ``[*S]`` that change into each other across a line, by signed distances.

    Args:
        one, other: of equal size.
        across: ``[*S]``, signed distance from the line.
        width: of the transition, in the units of `across`.
        ids: of both maps.
        voxel: its sizes in these units; None for cubes of 1.
    """
    share = 1 / (1 + np.exp(-np.clip(across / width, -50, 50)))
    best = np.full(one.shape, -np.inf)
    found = np.zeros_like(one)
    for label in ids:
        depth = (1 - share) * _signed_distance(one == label, voxel)
        depth += share * _signed_distance(other == label, voxel)
        found[depth > best] = label
        best = np.maximum(best, depth)
    return found


def _signed_distance(mask: NDArray[np.bool_], voxel: Spacing | None) -> NDArray[np.float64]:
    """Distance of each pixel from the mask's boundary, positive inside."""
    far = float(np.max(np.multiply(mask.shape, voxel or 1)))
    if not mask.any():
        return np.full(mask.shape, -far)
    if mask.all():
        return np.full(mask.shape, far)
    return _depth(mask, voxel) - _depth(~mask, voxel)


def _depth(mask: NDArray[np.bool_], voxel: Spacing | None) -> NDArray[np.float64]:
    """Distance of each pixel of the mask from the nearest one outside it; 0 outside."""
    # beyond one pixel around the mask, none is nearer
    box = tuple(
        slice(max(0, part.start - 1), part.stop + 1)
        for part in ndimage.find_objects(mask.view(np.uint8))[0]
    )
    found = np.zeros(mask.shape)
    found[box] = ndimage.distance_transform_edt(mask[box], sampling=voxel)
    return found
