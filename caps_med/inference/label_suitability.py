"""Whether a label map resembles those that a generator was trained on.

As in `caps_med.inference.suitability`, a few statistics of the network's input slices are compared
with those of the training, which the model's card holds. How often they are right:
``python -m benchmarks.suitability_synthesis``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from caps_med.bundles import LabelMapStatistics, ModelCard
from caps_med.inference.suitability import LIMIT, RANGE, own_slices, what_it_takes, widths_outside

FloatArray = NDArray[np.float64]

#: Ranges of a share are at least this wide.
NARROWEST_SHARE = 0.2
#: Borders are told where they are so much more or less than in training, as natural logarithm:
#: structures 1.65 times as small or as large as any there. A share of the range would not do: that
#: of heads with and without skull is so wide that four times as large lies within.
BORDERS = 0.5
#: Slices with less than this share of the labelled pixels of the fullest one are the ends of what a
#: volume shows, and not judged.
FULL = 0.25


def label_statistics(slices: Iterable[NDArray[np.floating]], classes: int) -> FloatArray:
    """Statistics ``[N, 2 + classes - 1]`` of slices ``[H, W]`` of class indices, 0 the background.

    The labelled fraction of the slice, the pairs of neighbouring pixels with different labels per
    labelled pixel, and the fraction of the labelled pixels that belong to each class. Slices with
    few labels are left out, see `FULL`.

    Args:
        slices: of one volume, or pictures.
    """
    found = [one for each in slices if (one := _statistics(each, classes)) is not None]
    fullest = max((one[0] for one in found), default=0)
    return np.array([one for one in found if one[0] >= FULL * fullest]).reshape(-1, 1 + classes)


def _statistics(classes: NDArray[np.floating], count: int) -> FloatArray | None:
    ids = classes.astype(np.intp)
    counts = np.bincount(ids.ravel(), minlength=count)
    labelled = counts[1:].sum()
    if not labelled:
        return None
    borders = sum(np.count_nonzero(np.diff(ids, axis=axis)) for axis in (0, 1))
    return np.array([labelled / ids.size, borders / labelled, *counts[1:] / labelled])


def training_label_statistics(
    stacks: Iterable[Iterable[NDArray[np.floating]]], classes: int
) -> LabelMapStatistics | None:
    """The ranges of the training slices ``[H, W]``; None if nothing is labelled.

    Args:
        stacks: the slices of each volume; standalone slices form one stack.
    """
    found = np.concatenate([label_statistics(slices, classes) for slices in stacks])
    if not len(found):
        return None
    low, high = np.quantile(found, RANGE, axis=0).round(4)
    labelled, borders, *shares = zip(low.tolist(), high.tolist(), strict=True)
    return LabelMapStatistics(labelled=labelled, borders=borders, shares=tuple(shares))


def unlike_training_labels(card: ModelCard, slices: Tensor) -> tuple[str, ...]:
    """A warning if class indices ``[D, 1, H, W]`` differ from the training's, else empty."""
    found = label_statistics(own_slices(slices), len(card.labels))
    if not len(found):
        return ("the label map is empty: all of it is background",)
    if card.label_statistics is None:
        return ()
    distance, told = max(_distances(card, card.label_statistics, np.median(found, 0).tolist()))
    if distance <= LIMIT:
        return ()
    return (
        f"the label map is unlike those that the model was trained on: {told}{what_it_takes(card)}",
    )


def _distances(
    card: ModelCard, known: LabelMapStatistics, values: list[float]
) -> Iterator[tuple[float, str]]:
    """How far each statistic is outside its range, in widths of the range, and its wording."""
    labelled, borders, *shares = values
    yield (
        widths_outside(labelled, known.labelled, NARROWEST_SHARE),
        f"{labelled:.0%} of a slice is labelled {_percent(known.labelled)}",
    )
    low, high = known.borders
    yield (
        _logarithms_outside(borders, known.borders) / BORDERS,
        f"its labels have {borders:.2f} neighbours of another label for each pixel (in training "
        f"{low:.2f} to {high:.2f}): they are of another size or shape",
    )
    for name, share, usual in zip(
        list(card.labels.values())[1:], shares, known.shares, strict=True
    ):
        yield (
            widths_outside(share, usual, NARROWEST_SHARE),
            f"{share:.0%} of what is labelled is {name} {_percent(usual)}",
        )


def _logarithms_outside(value: float, usual: tuple[float, float]) -> float:
    """How far a value lies outside a range, in natural logarithms."""
    low, own, high = (float(np.log(max(x, 1e-4))) for x in (usual[0], value, usual[1]))
    return max(low - own, own - high, 0.0)


def _percent(usual: tuple[float, float]) -> str:
    return f"(in training {usual[0]:.0%} to {usual[1]:.0%})"
