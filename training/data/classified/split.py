"""Which images are held out: a share of each class, and never a part of a patient."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from caps_med.errors import InvalidParameter
from training.data.groups import group_numbers

Indices = NDArray[np.int64]
#: A share of groups may be larger or smaller by so much; else it is one of more folds.
_OFF = 0.05


def strata_of(targets: NDArray[np.uint8]) -> Indices:
    """The class that each image is counted as: of several present the rarest.

    Args:
        targets: ``[N, J]``, 1 for the classes of an image.

    Returns:
        ``[N]``, J for an image without any class.
    """
    classes = targets.shape[1]
    rarity = np.where(targets > 0, targets.sum(0, dtype=np.int64), len(targets) + 1)
    strata: Indices = np.where(targets.any(1), rarity.argmin(1), classes).astype(np.int64)
    return strata


def hold_out_share(
    strata: Indices,
    groups: Sequence[str],
    share: float,
    seed: int,
    *,
    keep_classes: bool = True,
) -> NDArray[np.bool_]:
    """About `share` of the images of each class, chosen by the seed, whole groups at a time.

    A class of a single image, or of a single group where another can be held out, is not held out,
    see `keep_classes`. Of few groups one is, even if that is more.

    Args:
        strata: ``[N]``, see `strata_of`.
        groups: of the images; "" for an image on its own.
        keep_classes: of images in groups, hold out the first share that leaves most classes to
            train on; otherwise the first share.

    Returns:
        ``[N]``, True for an image that is held out.

    Raises:
        InvalidParameter: there is but one group.
    """
    if any(groups):
        numbers = group_numbers(groups)
        if not numbers.any():  # all have the first number
            raise InvalidParameter(
                "all images are of one patient, so none can be held out: add images of another "
                "patient, add a validation part, or leave out the patients"
            )
        most = _most_folds(strata, numbers)
        if most < 2:
            return np.zeros(len(strata), bool)
        count, some = _folds_of_share(share, most)
        folds = folds_of(strata, groups, count, seed)
        shares = [(folds - first) % count < some for first in range(folds.max() + 1)]
        learned = [len(np.unique(strata[~held_out])) for held_out in shares]
        return shares[int(np.argmax(learned)) if keep_classes else 0]
    generator, held_out = np.random.default_rng(seed), np.zeros(len(strata), bool)
    for stratum in np.unique(strata):
        members = generator.permutation(np.flatnonzero(strata == stratum))
        count = min(max(1, round(share * len(members))), len(members) - 1)
        held_out[members[:count]] = True
    return held_out


def _folds_of_share(share: float, most: int) -> tuple[int, int]:
    """Into how many folds groups are divided, and how many of these are about a share of them.

    >>> _folds_of_share(0.1, 50), _folds_of_share(0.4, 50), _folds_of_share(0.8, 50)
    ((10, 1), (5, 2), (5, 4))
    """

    def some_of(count: int) -> int:
        return min(max(1, round(share * count)), count - 1)

    count = max(2, round(min(most, 1 / min(share, 1 - share))))
    if abs(some_of(count) / count - share) > _OFF:
        count = min(most, 2 * count + 1)
    return count, some_of(count)


def folds_of(strata: Indices, groups: Sequence[str], count: int, seed: int) -> Indices:
    """The fold that each image is held out in, ``[N]``, 0 to `count` - 1.

    Raises:
        InvalidParameter: fewer than two folds, or groups than folds, or images in every class.
    """
    from sklearn.model_selection import StratifiedGroupKFold

    if count < 2:
        raise InvalidParameter(f"folds={count}: at least 2 are needed, 0 trains a single network")
    numbers = group_numbers(groups)
    most = _most_folds(strata, numbers)
    if most < count:
        there = numbers.max(initial=-1) + 1
        what = f"only {there}" if there < count else f"no class has more than {most}"
        raise InvalidParameter(f"folds={count}: {what} images or patients: use fewer")
    splitter = StratifiedGroupKFold(count, shuffle=True, random_state=seed % 2**32)
    folds = np.zeros(len(strata), np.int64)
    with warnings.catch_warnings():  # about small classes, which `caps-med data check` tells
        warnings.simplefilter("ignore", UserWarning)
        for fold, (_, held_out) in enumerate(splitter.split(strata, strata, numbers)):
            folds[held_out] = fold
    return folds


def _most_folds(strata: Indices, numbers: Indices) -> int:
    """How many folds each can have a group, and one class at least an image in each."""
    return int(min(numbers.max(initial=-1) + 1, np.bincount(strata).max(initial=0)))
