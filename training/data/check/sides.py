"""Labels that are left and right of each other, found in the label maps themselves.

Mirrored left to right, each of two such labels would be learned as the other. Names tell it
(`caps_med.images.label_codes.have_sides`), but many data sets have numbers alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from caps_med.images.image import Array
from caps_med.images.label_codes import LabelCode, have_sides
from caps_med.wording import counted
from training.data.check.findings import Finding, finding

#: Fewer label maps that hold both labels do not tell.
ENOUGH = 3
#: Share of them in which each label lies on its usual side.
SAME_SIDE = 0.95
#: Up to this ratio of their sizes, and of their extents along each axis, two labels are alike.
ALIKE = 1.5
#: How far apart two labels may lie across the columns, in units of their distance along them.
LEVEL = 0.25
#: Their least distance along the columns, in units of the sum of their standard deviations.
APART = 1.0
#: Label maps with more labels are not considered; nor are so many learned.
MOST_LABELS = 255
#: Larger label maps are thinned out to about this many voxels.
_VOXELS = 2**21
#: Pairs that a finding lists.
_SHOWN = 5


class _Places(NamedTuple):
    """Of the labels ``[N]`` of one label map: voxels, centroid and standard deviations (mm)."""

    labels: NDArray[np.int64]
    voxels: NDArray[np.float64]
    centre: NDArray[np.float64]
    spread: NDArray[np.float64]


class SideSurvey:
    """Collects where the labels of label maps lie, one map at a time."""

    def __init__(self) -> None:
        self._maps: list[_Places] = []

    def add(
        self,
        slices: Array,
        lengths: Sequence[float] | None,
        labels: Mapping[int, int],
    ) -> None:
        """Record one label map.

        Args:
            slices: ids ``[D, H, W]`` in display orientation, D = 1 for a picture.
            lengths: distances between slices, rows and columns; None for a picture.
            labels: id -> the label that it belongs to; 0 and other ids are background.
        """
        labels = {one: label for one, label in labels.items() if label}
        if 1 < len(set(labels.values())) <= MOST_LABELS:
            self._maps.append(_places(slices, lengths or (1, 1, 1), labels))

    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Labels that are mirror images of each other, each with a side of its own.

        In nearly all label maps that hold both, the same one is on the left; and in most of them
        they are level with each other, apart, and alike in size and extent. A label has at most one
        counterpart, the one that it is most like.
        """
        held = Counter(label for one in self._maps for label in one.labels.tolist())
        labels = sorted(label for label, maps in held.items() if maps >= ENOUGH)
        taken = set[int]()
        found: dict[tuple[int, int], int] = {}  # and how many label maps hold both
        for _, pair, maps in sorted(self._candidates(labels)):
            if taken.isdisjoint(pair):
                taken.update(pair)
                found[pair] = maps
        # of many labels some are level and alike by chance, and in a few maps on the same side
        return tuple(
            pair
            for pair, maps in sorted(found.items())
            if len(found) * 2 ** (maps - ENOUGH + 1) >= len(labels)
        )

    def _candidates(self, labels: Sequence[int]) -> Iterator[tuple[float, tuple[int, int], int]]:
        """Labels that may be a pair: how unlike they are, and how many label maps hold both."""
        voxels, centre, spread = self._tables(labels)
        for k, label in enumerate(labels):
            way = centre - centre[:, k, None]
            apart = np.abs(way[..., 2]) / (spread[..., 2] + spread[:, k, None, 2])
            unlike = _unlikeness(way, voxels / voxels[:, k, None], spread / spread[:, k, None])
            both = ~np.isnan(unlike)
            for other in range(k + 1, len(labels)):
                here = both[:, other]
                if here.sum() < ENOUGH:
                    continue
                right = float((way[here, other, 2] > 0).mean())
                typical = float(np.median(unlike[here, other]))
                aside = max(right, 1 - right) >= SAME_SIDE and np.median(apart[here, other]) > APART
                if aside and typical <= 1:
                    yield typical, (label, labels[other]), int(here.sum())

    def _tables(
        self, labels: Sequence[int]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
        """Voxels ``[M, N]``, centroids and standard deviations ``[M, N, 3]`` in each of M label
        maps; NaN without the label.
        """
        shape = len(self._maps), len(labels)
        tables = np.full(shape, np.nan), np.full((*shape, 3), np.nan), np.full((*shape, 3), np.nan)
        for m, one in enumerate(self._maps):
            known = np.isin(one.labels, labels)
            columns = np.searchsorted(labels, one.labels[known])
            for table, values in zip(tables, one[1:], strict=True):
                table[m, columns] = values[known]
        return tables


def sides_findings(
    pairs: Sequence[tuple[int, int]],
    names: Mapping[int, str],
    codes: Iterable[LabelCode],
    section: str = "augmentation",
) -> Iterator[Finding]:
    """What follows from labels that are left and right of each other, unless it is known already.

    Args:
        pairs: see `SideSurvey.pairs`.
        names: label id -> name, as far as they are known.
        codes: what labels stand for, as far as it is known.
        section: of the recipe, which mirrors crops.
    """
    if not pairs or have_sides(names.values(), codes):
        return
    shown = [" and ".join(_named(label, names) for label in pair) for pair in pairs[:_SHOWN]]
    more = f", and {counted(len(pairs) - _SHOWN, 'further pair')}" * (len(pairs) > _SHOWN)
    what = (
        f"labels {', '.join(shown)}{more} are mirror images of each other, each always on the same "
        "side: to segment them, crops are by default not mirrored left to right"
    )
    fix = (
        "give them names with their sides, such as left lung; or, if they differ in more than the "
        f"side, --set {section}.flip_columns=0.5"
    )
    yield finding("sides", "", what, fix)


def _named(label: int, names: Mapping[int, str]) -> str:
    return f"{label} ({names[label]})" if label in names else str(label)


def _places(slices: Array, lengths: Sequence[float], labels: Mapping[int, int]) -> _Places:
    known = sorted(set(labels.values()))
    axes = max(1, sum(count > 1 for count in slices.shape))
    step = max(1, math.ceil((slices.size / _VOXELS) ** (1 / axes)))
    slices = slices[::step, ::step, ::step]
    row_of = np.zeros(int(max(*labels, slices.max())) + 1, np.intp)  # 0 for the background
    row_of[list(labels)] = np.searchsorted(known, list(labels.values())) + 1
    rows = row_of[slices]
    centre, spread = [], []
    voxels = np.bincount(rows.ravel(), minlength=len(known) + 1)[1:].astype(float)
    here = voxels > 0
    for axis, (count, length) in enumerate(zip(slices.shape, lengths, strict=True)):
        along = np.arange(count).reshape([-1 if k == axis else 1 for k in range(3)])
        binned = np.bincount((rows * count + along).ravel(), minlength=(len(known) + 1) * count)
        share = binned.reshape(-1, count)[1:][here] / voxels[here, None]
        mean = share @ np.arange(count)
        variance = (share * (np.arange(count) - mean[:, None]) ** 2).sum(1) + 1 / 12
        centre.append(mean * length * step)
        spread.append(np.sqrt(variance) * length * step)
    return _Places(np.array(known)[here], voxels[here], np.stack(centre, -1), np.stack(spread, -1))


def _unlikeness(
    way: NDArray[np.float64], sizes: NDArray[np.float64], extents: NDArray[np.float64]
) -> NDArray[np.float64]:
    """How much two labels differ from mirror images of each other; at most 1 of those that are.

    Args:
        way: from the centroid of one to that of the other ``[..., 3]``.
        sizes: ratio of their voxels ``[...]``.
        extents: ratio of their standard deviations ``[..., 3]``.
    """
    level = np.hypot(way[..., 0], way[..., 1]) / np.maximum(np.abs(way[..., 2]), 1e-9)
    alike = np.maximum(np.abs(np.log(sizes)), np.abs(np.log(extents)).max(-1))
    return np.asarray(np.maximum(level / LEVEL, alike / math.log(ALIKE)))
