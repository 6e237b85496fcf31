"""Shift one atom of the class capsules and reconstruct the image.

LaLonde & Bagci 2018, "Capsules for Object Segmentation", section on capsule manipulation: the
last layer's pose vectors are shifted by -0.25 to 0.25 along one atom. Deviation: the capsules of
the other classes are masked by the network's own prediction, not by the ground truth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from caps_med.arguments import checked_index
from caps_med.errors import InvalidParameter
from caps_med.images import MedicalImage, chosen_slice
from caps_med.inference.applied import Shown
from caps_med.inference.captions import as_rgb, captioned
from caps_med.inference.colorbars import ColorBar, colored_by_sign
from caps_med.inference.drawing import check_decoder
from caps_med.inference.passes import device_of, input_of_slice
from caps_med.inference.provenance import AnswerProvenance
from caps_med.inference.strip import rows_of, tiled
from caps_med.networks import (
    ClassificationNetwork,
    SegCaps,
    one_hot,
    predicted_classes,
)
from caps_med.networks.base import class_lengths
from caps_med.networks.padding import cropped

FloatArray = NDArray[np.float32]

#: Shifts of LaLonde's figure.
DELTAS = (-0.25, -0.15, -0.05, 0.0, 0.05, 0.15, 0.25)
#: Pose vectors are shorter than 1: larger shifts are meaningless.
MAX_DELTA = 1.0
#: Percentile of the differences that gets the strongest colour: single pixels change much more.
SHOWN = 99
#: Reconstructions per call.
MAX_DELTAS = 33


@dataclass(frozen=True, eq=False)
class Manipulation:
    """Reconstructions of one slice, each with one atom shifted by a different amount.

    Attributes:
        reconstructions: `[N, C, H, W]` in [0, 1], one per delta.
        original: `[C, H, W]`, without a shift.
        deltas: the shifts.
        provenance: model, version and preprocessing.
        warnings: assumptions about the image, and differences from the training images.
    """

    reconstructions: FloatArray
    original: FloatArray
    deltas: tuple[float, ...]
    provenance: AnswerProvenance
    warnings: tuple[str, ...] = ()

    @property
    def changes(self) -> list[float]:
        """Mean absolute difference of each reconstruction from the original."""
        difference = np.abs(self.reconstructions - self.original)
        return [float(v) for v in difference.mean(axis=(1, 2, 3))]

    def strip(self) -> MedicalImage:
        """The reconstructions side by side; channels that are not colours below each other."""
        return tiled(rows_of(list(self.reconstructions)))


class Manipulator:
    """The class capsules of one image, computed once for any number of shifts.

    Args:
        capsules: `[1, J, A, *S]`.
        reconstruct: the image `[C, H, W]` represented by capsules, when inspecting those of one
            class.
        answered: the class that the network predicts; None if there are several.
        provenance: of every answer.
        labels: label id -> name of each class capsule, in their order.
        warnings: see `Manipulation`.
    """

    def __init__(
        self,
        capsules: Tensor,
        reconstruct: Callable[[Tensor, int], Tensor],
        answered: int | None,
        provenance: AnswerProvenance,
        labels: Mapping[int, str] | None = None,
        warnings: tuple[str, ...] = (),
    ) -> None:
        self._capsules, self._draw, self.provenance = capsules, reconstruct, provenance
        self.answered, self.labels, self.warnings = answered, dict(labels or {}), warnings

    @classmethod
    def of_segmentation(
        cls,
        network: torch.nn.Module,
        shown: Shown,
        provenance: AnswerProvenance,
        labels: Mapping[int, str] | None = None,
    ) -> Manipulator:
        """For one slice; each pixel's predicted class is drawn.

        Args:
            network: in evaluation mode.
            shown: the image prepared for the network.

        Raises:
            InvalidParameter: the network is not a 2-D SegCaps, or there is no such slice.
            InputTooLarge: the slice is too large to be processed whole.
        """
        if not isinstance(network, SegCaps) or network.spatial_dims != 2:
            raise InvalidParameter(
                f"{provenance.model} cannot reconstruct images: choose a 2-D SegCaps"
            )
        at, size = chosen_slice(len(shown.slices), shown.index), shown.slices.shape[2:]
        with torch.inference_mode():
            capsules = network.capsules(input_of_slice(network, shown.slices, at))["seg_caps"]
            lengths = class_lengths(capsules)
            mask = one_hot(predicted_classes(lengths), lengths.shape[1])
        return cls(
            capsules, lambda moved, _: cropped(network.reconstruct(moved, mask), size)[0], None,
            provenance, labels, shown.warnings,
        )  # fmt: skip

    @classmethod
    def of_classification(
        cls,
        network: ClassificationNetwork,
        shown: Shown,
        provenance: AnswerProvenance,
        labels: Mapping[int, str] | None = None,
    ) -> Manipulator:
        """For one picture; only the inspected class is drawn.

        Raises:
            InvalidParameter: the network has no decoder.
        """
        check_decoder(network, provenance)
        with torch.inference_mode():
            scores, capsules = network.classify(shown.slices.to(device_of(network)))

        def draw(moved: Tensor, capsule: int) -> Tensor:
            present = torch.zeros_like(scores)
            present[:, capsule] = 1
            return network.reconstruct(moved, present)[0]

        return cls(capsules, draw, int(scores.argmax()), provenance, labels, shown.warnings)

    def __call__(
        self, capsule: int | str | None, atom: int, deltas: Sequence[float]
    ) -> Manipulation:
        """Add each of `deltas` to one atom of one capsule type, where its class is predicted.

        Args:
            capsule: its number, or its label; None for that of the predicted class, or the first.

        Raises:
            InvalidParameter: no such capsule type or atom; no deltas or more than `MAX_DELTAS`; a
                delta that is not finite, or beyond `MAX_DELTA`.
        """
        types, atoms = self._capsules.shape[1:3]
        capsule = checked_index("capsule", self.chosen(capsule), types)
        atom = checked_index("atom", atom, atoms)
        if not 1 <= len(deltas) <= MAX_DELTAS:
            raise InvalidParameter(f"{len(deltas)} deltas: must be 1 to {MAX_DELTAS}")
        if not all(abs(delta) <= MAX_DELTA for delta in deltas):
            raise InvalidParameter(
                f"deltas={list(deltas)}: each must be from -{MAX_DELTA} to {MAX_DELTA}"
            )
        with torch.inference_mode():
            original = self._reconstruct(self._capsules, capsule)
            moved = [self._reconstruct(self._shifted(capsule, atom, d), capsule) for d in deltas]
        return Manipulation(
            np.stack(moved), original, tuple(deltas), self.provenance, self.warnings
        )

    def chosen(self, capsule: int | str | None) -> int:
        """The capsule type itself, or that of a label; for None that of the predicted class, or the
        first.

        Raises:
            InvalidParameter: see `capsule_of`.
        """
        if isinstance(capsule, str):
            return capsule_of(capsule, self.labels)
        return (self.answered or 0) if capsule is None else capsule

    def sheet(
        self, capsule: int | str | None, deltas: Sequence[float] = DELTAS, differences: bool = False
    ) -> MedicalImage:
        """One row per atom and one column per delta, as in LaLonde's figure, with captions.

        For an image with several channels that are not colours, each atom has a row per channel.

        Args:
            capsule: capsule type of the last layer; see `chosen`.
            deltas: the shifts.
            differences: instead of each reconstruction, show its difference from the one without a
                shift, averaged over the channels.
        """
        capsule = self.chosen(capsule)
        shifted = [self(capsule, a, deltas) for a in range(self._capsules.shape[2])]
        names = [f"{round(delta, 3) + 0:+g}" for delta in deltas]
        names_of = list(self.labels.values())
        named = f" ({names_of[capsule]})" if 0 <= capsule < len(names_of) else ""
        title = f"{self.provenance.model}@{self.provenance.version}: capsule {capsule}{named}"
        if differences:
            changes = [(one.reconstructions - one.original).mean(1) for one in shifted]
            seen = np.abs(changes)
            largest = float(np.percentile(seen[seen > 0], SHOWN)) if seen.any() else 1e-6
            rows = [[colored_by_sign(one / largest) for one in change] for change in changes]
            bar = ColorBar.by_sign(largest, "or beyond: difference, in an image of 0 to 1")
            atoms = [f"atom {atom}" for atom in range(len(rows))]
            return captioned(rows, atoms, names, f"{title}, one atom shifted by", bar)
        rows, atoms = [], []
        for atom, one in enumerate(shifted):
            of_atom = rows_of(list(one.reconstructions))
            rows += [[as_rgb(picture) for picture in row] for row in of_atom]
            channels = [f", channel {c}" for c in range(len(of_atom))]
            atoms += [f"atom {atom}{c if len(of_atom) > 1 else ''}" for c in channels]
        return captioned(rows, atoms, names, f"{title}, reconstruction, one atom shifted by")

    def _shifted(self, capsule: int, atom: int, delta: float) -> Tensor:
        capsules = self._capsules.clone()
        capsules[:, capsule, atom] += delta
        return capsules

    def _reconstruct(self, capsules: Tensor, capsule: int) -> FloatArray:
        return np.asarray(self._draw(capsules, capsule).float().cpu().numpy(), dtype=np.float32)


def capsule_of(label: str, labels: Mapping[int, str]) -> int:
    """The class capsule of a label, by its name (case-insensitive) or its id.

    Args:
        labels: id -> name, in the order of the class capsules.

    Raises:
        InvalidParameter: there is no such capsule, or there are several.
    """
    meant = {
        index
        for index, (number, name) in enumerate(labels.items())
        if label in (name, str(number)) or label.casefold() == name.casefold()
    }
    if len(meant) == 1:
        return meant.pop()
    known = ", ".join(f"{number} {name}" for number, name in labels.items())
    what = "is the name or id of several" if meant else "is not one"
    raise InvalidParameter(f"label {label!r} {what} of the model's class capsules: {known}")
