"""Views of objects: those of smallNORB, or rendered ones, made once a folder for all cells."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.robustness.cells import Setting
from benchmarks.robustness.rendering import INSTANCES, Views, all_views
from benchmarks.robustness.shapes import CLASSES
from caps_med.drafts import draft_of
from caps_med.errors import InvalidInput
from training.data.classified.arrays import read_array
from training.data.classified.norb import CATEGORIES, norb_files

NAMES = tuple(CLASSES)
EDGE = 32
#: Instances of each class for training; those after them are for testing.
_QUICK_INSTANCES = 1


def views_of(setting: Setting) -> tuple[Views, Views]:
    """Pictures of the instances to train on, and of those to test on."""
    if setting.norb is None:
        return rendered_views(setting)
    files = norb_files(setting.norb)
    return published_views(files, "training"), published_views(files, "testing")


def published_views(files: Mapping[str, Mapping[str, Path]], part: str) -> Views:
    """A part of smallNORB, both cameras, averaged to pictures of `EDGE` pixels.

    Args:
        files: see `norb_files`.

    Raises:
        InvalidInput: a file is missing or damaged.
    """
    found = files.get(part, {})
    if missing := {"dat", "cat", "info"} - found.keys():
        raise InvalidInput(f"smallNORB: {part} lacks {', '.join(sorted(missing))}: add the files")
    pairs = read_array(found["dat"])
    size = pairs.shape[-1] // EDGE
    blocks = pairs.reshape(*pairs.shape[:2], EDGE, size, EDGE, size)
    pictures = np.rint(blocks.mean((3, 5), dtype=np.float32)).astype(np.uint8)
    numbers = [NAMES.index(category) for category in CATEGORIES]
    classes = np.array(numbers)[read_array(found["cat"]).reshape(-1)]
    instances, elevations, azimuths, _ = read_array(found["info"]).astype(np.int64).T
    return Views(pictures, classes, instances, 30 + 5 * elevations, 10 * azimuths)


def rendered_views(setting: Setting) -> tuple[Views, Views]:
    """Rendered pictures of the instances to train on, and of those to test on."""
    instances = setting.short(INSTANCES, _QUICK_INSTANCES)
    file = setting.work / f"views-{EDGE}-{instances}.npz"
    if not file.exists():
        setting.work.mkdir(parents=True, exist_ok=True)
        with draft_of(file) as draft, draft.open("wb") as opened:
            np.savez(opened, **vars(all_views(EDGE, setting.device, 2 * instances)))
    with np.load(file) as arrays:
        views = Views(**arrays)
    return views.of(views.instances < instances), views.of(views.instances >= instances)


def sample(views: Views, most: int, seed: int = 0) -> Views:
    """At most so many of them, at random."""
    chosen = np.random.default_rng(seed).permutation(len(views.classes))[:most]
    return views.of(chosen)
