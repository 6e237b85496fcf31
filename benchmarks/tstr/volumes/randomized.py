"""Volumes drawn from label maps by domain randomization: no generator is trained for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from benchmarks.tstr.volumes.data import SCALE, SURROUNDINGS, Volume, padded, with_surroundings
from training.randomization.config import Randomization
from training.randomization.generator import RandomImages
from training.randomization.label_maps import LabelMaps
from training.randomization.scheme import LabelClass, LabelScheme

#: The defaults of ``caps-med train segmentation --randomize``, but the field of view stays where it
#: is: these volumes are cut to it already.
RANDOMIZATION = Randomization(shift=0.0)


def randomized(
    volumes: Sequence[Volume], labels: dict[int, str], count: int, seed: int, edges: Sequence[int]
) -> list[Volume]:
    """`count` volumes, from each label map in turn, at the given edges.

    The surroundings are three classes by intensity, each with a Gaussian of its own, as the
    generators have them (`with_surroundings`); label maps are mirrored up to the edges, as real
    volumes are.
    """
    structures = [i for i in sorted(labels) if i]
    # Counted from 1: 0 is what lies beyond a label map.
    scheme = LabelScheme(
        labels={
            i: LabelClass(name=labels[i], ids=(number + SURROUNDINGS,))
            for number, i in enumerate(structures, 1)
        }
    )
    maps = LabelMaps.from_arrays(
        [padded(with_surroundings(v).label, edges).astype(np.int64) + 1 for v in volumes],
        [(1.0, 1.0, 1.0)] * len(volumes),
        scheme,
    )
    images = RandomImages(maps, RANDOMIZATION, tuple(edges), normalization=SCALE)
    generator = torch.Generator().manual_seed(seed)
    ids = np.array([0, *structures], np.uint8)
    found = []
    for number in range(count):
        image, label = images(generator, 1, torch.tensor([number % len(volumes)]))
        found.append(Volume(f"randomized {number}", image[0, 0].numpy(), ids[label[0, 0].numpy()]))
    return found
