"""Patches around the objects of label maps, as images with classes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from caps_med.drafts import filling
from caps_med.errors import InvalidInput
from caps_med.images import MedicalImage, write_image
from caps_med.images.image import Array
from training.atomic import write_text
from training.data.dataset import Dataset
from training.data.instances import touching_borders
from training.progress import tracked

ALONE, TOUCHING, BACKGROUND = "alone", "touching", "background"
#: In the order of the list that is written.
CLASSES = (ALONE, TOUCHING, BACKGROUND)
#: No object lies in the middle of a patch of background, this part of its edge wide.
_EMPTY = 0.5


class Patch(NamedTuple):
    """Rows and columns of an image, and their class."""

    rows: slice
    columns: slice
    name: str


def patches_of(ids: Array, size: int, random: np.random.Generator) -> Iterator[Patch]:
    """One patch around each object, and as many of background.

    An object is a connected component of one label. It is `TOUCHING` if it touches another one,
    else `ALONE`. Patches that would reach over the edge of the image are left out. Patches of
    `BACKGROUND` lie at random; an object may reach into their margin, not into their middle.

    Args:
        ids: label ids ``[H, W]``.
        size: edge of a patch in pixels.
        random: that places the background.
    """
    from skimage.measure import label, regionprops

    objects = label(ids)
    touching = set(np.unique(objects[touching_borders(objects)]).tolist())
    count = 0
    for each in regionprops(objects):
        row, column = (round(centre - size / 2) for centre in each.centroid)
        if 0 <= row <= ids.shape[0] - size and 0 <= column <= ids.shape[1] - size:
            count += 1
            yield _patch(row, column, size, TOUCHING if each.label in touching else ALONE)
    for row, column in random.permutation(_free_corners(ids, size))[:count].tolist():
        yield _patch(row, column, size, BACKGROUND)


def write_patches(dataset: Dataset, out: Path, size: int, seed: int) -> Mapping[str, int]:
    """Write the patches of all pictures, and ``list.json``, into the empty folder `out`.

    After an error it is empty again.

    The list has the group of the case (the image itself, if there are none) as the patient, so that
    no image is both trained on and held out.

    Returns:
        Class -> number of patches.

    Raises:
        InvalidInput: there are volumes, or less than two classes of patches.
        BrokenCase: a file is unreadable, or image and label map do not match.
    """
    random = np.random.default_rng(seed)
    found: list[tuple[str, str, MedicalImage]] = []
    for case in tracked(dataset.require_complete().cases, "cutting"):
        image, label = dataset.read(case)
        if image.spatial_dims != 2:
            raise InvalidInput(f"{case.name} is a volume: patches are cut from pictures")
        for rows, columns, name in patches_of(label.array[0], size, random):
            pixels = np.ascontiguousarray(image.array[:, rows, columns])
            found.append((case.grouped, name, MedicalImage(pixels, format="tiff")))
    counts = _checked(Counter(name for _, name, _ in found), dataset, size)
    entries = []
    with filling(out):
        for number, (group, name, patch) in enumerate(found):
            file = f"{name}/{number:05}.tif"
            (out / name).mkdir(exist_ok=True)
            write_image(patch, out / file)
            entries.append({"image": file, "class": name, "patient": group})
        listed = {"classes": list(counts), "images": entries}
        write_text(out / "list.json", json.dumps(listed, indent=1) + "\n")
    return counts


def _checked(counts: Mapping[str, int], dataset: Dataset, size: int) -> Mapping[str, int]:
    """The classes that there are, in their order; two are needed."""
    if len(counts) < 2:
        raise InvalidInput(
            f"{dataset.root}: patches of {size} pixels show at most one class "
            f"({', '.join(counts) or 'none'}), but two are needed: choose a smaller size, or "
            "images with more objects"
        )
    return {name: counts[name] for name in CLASSES if counts[name]}


def _patch(row: int, column: int, size: int, name: str) -> Patch:
    return Patch(slice(row, row + size), slice(column, column + size), name)


def _free_corners(ids: Array, size: int) -> Array:
    """Upper left corners ``[N, 2]`` of all patches in the image without an object in the middle."""
    from scipy.ndimage import maximum_filter

    if min(ids.shape) < size:
        return np.empty((0, 2), int)
    middle = max(1, round(_EMPTY * size))
    taken = maximum_filter(ids > 0, middle, mode="constant")
    first = (size - middle) // 2 + middle // 2
    rows, columns = (edge - size + 1 for edge in ids.shape)
    return np.argwhere(~taken[first : first + rows, first : first + columns])
