"""Assemble the parts of a network's answer into labels, the requested maps, and numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from caps_med.bundles import ModelCard
from caps_med.images import SliceStack
from caps_med.images.blocks import blocks
from caps_med.inference.certainty import Certainty
from caps_med.inference.uncertainty_maps import FloatArray, ShownMap, confidence_of, entropy_of
from caps_med.networks import predicted_classes, with_temperature
from caps_med.preprocessing import PreparedSlices

#: Slices and rows of a part.
Place = tuple[slice, slice]


@dataclass(frozen=True, eq=False)
class Assembled:
    """An answer in the voxels of its image.

    Attributes:
        labels: ``[1, *S]``, ids.
        maps: the requested maps, ``[K, *S]`` or ``[1, *S]``.
        certainty: for the whole image; None if the probabilities are kept, from which it follows.
    """

    labels: NDArray[np.integer]
    maps: dict[ShownMap, FloatArray]
    certainty: Certainty | None


def assembled(
    card: ModelCard,
    prepared: PreparedSlices,
    parts: Iterable[Tensor],
    maps: Collection[ShownMap],
) -> Assembled:
    """The answer to one image, with only a part of the probabilities in memory at a time.

    Args:
        card: labels and temperature of the model.
        prepared: the image's slices.
        parts: of the network's answer ``[d, K, rows, columns]``, in order; each is used before the
            next is requested.
        maps: names of the maps to keep.
    """
    ids = np.array(list(card.labels))
    ids = ids.astype(np.uint8 if ids.max() < 256 else np.uint16)
    labels = _Filled(prepared.stack, ids.dtype)
    kept = {name: _Filled(prepared.stack, np.float32) for name in maps if name != "disagreement"}
    certainty = None if "probabilities" in kept else Certainty(card.labels)
    for place, lengths in _tiles(prepared.restored(parts)):
        found = ids[predicted_classes(lengths)[:, 0].numpy()]
        labels.put(place, found[None])
        if card.temperature is not None:
            lengths = with_temperature(lengths, card.temperature)
        probabilities = np.ascontiguousarray(lengths.movedim(1, 0).numpy())
        shown: dict[ShownMap, FloatArray] = {"probabilities": probabilities}
        if "confidence" in kept:
            shown["confidence"] = confidence_of(probabilities)[None]
        if certainty is not None or "entropy" in kept:
            shown["entropy"] = entropy_of(probabilities)[None]
        if certainty is not None:
            certainty.add(found, probabilities, shown["entropy"][0])
        for name, one in kept.items():
            one.put(place, shown[name])
    return Assembled(labels.array, {name: one.array for name, one in kept.items()}, certainty)


def _tiles(parts: Iterable[tuple[slice, Tensor]]) -> Iterator[tuple[Place, Tensor]]:
    """Split parts ``[d, K, H, W]`` into pieces whose intermediate results stay in the cache."""
    for at, part in parts:
        depth, _, height, width = part.shape
        for z in blocks((depth, height, width)):
            for rows in blocks((height, width * (z.stop - z.start))):
                place = slice(at.start + z.start, at.start + z.stop), rows
                yield place, part[z, :, rows]


@dataclass
class _Filled:
    """An array on the voxels of an image, filled slice by slice."""

    stack: SliceStack
    dtype: DTypeLike
    array: NDArray[Any] = field(init=False)
    _slices: NDArray[Any] | None = field(default=None, init=False)

    def put(self, place: Place, values: NDArray[Any]) -> None:
        """Write channels ``[K, d, rows, W]`` at a place."""
        if self._slices is None:
            self.array, self._slices = self.stack.blank(len(values), self.dtype)
        z, rows = place
        self._slices[z, :, rows] = np.moveaxis(values, 0, 1)
