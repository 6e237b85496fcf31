"""The rendered pictures, made once a folder and shared by all cells."""

from __future__ import annotations

import os

import numpy as np

from benchmarks.robustness.cells import Setting
from benchmarks.robustness.rendering import INSTANCES, Views, all_views
from benchmarks.robustness.shapes import CLASSES

NAMES = tuple(CLASSES)
EDGE = 32
#: Instances of each class for training; those after them are for testing.
_QUICK_INSTANCES = 1


def rendered_views(setting: Setting) -> tuple[Views, Views]:
    """Pictures of the instances to train on, and of those to test on."""
    instances = setting.short(INSTANCES, _QUICK_INSTANCES)
    file = setting.work / f"views-{EDGE}-{instances}.npz"
    if not file.exists():
        partial = file.with_suffix(f".{os.getpid()}.npz")
        setting.work.mkdir(parents=True, exist_ok=True)
        np.savez(partial, **vars(all_views(EDGE, setting.device, 2 * instances)))
        partial.replace(file)
    with np.load(file) as arrays:
        views = Views(**arrays)
    return views.of(views.instances < instances), views.of(views.instances >= instances)


def sample(views: Views, most: int, seed: int = 0) -> Views:
    """At most so many of them, at random."""
    chosen = np.random.default_rng(seed).permutation(len(views.classes))[:most]
    return views.of(chosen)
