"""A small data set for tests: axon phantoms."""

from __future__ import annotations

from pathlib import Path

from training.labelmaps.phantoms import axon_phantoms, write_phantom


def write_axons(folder: Path, count: int, seed: int, size: int = 64) -> Path:
    """A folder of images of axons and their label maps."""
    for name, phantom in axon_phantoms(count, seed, size):
        write_phantom(folder, name, phantom)
    return folder
