"""New label maps from those of a data set: deformed, recombined, and kept only if plausible.

A new map is drawn in one of three ways from one or two originals, each mirrored where that is
plausible and bent smoothly:

- *deformed*: one original;
- *joined*: two originals cut along a line; wherever they differ, a connected part is taken whole
  from one of them, by the side of the line on which most of it lies. What crosses in both is where
  an axon of one goes on as an axon of the other;
- *blended*: two originals that turn into each other across a line, by the signed distances to
  their boundaries (Raya & Udupa 1990). For organs and tissues, which fill the picture.

A map whose shape statistics (`training.labelmaps.shapes`) lie outside those of the
originals, or that nearly equals one of them, is drawn again. Everything follows from the seed and
the map's number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

import monai.transforms as mt
import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict
from scipy import ndimage

from caps_med.errors import InvalidInput
from training.evaluation.metrics.overlap import mean_dice
from training.labelmaps.shapes import TOLERANCE, Labels, Shapes
from training.labelmaps.symmetry import Symmetries, plausible_mirrorings

#: A new map's Dice with the nearest original, mirrored or not, is at most this.
SIMILAR = 0.9
#: So many draws are made for a map before its data set is given up.
ATTEMPTS = 240
#: Each of two originals gives at least this part of what they differ in.
_LEAST_PART = 0.15
#: Edge of the deformation's grid as a part of the picture's; below a half of it nothing folds.
_GRID, _ZOOM = 1 / 5, 0.08


class Strength(NamedTuple):
    """How much is bent: angles in radians, displacements in units of the deformation's grid."""

    rotation: float
    displacement: tuple[float, float]


#: Of what has its place, and of what lies anywhere, so that everything may be mirrored.
GENTLE, FREE = Strength(0.1, (0.04, 0.12)), Strength(0.2, (0.05, 0.22))
#: Pixels over which the steps of an edge are smoothed before it is bent.
_STEPS = 0.6
#: Bytes of classes that are bent at once.
_AT_ONCE = 2**28

How = Literal["deformed", "joined", "blended", "spline model"]
Random = np.random.Generator
#: A map is to be drawn in one of these ways; after so many draws it may be in the next.
_HOWS: tuple[How, ...] = ("deformed", "joined", "blended")
_PATIENCE = 20


