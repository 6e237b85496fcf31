"""Classify an image: the probability of each class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from caps_med.bundles.metadata import ClassificationSpec
from caps_med.errors import InvalidInput
from caps_med.images import MedicalImage, with_channels
from caps_med.inference.applied import ONE_BY_ONE, ImageReader, Shown
from caps_med.inference.passes import device_of
from caps_med.inference.provenance import AnswerProvenance
from caps_med.inference.slabs import slab_of
from caps_med.inference.suitability import (
    unexplained,
    unlike_reconstruction,
    unlike_training,
)
from caps_med.networks import ClassificationNetwork, with_temperature
from caps_med.preprocessing import single_slice_plane, unit_pictures

FloatArray = NDArray[np.float32]

#: A class of several that may be present is there from this score on.
PRESENT = 0.5


@dataclass(frozen=True, eq=False)
class Classification:
    """The classes of an image.

    Attributes:
        label: the most probable class.
        present: the classes to which the image belongs: only `label` if classes exclude one
            another, otherwise all with a probability of at least a half.
        probabilities: class -> probability; for exclusive classes they add up to 1.
        lengths: class -> the network's score: the length or activation of its capsule; for a
            convolutional network, its probability before calibration.
        poses: `[J, A]`, the pose of each class capsule; A = 0 without capsules.
        reconstruction: the decoder's reconstruction from the capsules of `present`, in [0, 1], at
            the network's size; None without a decoder.
        exclusive: whether classes exclude one another.
        warnings: assumptions made when reading the image, and differences from the training
            images.
        provenance: model, version and preprocessing.
    """

    label: str
    present: tuple[str, ...]
    probabilities: Mapping[str, float]
    lengths: Mapping[str, float]
    poses: FloatArray
    reconstruction: MedicalImage | None
    exclusive: bool
    warnings: tuple[str, ...]
    provenance: AnswerProvenance

    def numbers(self) -> dict[str, Any]:
        """The classes in order of decreasing probability, for JSON."""
        ranked = sorted(self.probabilities, key=lambda name: -self.probabilities[name])
        rows = dict(zip(self.lengths, self.poses.tolist(), strict=True))
        return {
            "label": self.label,
            "present": list(self.present),
            "exclusive": self.exclusive,
            "classes": [
                {
                    "name": name,
                    "probability": self.probabilities[name],
                    "length": self.lengths[name],
                    "pose": rows[name],
                }
                for name in ranked
            ],
            "warnings": list(self.warnings),
            "provenance": self.provenance.as_dict(),
        }


class Classifier(ImageReader[ClassificationNetwork]):
    """Apply a classification network to images of any size. See `AppliedNetwork`."""

    task, kind = "classification", ClassificationNetwork

    @cached_property
    def spec(self) -> ClassificationSpec:
        """The model card's section on classification."""
        assert self.card.classification is not None  # noqa: S101 - the card's own check
        return self.card.classification

    @property
    def channels(self) -> int:
        """Channels of the image."""
        return self.spec.pictures.channels

    def __call__(self, image: MedicalImage, slice: int | None = None) -> Classification:
        """Classify a picture `[C, H, W]`, or one slice of a volume `[C, X, Y, Z]`.

        Args:
            slice: None for the middle one.

        Raises:
            InvalidInput: the image's channels do not match the network's.
            InvalidParameter: there is no such slice.
        """
        return self.many([image], slice)[0]

    def many(
        self, images: Sequence[MedicalImage], slice: int | None = None
    ) -> list[Classification]:
        """Classify images as one batch; each answer equals that of a single call."""
        if not images:
            return []
        matched = [self.match_channels(image) for image in images]
        pictures = torch.cat([self.prepare(image, slice) for image in matched])
        with torch.inference_mode():
            scores, probabilities, capsules, present = self._scored(pictures)
            drawn = self._drawn(capsules, present) if self.network.reconstructs else None
            notes = self._doubts(pictures, drawn)
        found = (scores.float().cpu(), probabilities.cpu(), capsules.float().cpu(), present.cpu())
        return [
            self._answer(
                image, notes[i], None if drawn is None else drawn[i], *(each[i] for each in found)
            )
            for i, image in enumerate(matched)
        ]

    def _scored(self, pictures: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Scores, probabilities, class capsules, and the predicted classes."""
        scores, capsules = self.network.classify(pictures.to(device_of(self.network)))
        probabilities = calibrated(scores, self.spec)
        return scores, probabilities, capsules, self._present(scores, probabilities)

    def _drawn(self, capsules: Tensor, present: Tensor) -> Tensor:
        """Each picture alone: a decoder's dense layers round differently in a batch."""
        rows = zip(capsules.split(1), present.split(1), strict=True)
        drawn = [self.network.reconstruct(*row) for row in rows]
        return torch.cat(drawn).float().cpu()

    def _doubts(self, pictures: Tensor, drawn: Tensor | None) -> list[tuple[str, ...]]:
        """For each picture, a warning if it is unlike the training images.

        Args:
            drawn: their reconstructions; None without a decoder.
        """
        notes = [unlike_training(self.card, picture[None]) for picture in pictures]
        if drawn is None:
            return notes
        errors = unexplained(self.network.reconstruction_target(pictures), drawn).tolist()
        return [
            note or unlike_reconstruction(self.card, error)
            for note, error in zip(notes, errors, strict=True)
        ]

    def _slab(self, image: MedicalImage) -> tuple[str, ...]:
        plane = single_slice_plane(image) or self.spec.pictures.plane
        return slab_of(image, plane)

    def prepare(self, image: MedicalImage, slice: int | None = None) -> Tensor:
        """The network's input `[1, C, *size]` for a picture or one slice.

        Raises:
            InvalidInput, InvalidParameter: as for a call.
        """
        return unit_pictures(torch.from_numpy(self.spec.pictures(image, slice).copy()))[None]

    def shown(self, image: MedicalImage, slice: int | None = None) -> Shown:
        """See `ImageReader.shown`; with a decoder the picture is classified for its warnings."""
        matched = self.match_channels(image)
        picture = self.prepare(matched, slice)
        drawn = None
        if self.network.reconstructs:
            with torch.inference_mode():
                _, _, capsules, present = self._scored(picture)
                drawn = self._drawn(capsules, present)
        (note,) = self._doubts(picture, drawn)
        return Shown(picture, 0, (*matched.warnings, *self._slab(matched), *note))

    def try_out(self, size: Sequence[int]) -> None:
        """See `AppliedNetwork.try_out`."""
        network = self.network
        network.classify(torch.zeros(1, network.in_channels, *network.image_size))

    def match_channels(self, image: MedicalImage) -> MedicalImage:
        """The image converted to grey or colour, as the network needs it.

        Raises:
            InvalidInput: the channels do not match the network's.
        """
        return with_channels(image, self.spec.pictures.channels)

    def check_files(self, count: int) -> None:
        """Check, before reading any file, that an image may be given as `count` files, one per
        channel.

        Raises:
            InvalidInput: the network takes fewer channels.
        """
        if count > self.spec.pictures.channels:
            raise InvalidInput(
                f"{self.provenance.model} takes {self.spec.pictures.channels} channel(s); got "
                f"{count}: give one image{ONE_BY_ONE}"
            )

    def _present(self, scores: Tensor, probabilities: Tensor) -> Tensor:
        """`[B, J]`, 1 for the predicted classes of each image."""
        if self.spec.exclusive:
            highest = probabilities.argmax(1, keepdim=True)
            return torch.zeros_like(scores).scatter(1, highest, 1)
        return (probabilities >= PRESENT).to(scores.dtype)

    def _answer(
        self,
        image: MedicalImage,
        notes: tuple[str, ...],
        drawn: Tensor | None,
        scores: Tensor,
        probabilities: Tensor,
        capsules: Tensor,
        present: Tensor,
    ) -> Classification:
        names = list(self.card.labels.values())
        picture = None if drawn is None else MedicalImage(drawn.numpy(), format="png")
        return Classification(
            label=names[int(probabilities.argmax())],
            present=tuple(n for n, there in zip(names, present.tolist(), strict=True) if there),
            probabilities=dict(zip(names, probabilities.tolist(), strict=True)),
            lengths=dict(zip(names, scores.tolist(), strict=True)),
            poses=capsules.numpy(),
            reconstruction=picture,
            exclusive=self.spec.exclusive,
            warnings=(*image.warnings, *self._slab(image), *notes),
            provenance=self.provenance,
        )


def calibrated(scores: Tensor, spec: ClassificationSpec) -> Tensor:
    """Probabilities `[B, J]` from scores `[B, J]`, float64.

    For exclusive classes ``score ** (1 / temperature)``, normalized to a sum of 1: for a softmax,
    this is the softmax of the logits divided by the temperature (Guo et al. 2017). Classes that do
    not exclude one another keep their scores.
    """
    if not spec.exclusive:
        return scores.double()
    return with_temperature(scores.double(), spec.temperature)
