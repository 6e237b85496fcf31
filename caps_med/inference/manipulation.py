"""Move one atom of the class capsules, and see how the reconstruction changes.

LaLonde & Bagci 2018, "Capsules for Object Segmentation", section on capsule manipulation: the
last layer's pose vectors are shifted by -0.25 to 0.25 along one atom. Deviation: there the truth
masks the capsules of the other classes, here the network's own answer does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from caps_med.errors import InvalidParameter
from caps_med.images import MedicalImage, chosen_slice
from caps_med.inference.passes import check_whole, cropped, device_of, pad_to
from caps_med.inference.provenance import AnswerProvenance
from caps_med.inference.strip import tiled
from caps_med.networks import SegCaps, capsule_lengths, one_hot, predicted_classes

FloatArray = NDArray[np.float32]

#: Shifts of LaLonde's figure.
DELTAS = (-0.25, -0.15, -0.05, 0.0, 0.05, 0.15, 0.25)
#: A pose vector is shorter than one: no shift beyond this means anything.
LARGEST_DELTA = 1.0
#: Reconstructions of one call.
MOST_DELTAS = 33


@dataclass(frozen=True, eq=False)
class Manipulation:
    """One slice's reconstructions with one atom moved.

    Attributes:
        reconstructions: `[N, C, H, W]` in [0, 1], one a delta.
        original: `[C, H, W]`, with no atom moved.
        deltas: how far the atom was moved.
        provenance: where it came from.
    """

    reconstructions: FloatArray
    original: FloatArray
    deltas: tuple[float, ...]
    provenance: AnswerProvenance

    @property
    def changes(self) -> list[float]:
        """Mean absolute difference of each reconstruction to the original."""
        difference = np.abs(self.reconstructions - self.original)
        return [float(v) for v in difference.mean(axis=(1, 2, 3))]

    def strip(self) -> MedicalImage:
        """The reconstructions side by side."""
        return tiled([list(self.reconstructions)])


class Manipulator:
    """The class capsules of one slice, computed once and moved as often as wanted.

    Args:
        network: in evaluation mode.
        slices: `[D, C, H, W]`, as the network's input is prepared.
        slice: None for the middle one.
        provenance: put into every answer.

    Raises:
        InvalidParameter: a network without reconstruction, a 3-D one, or no such slice.
        InputTooLarge: the slice would not fit the memory.
    """

    def __init__(
        self,
        network: torch.nn.Module,
        slices: Tensor,
        slice: int | None,
        provenance: AnswerProvenance,
    ) -> None:
        if not isinstance(network, SegCaps) or network.spatial_dims != 2:
            raise InvalidParameter(f"{provenance.model} is no 2-D SegCaps: it reconstructs nothing")
        at = chosen_slice(len(slices), slice)
        check_whole(slices[at : at + 1])
        self.network, self.provenance, self._size = network, provenance, slices.shape[2:]
        with torch.inference_mode():
            padded = pad_to(slices[at : at + 1].to(device_of(network)), network.divisor)
            self._capsules = network.capsules(padded)["seg_caps"]
            lengths = capsule_lengths(self._capsules)
            self._mask = one_hot(predicted_classes(lengths), lengths.shape[1])
            self.original = self._reconstruct(self._capsules)

    def __call__(self, capsule: int, atom: int, deltas: Sequence[float]) -> Manipulation:
        """Add each of `deltas` to one atom of one capsule type, where the network sees its class.

        Raises:
            InvalidParameter: no such capsule type or atom, no or too many deltas, or one that is
                no number or over `LARGEST_DELTA`.
        """
        types, atoms = self._capsules.shape[1:3]
        _check_index("capsule", capsule, types)
        _check_index("atom", atom, atoms)
        if not 1 <= len(deltas) <= MOST_DELTAS:
            raise InvalidParameter(f"{len(deltas)} deltas: 1 to {MOST_DELTAS} are taken")
        if not all(abs(delta) <= LARGEST_DELTA for delta in deltas):
            raise InvalidParameter(f"deltas={list(deltas)}: from -{LARGEST_DELTA} to that")
        moved = []
        with torch.inference_mode():
            for delta in deltas:
                capsules = self._capsules.clone()
                capsules[:, capsule, atom] += delta
                moved.append(self._reconstruct(capsules))
        return Manipulation(np.stack(moved), self.original, tuple(deltas), self.provenance)

    def sheet(self, capsule: int, deltas: Sequence[float] = DELTAS) -> MedicalImage:
        """A picture with a row an atom and a column a delta, as in LaLonde's figure."""
        atoms = self._capsules.shape[2]
        return tiled([list(self(capsule, a, deltas).reconstructions) for a in range(atoms)])

    def _reconstruct(self, capsules: Tensor) -> FloatArray:
        image = cropped(self.network.reconstruct(capsules, self._mask), self._size)
        return np.asarray(image[0].float().cpu().numpy(), dtype=np.float32)


def _check_index(name: str, index: int, count: int) -> None:
    if not 0 <= index < count:
        raise InvalidParameter(f"{name}={index}: must be from 0 to {count - 1}")
