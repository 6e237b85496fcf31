"""The 200 hippocampi, read once, and which of them train, choose and test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from caps_med.images import Normalization, SliceStack, read_image
from training.data import Sample, Source

#: Class index -> name.
LABELS = {0: "background", 1: "anterior", 2: "posterior"}
FOLDS = 4
#: Cases of a fold's training part on which rates are chosen; never those of the fold itself.
CHOOSING = 20


def read(folder: Path) -> dict[str, Sample]:
    """Name -> sample, axes and intensities as a model gets them.

    Axes run to superior, posterior and left. The first figures were taken on volumes turned by 180
    degrees about the first of them (superior, anterior, right).
    """
    scale = Normalization()
    samples: dict[str, Sample] = {}
    for file in sorted((folder / "labelsTr").glob("*.nii.gz")):
        image = SliceStack.from_image(read_image(folder / "imagesTr" / file.name)).array[:, 0]
        label = SliceStack.from_image(read_image(file, kind="labels")).array[:, 0]
        samples[file.name.removesuffix(".nii.gz")] = {
            "image": scale.apply(image.astype(np.float32))[None],
            "label": label.astype(np.uint8)[None],
        }
    if not samples:
        raise SystemExit(f"{folder}: no labelsTr/*.nii.gz beside imagesTr")
    return samples


@dataclass(frozen=True)
class Split:
    """Names of the cases that train and of those that are scored."""

    training: list[str]
    scored: list[str]


def split(names: list[str], fold: int, count: int | None, seed: int, choosing: bool) -> Split:
    """A fold of the cross-validation, with `count` of its training cases, drawn by the seed.

    Args:
        choosing: score some of the fold's training cases instead of its test cases.
    """
    order = [names[i] for i in np.random.default_rng(2026).permutation(len(names))]
    test = order[fold::FOLDS]
    pool = [name for name in order if name not in set(test)]
    chosen, pool = pool[:CHOOSING], pool[CHOOSING:] if choosing else pool
    drawn = np.random.default_rng([seed, 7]).permutation(len(pool))[:count]
    return Split([pool[i] for i in drawn], chosen if choosing else test)


def source(samples: list[Sample]) -> Source:
    """What a recipe asks about the data it trains on."""
    return Source(
        name="hippocampus",
        samples=[*samples, samples[0]],
        groups=[*(f"case {i}" for i in range(len(samples))), "seen"],
        held_out=frozenset({"seen"}),
        labels=LABELS,
        plane=None,
        spacing_mm=(1.0, 1.0),
        slice_mm=1.0,
        normalization=Normalization(),
        description="Medical Segmentation Decathlon, Task04 hippocampus, CC BY-SA 4.0",
        spatial_dims=3,
    )
