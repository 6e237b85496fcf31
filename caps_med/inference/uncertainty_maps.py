"""How sure a segmentation is, position by position: confidence, entropy, disagreement of views."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from caps_med.errors import InvalidParameter
from caps_med.images import MedicalImage
from caps_med.images.blocks import blocks

if TYPE_CHECKING:
    from caps_med.preprocessing import PreparedSlices

FloatArray = NDArray[np.float32]
#: The maps of a segmentation that say how sure it is; see `Segmentation.map_of`.
MapName = Literal["confidence", "entropy", "disagreement"]
MAP_NAMES: tuple[MapName, ...] = get_args(MapName)
#: What may be asked for in place of the labels: these, or the probabilities of all classes.
ShownMap = Literal[MapName, "probabilities"]
#: What an answer keeps unless other maps are asked for: confidence and entropy follow from it.
PROBABILITIES: tuple[ShownMap, ...] = ("probabilities",)


def known_maps(names: Collection[str]) -> tuple[ShownMap, ...]:
    """The maps with these names, or with a single name.

    Raises:
        InvalidParameter: a name is unknown; the message lists the known ones.
    """
    there: tuple[ShownMap, ...] = (*MAP_NAMES, *PROBABILITIES)
    names = (names,) if isinstance(names, str) else names
    for name in names:
        if name not in there:
            raise InvalidParameter(f"maps: {name!r} is not one of {', '.join(there)}")
    return tuple(name for name in there if name in names)


_TINY = np.finfo(np.float32).tiny


@dataclass(frozen=True, eq=False)
class Disagreement:
    """How much labels change when the image is mirrored, or another ensemble member is used.

    A number is the fraction of views whose label differs from the most frequent one (the variation
    ratio of Freeman 1965), averaged over the positions where any view finds something other than
    background; 0 if there are none. It lies between 0 and 1 - 1 / views.

    Attributes:
        flips: of the image and its mirror images along rows, columns and both, 4 views; or only
            along rows, 2 views, if labels have a side or training mirrored nothing else.
        members: of the networks of an ensemble; None for a single network.
        map: ``[1, *S]``, the same fraction at each position, over all these views together.
    """

    flips: float
    members: float | None
    map: MedicalImage

    def as_dict(self) -> dict[str, float | None]:
        """The numbers, rounded to four digits, for JSON."""
        members = None if self.members is None else round(self.members, 4)
        return {"flips": round(self.flips, 4), "members": members}


def shares_of(probabilities: FloatArray) -> FloatArray:
    """Probabilities ``[K, *S]`` that add up to 1, background included.

    Args:
        probabilities: of all classes, which need not add up to 1, such as capsule lengths; a single
            channel is the foreground's, and the remainder to 1 the background's.
    """
    maps = _with_background(probabilities)
    return np.asarray(maps / np.maximum(maps.sum(0), _TINY), dtype=np.float32)


def confidence_of(probabilities: FloatArray) -> FloatArray:
    """The probability of the most probable class, ``[*S]``, from 1 / K to 1.

    Args:
        probabilities: see `shares_of`.
    """
    return _by_slices(_confidence, probabilities)


def _confidence(maps: FloatArray) -> FloatArray:
    return np.asarray(maps.max(0) / np.maximum(maps.sum(0), _TINY), dtype=np.float32)


def entropy_of(probabilities: FloatArray) -> FloatArray:
    """Shannon entropy of the classes relative to a uniform distribution, ``[*S]``, 0 to 1.

    Args:
        probabilities: see `shares_of`.
    """
    return _by_slices(_entropy, probabilities)


def _entropy(maps: FloatArray) -> FloatArray:
    total = np.maximum(maps.sum(0), _TINY)
    weighted = sum((one * np.log(np.maximum(one, _TINY)) for one in maps), np.zeros_like(total))
    entropy = (np.log(total) - weighted / total) / np.log(len(maps))
    return np.asarray(entropy.clip(0, 1), dtype=np.float32)


def _by_slices(
    measure: Callable[[FloatArray], FloatArray], probabilities: FloatArray
) -> FloatArray:
    """A measure of probabilities ``[K, *S]`` at each position, without extra memory."""
    found = np.empty(probabilities.shape[1:], np.float32)
    for part in blocks(found.shape):
        found[part] = measure(_with_background(probabilities[:, part]))
    return found


def _with_background(probabilities: FloatArray) -> FloatArray:
    maps = np.asarray(probabilities, dtype=np.float32)
    return np.stack([1 - maps[0], maps[0]]) if len(maps) == 1 else maps


@dataclass(frozen=True, eq=False)
class Votes:
    """How many views of an image give each class at each position.

    Attributes:
        counts: ``[K, D, H, W]``, of each class, background included.
        views: number of views.
    """

    counts: NDArray[np.uint8]
    views: int

    @classmethod
    def of(cls, views: Iterable[Tensor], classes: int) -> Votes:
        """The votes of class indices ``[D, 1, H, W]``, one tensor per view."""
        return reduce(operator.add, (cls._once(view, classes) for view in views))

    @classmethod
    def _once(cls, view: Tensor, classes: int) -> Votes:
        found = view[:, 0].numpy()
        return cls(np.stack([found == k for k in range(classes)]).view(np.uint8), 1)

    def __add__(self, other: Votes) -> Votes:
        """The votes of both sets of views."""
        return Votes(self.counts + other.counts, self.views + other.views)

    def disagreement(self) -> FloatArray:
        """Fraction of the views that differ from the most frequent class, ``[D, 1, H, W]``."""
        return np.asarray(1 - self.counts.max(0)[:, None] / self.views, dtype=np.float32)

    def mean_disagreement(self) -> float:
        """Mean where any view finds something other than background; 0 if none does."""
        region = self.counts[0] < self.views
        return float(self.disagreement()[:, 0][region].mean()) if region.any() else 0.0


def disagreement_of(
    image: MedicalImage, prepared: PreparedSlices, flips: Votes, members: Votes | None
) -> Disagreement:
    """The disagreement of all views, in the image's own space."""
    views = flips if members is None else flips + members
    shares = prepared.restore(torch.from_numpy(views.disagreement()))
    return Disagreement(
        flips.mean_disagreement(),
        None if members is None else members.mean_disagreement(),
        image.with_array(shares, kind="image"),
    )
