"""Which images are held out: a share of each class, and never a part of a patient."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from caps_med.errors import InvalidParameter

Indices = NDArray[np.int64]


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
    strata: Indices, groups: Sequence[str], share: float, seed: int
) -> NDArray[np.bool_]:
    """About `share` of the images of each class, chosen by the seed, whole groups at a time.

    A class of a single image is not held out. Of few groups one is, even if that is more.

    Args:
        strata: ``[N]``, see `strata_of`.
        groups: of the images; "" for an image on its own.

    Returns:
        ``[N]``, True for an image that is held out.

    Raises:
        InvalidParameter: there is but one group.
    """
    if any(groups):
        there = len({group or number for number, group in enumerate(groups)})
        if there < 2:
            raise InvalidParameter(
                "all images are of one patient, so that none can be held out: add those of another "
                "patient, or a validation part, or leave the patient away"
            )
        return np.equal(folds_of(strata, groups, max(2, min(round(1 / share), there)), seed), 0)
    generator, held_out = np.random.default_rng(seed), np.zeros(len(strata), bool)
    for stratum in np.unique(strata):
        members = generator.permutation(np.flatnonzero(strata == stratum))
        count = max(1, round(share * len(members))) if len(members) > 1 else 0
        held_out[members[:count]] = True
    return held_out


def folds_of(strata: Indices, groups: Sequence[str], count: int, seed: int) -> Indices:
    """The fold that each image is held out in, ``[N]``, 0 to `count` - 1.

    Raises:
        InvalidParameter: fewer groups than folds.
    """
    from sklearn.model_selection import StratifiedGroupKFold

    names = [group or f"\0{number}" for number, group in enumerate(groups)]
    _, numbers = np.unique(names, return_inverse=True)
    if numbers.max(initial=0) + 1 < count:
        raise InvalidParameter(
            f"folds={count}: only {numbers.max(initial=-1) + 1} images or patients: use fewer"
        )
    splitter = StratifiedGroupKFold(count, shuffle=True, random_state=seed % 2**32)
    folds = np.zeros(len(strata), np.int64)
    for fold, (_, held_out) in enumerate(splitter.split(strata, strata, numbers)):
        folds[held_out] = fold
    return folds
