"""Small labelled volumes, such as the hippocampus crops of the Medical Segmentation Decathlon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from skimage.filters import threshold_multiotsu

from caps_med.images import MedicalImage, Normalization, SliceStack
from training.data import open_dataset

#: Cases that are never learned from, drawn once.
TESTED = 60
#: Classes that the unlabelled surroundings are divided into by their intensity.
SURROUNDINGS = 3
#: Edges of padded volumes are a multiple of this.
MULTIPLE = 16
SCALE = Normalization()


@dataclass(frozen=True)
class Volume:
    """One case, in axial slices of 1 mm: image in [0, 1] and label ids, both ``[D, H, W]``."""

    name: str
    image: NDArray[np.float32]
    label: NDArray[np.uint8]


@dataclass(frozen=True)
class Split:
    """Cases to learn from, further ones, and those to test on.

    Attributes:
        labels: id -> name.
    """

    learned: Sequence[Volume]
    further: Sequence[Volume]
    tested: Sequence[Volume]
    labels: dict[int, str]


class Pool:
    """All cases of a folder, read once.

    Args:
        folder: labelled volumes in a layout of `training.data.layouts`.
        limit: read so many cases only.
    """

    def __init__(self, folder: Path, limit: int | None = None) -> None:
        self.folder, self.limit = folder, limit
        dataset = open_dataset(folder)
        dataset.require_complete()
        self.volumes = [_read(*dataset.read(c), c.name) for c in dataset.cases[:limit]]
        ids = sorted({int(i) for v in self.volumes for i in np.unique(v.label)})
        self.labels = {i: dataset.labels.get(i, f"label {i}" if i else "background") for i in ids}

    def split(self, count: int, further: int, seed: int) -> Split:
        """`count` cases that the seed draws (more contain fewer), and `further` other ones.

        Raises:
            SystemExit: there are fewer, though all cases have been read.
        """
        order = np.random.default_rng(0).permutation(len(self.volumes))
        tested = min(TESTED, len(order) // 2)
        kept, rest = order[:tested], order[tested:]
        if self.limit is None and count + further > len(rest):
            raise SystemExit(
                f"{self.folder}: {tested} of {len(order)} volumes are tested on, {count} to learn "
                f"from and {further} further ones are needed: set --volumes and --added, or "
                "--limit for a check"
            )
        drawn = [self.volumes[i] for i in np.random.default_rng([1, seed]).permutation(rest)]
        return Split(
            learned=drawn[:count],
            further=drawn[count : count + further],
            tested=[self.volumes[i] for i in kept],
            labels=self.labels,
        )

    @property
    def edges(self) -> tuple[int, ...]:
        """Edges to which all volumes are padded."""
        largest = np.max([v.image.shape for v in self.volumes], 0)
        return tuple(int(-(-edge // MULTIPLE) * MULTIPLE) for edge in largest)


def with_surroundings(volume: Volume) -> Volume:
    """The volume with its background divided into dark, middle and bright (multi-Otsu).

    A generator that knows nothing of the surroundings but "background" can only draw clouds there.
    As Billot et al. 2023 do with tissue around the brain, they are given classes by intensity; the
    labelled structures come after these.
    """
    outside = volume.label == 0
    levels = divided(volume.image, outside)
    label = np.where(outside, levels, volume.label + SURROUNDINGS - 1).astype(np.uint8)
    return replace(volume, label=label)


def divided(image: NDArray[np.float32], outside: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The class 0 to `SURROUNDINGS` - 1 of every voxel, by thresholds found `outside`."""
    smooth = gaussian_filter(image, 0.7)
    levels = threshold_multiotsu(smooth[outside], SURROUNDINGS)
    return np.asarray(np.digitize(smooth, levels))


def named_surroundings(labels: dict[int, str]) -> dict[int, str]:
    """The label names of `with_surroundings`."""
    names = [f"surroundings {i}" for i in range(SURROUNDINGS)]
    return dict(enumerate([*names, *(labels[i] for i in sorted(labels)[1:])]))


def padded(array: NDArray[np.generic], edges: Sequence[int]) -> NDArray[np.generic]:
    """``[D, H, W]`` mirrored behind its end to these edges."""
    after = [(0, edge - size) for edge, size in zip(edges, array.shape, strict=True)]
    return np.pad(array, after, mode="symmetric")


def _read(image: MedicalImage, label: MedicalImage, name: str) -> Volume:
    pixels, ids = (SliceStack.from_image(x, "axial").array[:, 0] for x in (image, label))
    return Volume(name, SCALE.apply(pixels[:, None], 1)[:, 0], ids.astype(np.uint8))
