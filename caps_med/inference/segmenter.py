"""From an image to a label map in the same space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from caps_med.errors import InvalidInput
from caps_med.images import Kind, MedicalImage, with_channels
from caps_med.images.channels import COLOURS, as_picture, is_colour
from caps_med.inference.applied import AppliedNetwork
from caps_med.inference.measures import LabelMeasures, measure_labels
from caps_med.inference.passes import in_passes
from caps_med.inference.provenance import AnswerProvenance, as_answer
from caps_med.inference.resolution import coarser_than_training
from caps_med.networks import SegmentationNetwork, predicted_classes
from caps_med.preprocessing import PreparedSlices


@dataclass(frozen=True, eq=False, repr=False)
class Segmentation(MedicalImage):
    """A label map, with the probabilities that it was derived from.

    Attributes:
        names: label id -> name.
        probabilities: `[K, *S]` capsule lengths, one channel per class; one for a binary model.
        provenance: model, version and preprocessing.
    """

    names: Mapping[int, str] = field(kw_only=True)
    probabilities: MedicalImage = field(kw_only=True)
    provenance: AnswerProvenance = field(kw_only=True)

    @property
    def made_by(self) -> str:
        """The model, as ``name@version``."""
        return f"{self.provenance.model}@{self.provenance.version}"

    @property
    def background(self) -> int:
        """The id of the model's first label."""
        return next(iter(self.names))

    @property
    def volume_unit(self) -> str:
        """``mm3`` for volumes, ``pixels`` for pictures."""
        return "pixels" if self.spacing is None else "mm3"

    @property
    def voxel_volume(self) -> float:
        """Volume of one voxel, in `volume_unit`; 1 for a pixel."""
        return 1.0 if self.spacing is None else abs(float(np.linalg.det(self.affine[:3, :3])))

    @property
    def volumes(self) -> dict[str, float]:
        """Volume of each foreground label, in `volume_unit`."""
        return {
            name: float((self.array == i).sum()) * self.voxel_volume
            for i, name in self.names.items()
            if i != self.background
        }

    @cached_property
    def measures(self) -> tuple[LabelMeasures, ...]:
        """Volume, fraction of the image, object count and confidence of each foreground label."""
        return measure_labels(self)

    def numbers(self) -> dict[str, Any]:
        """Volumes, measures, shape, warnings and provenance, for JSON."""
        return {
            "volumes": self.volumes,
            "unit": self.volume_unit,
            "shape": list(self.spatial_shape),
            "warnings": list(self.warnings),
            "labels": [one.as_dict() for one in self.measures],
            "provenance": self.provenance.as_dict(),
        }


class Segmenter(AppliedNetwork[SegmentationNetwork]):
    """Apply a segmentation network to pictures and volumes of any size. See `AppliedNetwork`."""

    reads: Kind = "image"

    def __call__(self, image: MedicalImage) -> Segmentation:
        """Segment a picture `[C, H, W]` or a volume `[C, X, Y, Z]`.

        A 2-D network takes a volume slice by slice, a 3-D network as a whole.

        Raises:
            InvalidInput: the network cannot take this image.
            InputTooLarge: at the network's spacing the image is over the limits.
        """
        return self.many([image])[0]

    def many(self, images: Sequence[MedicalImage]) -> list[Segmentation]:
        """Segment images of equal size as one batch.

        The answers equal those of single calls, on a CPU to the bit, on a GPU up to rounding. A 3-D
        network takes one image. Raises as a single call does, for the first image that fails.
        """
        images = [self.match_channels(image) for image in images]
        prepared = [self._prepared(image) for image in images]
        lengths = self.lengths(torch.cat([one.slices for one in prepared]))
        parts = lengths.split([len(one.slices) for one in prepared])
        answers = zip(images, prepared, parts, strict=True)
        return [self._answer(image, one, part) for image, one, part in answers]

    def prepare(self, image: MedicalImage) -> PreparedSlices:
        """The slices of an image as the network takes them, with their neighbours.

        Raises:
            InvalidInput, InputTooLarge: as for a call.
        """
        return self._prepared(self.match_channels(image))

    def _prepared(self, image: MedicalImage) -> PreparedSlices:
        return self.card.preprocessing.network_input(image, self.limits)

    @property
    def channels(self) -> int:
        """Channels of the image, without those of neighbouring slices."""
        return self.network.in_channels // (2 * self.card.neighbours + 1)

    def match_channels(self, image: MedicalImage) -> MedicalImage:
        """The image with the channels that the network needs: its own, or grey or colour adapted.

        Raises:
            InvalidInput: other channels, or a picture where a volume is needed.
        """
        if image.spatial_dims < self.network.spatial_dims:
            raise InvalidInput(
                f"the image is a picture: {self.provenance.model} takes volumes; send NIfTI"
            )
        if self.network.spatial_dims == 2 and self.card.spacing_mm is None and self.channels > 1:
            image = as_picture(image, channels=self.channels)
        given = len(image.array)
        adapts = self.card.takes_colours if given == 1 else is_colour(image)
        if given != self.channels and not (adapts and {given, self.channels} == {1, COLOURS}):
            raise InvalidInput(self._wanted_channels(given))
        return with_channels(image, self.channels)

    def check_files(self, count: int) -> None:
        """Check, before any is read, that an image may come as so many files, one for each channel.

        Raises:
            InvalidInput: the network takes fewer channels.
        """
        if count > self.channels:
            raise InvalidInput(self._wanted_channels(count))

    def _wanted_channels(self, given: int) -> str:
        """The message about an image with another number of channels."""
        model, count = self.provenance.model, self.channels
        if count == 1:
            return f"{model} takes 1 channel; got {given}: give one of them"
        named = ", ".join(self.card.shown_channels)
        return (
            f"{model} takes {count} channels: {named}; got {given}: give one image for each, in "
            "this order"
        )

    def lengths(self, slices: Tensor) -> Tensor:
        """Capsule lengths `[D, K, H, W]` of normalized slices `[D, C, H, W]` of any size."""
        return in_passes(self.network, self.network, slices)

    def _answer(self, image: MedicalImage, prepared: PreparedSlices, maps: Tensor) -> Segmentation:
        lengths = prepared.restore(maps)
        ids = np.array(list(self.card.labels), dtype=np.uint16)
        (classes,) = predicted_classes(torch.from_numpy(lengths)[None]).numpy()
        dtype = np.uint8 if ids.max() < 256 else np.uint16
        labels = image.with_array(
            ids[classes].astype(dtype),
            kind="labels",
            palette=self.card.palette,
            warnings=coarser_than_training(self.card, prepared.stack),
        )
        return as_answer(
            Segmentation,
            labels,
            names=dict(self.card.labels),
            probabilities=image.with_array(lengths, kind="image"),
            provenance=self.provenance,
        )
