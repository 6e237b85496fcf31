"""Label maps of any size on one device, in a form from which voxels are gathered quickly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from caps_med.errors import InvalidInput
from training.randomization.scheme import LabelScheme

#: Distances from the inner labels are kept up to this many millimetres.
FARTHEST = 25.0
#: Distances are kept in steps of this many millimetres.
_STEP = 0.1
#: An index is kept in one byte.
MOST_IDS = 256


@dataclass(frozen=True)
class LabelMaps:
    """N label maps as one flat array of indices into `ids`.

    Attributes:
        ids: the ids that occur, 0 first.
        indices: uint8 ``[P]``, all voxels of all maps, one map after the other.
        distance: uint8 ``[P]``, to the nearest `inner` voxel in tenths of a millimetre, at most
            `FARTHEST`; None if nothing is outside.
        start: ``[N]``, the first voxel of each map.
        shape: ``[N, 3]``, slices, rows and columns; a picture has one slice.
        spacing: ``[N, 3]``, millimetres.
        box: ``[N, 2, 3]``, corners of the `inner` labels to be segmented, in voxels.
        head: ``[N, 2, 3]``, corners of all labels.
        shares: ``[N, L]``, share of each id in the voxels of a map's `head` box.
        classes: ``[L]``, the class of each id.
        groups: ``[L]``, the id whose Gaussian each has.
        inner: ``[L]``, whether a mask always shows an id: one neither outside nor on the rim.
        outside: ``[L]``, whether a mask may take away all of an id.
        class_count: number of classes, the background included.
        pictures: whether every map is a single slice.
    """

    ids: tuple[int, ...]
    indices: Tensor
    distance: Tensor | None
    start: Tensor
    shape: Tensor
    spacing: Tensor
    box: Tensor
    head: Tensor
    shares: Tensor
    classes: Tensor
    groups: Tensor
    inner: Tensor
    outside: Tensor
    class_count: int
    pictures: bool

    @classmethod
    def from_arrays(
        cls,
        maps: Sequence[NDArray[np.integer]],
        spacings: Sequence[tuple[float, float, float]],
        scheme: LabelScheme,
    ) -> Self:
        """From label maps ``[D, H, W]`` (a picture: D = 1) with the ids of `scheme`.

        Raises:
            InvalidInput: there is nothing to segment in one of them, or there are more than 256
                ids.
        """
        ids = sorted({0}.union(*(np.unique(one).tolist() for one in maps)))
        if len(ids) > MOST_IDS:
            raise InvalidInput(f"the label maps have {len(ids)} ids: at most {MOST_IDS}")
        classes, groups = scheme.classes(ids), scheme.groups(ids)
        outside = np.array([i in scheme.outside or i == 0 for i in ids])
        inner = ~outside & np.array([i not in scheme.rim for i in ids])
        found = [_Indexed.of(one, ids, mm, classes, inner, bool(scheme.outside))
                 for one, mm in zip(maps, spacings, strict=True)]  # fmt: skip
        for number, one in enumerate(found, start=1):
            if one.box is None:
                raise InvalidInput(
                    f"label map {number} contains nothing to segment: check --labels"
                )
        start = np.cumsum([0, *(one.indices.size for one in found)])[:-1]
        distances = [one.distance for one in found if one.distance is not None]
        return cls(
            ids=tuple(ids),
            indices=torch.from_numpy(np.concatenate([one.indices.ravel() for one in found])),
            distance=torch.from_numpy(np.concatenate(distances)) if distances else None,
            start=torch.from_numpy(start),
            shape=torch.tensor([one.indices.shape for one in found]),
            spacing=torch.tensor(spacings, dtype=torch.float32),
            box=torch.from_numpy(np.stack([one.box for one in found if one.box is not None])),
            head=torch.from_numpy(np.stack([one.head for one in found])),
            shares=torch.from_numpy(np.stack([one.shares for one in found])),
            classes=torch.from_numpy(classes),
            groups=torch.from_numpy(groups),
            inner=torch.from_numpy(inner),
            outside=torch.from_numpy(outside),
            class_count=len(scheme.names),
            pictures=all(len(one.indices) == 1 for one in found),
        )

    @property
    def device(self) -> torch.device:
        """Where they are."""
        return self.start.device

    def __len__(self) -> int:
        return len(self.start)

    def to(self, device: torch.device | str) -> Self:
        """The same on another device."""
        tensors: dict[str, Any] = {k: v for k, v in vars(self).items() if isinstance(v, Tensor)}
        return replace(self, **{name: tensor.to(device) for name, tensor in tensors.items()})


@dataclass(frozen=True)
class _Indexed:
    """One label map, cut to its labels."""

    indices: NDArray[np.uint8]
    distance: NDArray[np.uint8] | None
    box: NDArray[np.float32] | None
    head: NDArray[np.float32]
    shares: NDArray[np.float32]

    @classmethod
    def of(
        cls,
        labels: NDArray[np.integer],
        ids: Sequence[int],
        spacing: tuple[float, float, float],
        classes: NDArray[np.uint8],
        inner: NDArray[np.bool_],
        masks: bool,
    ) -> Self:
        labelled = _corners(labels != 0)
        if labelled is not None:
            labels = labels[tuple(slice(int(a), int(b) + 1) for a, b in labelled.T)]
        indices = np.searchsorted(ids, labels).astype(np.uint8)
        shares = np.bincount(indices.ravel(), minlength=len(ids)) / indices.size
        distance = _distance(inner[indices], spacing).ravel() if masks else None
        last = np.array(indices.shape, np.float32) - 1
        return cls(
            indices, distance, _corners(((classes != 0) & inner)[indices]),
            np.stack([np.zeros(3, np.float32), last]), shares.astype(np.float32),
        )  # fmt: skip


def _corners(mask: NDArray[np.bool_]) -> NDArray[np.float32] | None:
    """First and last index of a mask along each axis, ``[2, 3]``; None if it is empty."""
    if not mask.any():
        return None
    axes = range(mask.ndim)
    lines = [np.flatnonzero(mask.any(tuple(k for k in axes if k != axis))) for axis in axes]
    return np.array([[line[0] for line in lines], [line[-1] for line in lines]], np.float32)


def _distance(inner: NDArray[np.bool_], spacing: tuple[float, float, float]) -> NDArray[np.uint8]:
    """Tenths of a millimetre to the nearest inner voxel."""
    if not inner.any():
        return np.full(inner.shape, 255, np.uint8)
    from scipy.ndimage import distance_transform_edt

    far = distance_transform_edt(~inner, sampling=spacing)
    steps: NDArray[np.uint8] = np.rint(np.minimum(far, FARTHEST) / _STEP).astype(np.uint8)
    return steps