class Origin(BaseModel):
    """Where a new label map comes from.

    Attributes:
        how: it was made; ``spline model`` is `training.labelmaps.phantoms`.
        originals: names of the label maps that it was made of.
        mirrored: how each of them was.
        attempts: draws until it was plausible.
        nearest: the original that is most like it, and the Dice with it; None without originals.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    how: How
    originals: tuple[str, ...] = ()
    mirrored: tuple[str, ...] = ()
    attempts: int = 1
    nearest: str | None = None
    nearest_dice: float | None = None


class ImplausibleShapes(InvalidInput):
    """No new label map was like the originals; the message says in what they failed."""


class Geometries:
    """New label maps like some originals.

    Args:
        originals: name -> label map ``[*S]`` of ids; only those of equal size are recombined.
        seed: of everything drawn.
        tolerance: see `Shapes.of`.
        symmetries: see `plausible_mirrorings`.
    """

    def __init__(
        self,
        originals: Mapping[str, Labels],
        seed: int = 0,
        tolerance: float = TOLERANCE,
        symmetries: Symmetries = "auto",
    ) -> None:
        self.names, self.labels = tuple(originals), tuple(originals.values())
        self.seed = seed
        self.shapes = Shapes.of(self.labels, tolerance)
        self.mirrorings = plausible_mirrorings(self.labels, symmetries)

    def draw(self, number: int) -> tuple[Labels, Origin]:
        """The new label map of that number, of the size of one original, and its origin.

        Raises:
            ImplausibleShapes: `ATTEMPTS` draws failed.
        """
        order = np.random.default_rng([self.seed, number, 0, 4]).permutation(len(_HOWS))

        def draw(rng: Random, attempt: int) -> tuple[Labels, Origin] | None:
            how = _HOWS[order[attempt // _PATIENCE % len(_HOWS)]]
            return self._draw(rng, how, FREE if attempt >= ATTEMPTS / 2 else self.strength)

        return self.first_plausible(number, draw)

    def first_plausible(
        self, number: int, draw: Callable[[Random, int], tuple[Labels, Origin] | None]
    ) -> tuple[Labels, Origin]:
        """The first of `ATTEMPTS` draws that is like the originals and equals none of them.

        Args:
            number: of the new map.
            draw: one label map ``[*S]`` and its origin, given the number of draws before; None
                where the draw came to nothing.

        Raises:
            ImplausibleShapes: there is none.
        """
        failed: Counter[str] = Counter()
        for attempt in range(ATTEMPTS):
            # the 2 keeps these apart from the phantoms': trailing zeros are no other seed
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
                failed[f"too like an original (Dice above {SIMILAR})"] += 1
                continue
            found = {"attempts": attempt + 1, "nearest": nearest, "nearest_dice": round(dice, 4)}
            return label, origin.model_copy(update=found)
        raise ImplausibleShapes(self._told(number, failed))

    def nearest(self, label: Labels) -> tuple[str, float]:
        """The original most like a map ``[*S]``, mirrored or not, and their Dice."""
        found = [("", 0.0)]
        for name, original in zip(self.names, self.labels, strict=True):
            for mirrored in self.mirrorings:
                turned = mirrored(original)
                if turned.shape == label.shape:
                    found.append((name, mean_dice(turned, label, self.shapes.foreground)))
        return max(found, key=lambda one: one[1])

    def _told(self, number: int, failed: Counter[str]) -> str:
        def allowed(name: str) -> str:
            if name not in self.shapes.ranges:
                return ""
            low, high = self.shapes.ranges[name]
            return f", allowed {max(low, 0):.3g} to {high:.3g}"

        most = [f"{name} ({count} times{allowed(name)})" for name, count in failed.most_common(4)]
        return (
            f"new label map {number}: none of {ATTEMPTS} draws is like the {len(self.labels)} "
            f"originals. Outside: {'; '.join(most)}. Give more label maps or a higher --tolerance"
        )

    @cached_property
    def strength(self) -> Strength:
        """Of deformations; where that comes to nothing they are `FREE`."""
        dims = self.labels[0].ndim
        return FREE if any(len(m.flipped) == dims for m in self.mirrorings) else GENTLE

    def _draw(self, rng: Random, how: How, strength: Strength) -> tuple[Labels, Origin] | None:
        first = int(rng.integers(len(self.labels)))
        shape = self.labels[first].shape
        partners = [k for k, label in enumerate(self.labels) if k != first and label.shape == shape]
        if not partners:
            how = "deformed"
        chosen = [first] if how == "deformed" else [first, partners[rng.integers(len(partners))]]
        varied = [self._varied(self.labels[k], rng, strength) for k in chosen]
        label: Labels | None = varied[0][0]
        if how != "deformed":
            one, other = (label for label, _ in varied)
            across, width = _across(shape, rng), rng.uniform(0.02, 0.25) * min(shape)
            label = (
                joined(one, other, across)
                if how == "joined"
                else blended(one, other, across, width, self.shapes.ids)
            )
        if label is None:
            return None
        names = tuple(self.names[k] for k in chosen)
        origin = Origin(how=how, originals=names, mirrored=tuple(said for _, said in varied))
        return self.shapes.without_specks(label).astype(self.labels[first].dtype), origin

    def _varied(self, label: Labels, rng: Random, strength: Strength) -> tuple[Labels, str]:
        """An original mirrored and bent, and how it was mirrored."""
        fitting = [m for m in self.mirrorings if m(label).shape == label.shape]
        mirroring = fitting[rng.integers(len(fitting))]
        return bent(mirroring(label), self.shapes.ids, rng, strength), str(mirroring)


def bent(label: Labels, ids: Sequence[int], rng: Random, strength: Strength = FREE) -> Labels:
    """A label map ``[*S]`` under a smooth random deformation (MONAI's), what enters mirrored.

    What is bent is how deep each pixel lies inside of each class, and each goes to the class inside
    of which it lies deepest: edges are smooth also where much is stretched, and no id is made up.

    Args:
        label: ``[*S]`` of `ids`.
        rng: draws the deformation.
        strength: of the deformation.
    """
    seed = int(rng.integers(2**32))
    best = np.full(label.shape, -np.inf, np.float32)
    found = np.zeros_like(label)
    step = max(1, _AT_ONCE // (4 * label.size))
    for start in range(0, len(ids), step):
        chosen = ids[start : start + step]
        depths = np.stack([_depth(label == one) for one in chosen]).astype(np.float32)
        if len(ids) == 2:  # a sheet of one pixel between two other classes would be lost
            depths = ndimage.gaussian_filter(depths, (0,) + (_STEPS,) * label.ndim, mode="nearest")
        deformation = _deformation(label.shape, strength).set_random_state(seed=seed)
        for one, depth in zip(chosen, deformation(torch.from_numpy(depths)).numpy(), strict=True):
            found[depth > best] = one
            best = np.maximum(best, depth)
    return found


def _deformation(shape: tuple[int, ...], strength: Strength) -> mt.RandomizableTransform:
    shared = {
        "prob": 1.0,
        "scale_range": _ZOOM,
        "mode": "bilinear",
        "padding_mode": "reflection",
    }
    spacing = max(4, round(min(shape) * _GRID))
    if len(shape) == 2:
        magnitude = tuple(spacing * part for part in strength.displacement)
        return mt.Rand2DElastic(
            spacing=(spacing, spacing),
            magnitude_range=magnitude,
            rotate_range=strength.rotation,
            **shared,
        )
    # Blurred over s voxels noise keeps (2 s sqrt(pi)) ** -1.5 of its deviation.
    factor = spacing * (2 * spacing * np.pi**0.5) ** 1.5
    magnitude = tuple(factor * part for part in strength.displacement)
    return mt.Rand3DElastic(
        sigma_range=(spacing, spacing),
        magnitude_range=magnitude,
        rotate_range=(strength.rotation,) * 3,
        **shared,
    )


def _across(shape: tuple[int, ...], rng: Random) -> NDArray[np.float64]:
    """The signed distance ``[*S]`` of each pixel from a random line (plane) near the middle."""
    normal = rng.standard_normal(len(shape))
    normal /= np.linalg.norm(normal)
    through = rng.uniform(0.3, 0.7, len(shape)) * shape
    places = np.indices(shape).astype(np.float64)
    return np.tensordot(normal, places - through.reshape(-1, *(1 for _ in shape)), 1)


def joined(one: Labels, other: Labels, across: NDArray[np.float64]) -> Labels | None:
    """Two label maps ``[*S]`` cut and joined, parts whole: `one` on the negative side of a line.

    Args:
        one, other: of equal size.
        across: ``[*S]``, signed distance from the line.

    Returns:
        None where either would give nearly nothing.
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


def blended(
    one: Labels,
    other: Labels,
    across: NDArray[np.float64],
    width: float,
    ids: Sequence[int],
) -> Labels:
    """Two label maps ``[*S]`` that turn into each other across a line, by signed distances.

    Args:
        one, other: of equal size.
        across: ``[*S]``, signed distance from the line.
        width: of the transition, in pixels.
        ids: of both maps.
    """
    share = 1 / (1 + np.exp(-np.clip(across / width, -50, 50)))
    best = np.full(one.shape, -np.inf)
    found = np.zeros_like(one)
    for label in ids:
        depth = (1 - share) * _depth(one == label) + share * _depth(other == label)
        found[depth > best] = label
        best = np.maximum(best, depth)
    return found


def _depth(mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """How far inside a mask each pixel lies; negative outside."""
    if not mask.any():
        return np.full(mask.shape, -float(max(mask.shape)))
    if mask.all():
        return np.full(mask.shape, float(max(mask.shape)))
    inside, outside = (ndimage.distance_transform_edt(m) for m in (mask, ~mask))
    return np.asarray(inside - outside)
