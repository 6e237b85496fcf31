"""From an image to a label map in the same space."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from caps_med.errors import InvalidInput, InvalidParameter
from caps_med.images import MedicalImage, with_channels
from caps_med.images.blocks import blocks
from caps_med.images.channels import COLOURS, as_picture, is_colour, several_volumes
from caps_med.inference.applied import ImageReader, Shown
from caps_med.inference.measures import LabelMeasures, measure_labels
from caps_med.inference.passes import joined, passes
from caps_med.inference.precision import NOTE, Precision, computed_in
from caps_med.inference.progress import part_of
from caps_med.inference.provenance import AnswerProvenance, as_answer
from caps_med.inference.resolution import coarser_than_training
from caps_med.inference.slabs import slab
from caps_med.inference.suitability import unlike_training
from caps_med.inference.uncertainty_maps import (
    Disagreement,
    ShownMap,
    Votes,
    calibrated,
    confidence_of,
    disagreement_of,
    entropy_of,
)
from caps_med.networks import (
    Ensemble,
    SegmentationNetwork,
    around_content,
    predicted_classes,
)
from caps_med.preprocessing import PreparedSlices

#: Around the content of a slice whose background was masked, pixels at the network's spacing that
#: are computed as well: voxels half filled with tissue, in which a model may find some. On Colin27
#: and MNI152 the furthest label is 3 pixels outside of the mask.
MARGIN = 8
#: The axes of slices `[D, C, H, W]` along which each mirror image is flipped.
FLIPS = ((2,), (3,), (2, 3))


@dataclass(frozen=True, eq=False, repr=False)
class Segmentation(MedicalImage):
    """A label map, with the probabilities that it was derived from.

    Attributes:
        names: label id -> name.
        probabilities: `[K, *S]`, one channel per class; one for a binary model. Calibrated if the
            model's card has a temperature, else as the network gives them: capsule lengths need
            not add up to 1.
        provenance: model, version and preprocessing.
        disagreement: of mirror images and of an ensemble's networks; None if it was not asked for.
    """

    names: Mapping[int, str] = field(kw_only=True)
    probabilities: MedicalImage = field(kw_only=True)
    provenance: AnswerProvenance = field(kw_only=True)
    disagreement: Disagreement | None = field(default=None, kw_only=True)

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

    @property
    def confidence_map(self) -> MedicalImage:
        """`[1, *S]`, the probability of the most probable class, from 1 / classes to 1."""
        confidence = confidence_of(self.probabilities.array)
        return self.probabilities.with_array(confidence[None], kind="image")

    @property
    def entropy_map(self) -> MedicalImage:
        """`[1, *S]`, entropy of the classes: 0 (sure) to 1 (all of them equally probable)."""
        entropy = entropy_of(self.probabilities.array)
        return self.probabilities.with_array(entropy[None], kind="image")

    def map_of(self, name: ShownMap) -> MedicalImage:
        """`confidence_map`, `entropy_map`, the map of `disagreement`, or `probabilities`.

        Raises:
            InvalidParameter: the disagreement was not asked for.
        """
        if name == "probabilities":
            return self.probabilities
        if name == "disagreement":
            if self.disagreement is None:
                raise InvalidParameter("no disagreement: segment with disagreement=True")
            return self.disagreement.map
        return self.confidence_map if name == "confidence" else self.entropy_map

    @cached_property
    def mean_entropy(self) -> float:
        """Mean of `entropy_map` over the foreground; of the whole image if there is none."""
        inside, everywhere, count = 0.0, 0.0, 0
        for part in blocks(self.array.shape[1:]):
            entropy = entropy_of(self.probabilities.array[:, part])
            region = self.array[0, part] != self.background
            inside += float(entropy[region].sum(dtype=np.float64))
            everywhere += float(entropy.sum(dtype=np.float64))
            count += int(region.sum())
        return inside / count if count else everywhere / self.array[0].size

    @property
    def uncertainty(self) -> dict[str, float | None]:
        """`mean_entropy` and, if it was asked for, the disagreement, in four digits for JSON."""
        views = self.disagreement.as_dict() if self.disagreement else {}
        return {"entropy": round(self.mean_entropy, 4), **views}

    def numbers(self) -> dict[str, Any]:
        """Volumes, measures, uncertainty, shape, warnings and provenance, for JSON."""
        return {
            "volumes": self.volumes,
            "unit": self.volume_unit,
            "shape": list(self.spatial_shape),
            "warnings": list(self.warnings),
            "labels": [one.as_dict() for one in self.measures],
            "uncertainty": self.uncertainty,
            "provenance": self.provenance.as_dict(),
        }


class Segmenter(ImageReader[SegmentationNetwork]):
    """Apply a segmentation network to pictures and volumes of any size. See `AppliedNetwork`."""

    task, kind = "segmentation", SegmentationNetwork
    #: In which the network computes; see `in_precision`.
    precision: Precision = "fp32"

    def in_precision(self, precision: Precision) -> Segmenter:
        """The same in another precision; what it answers says so, if it is not float32."""
        other = copy.copy(self)
        other.precision = precision
        named = None if precision == "fp32" else precision
        other.provenance = replace(self.provenance, precision=named)
        return other

    def __call__(self, image: MedicalImage, disagreement: bool = False) -> Segmentation:
        """Segment a picture `[C, H, W]` or a volume `[C, X, Y, Z]`.

        A 2-D network takes a volume slice by slice, a 3-D network as a whole.

        Args:
            disagreement: whether to segment the mirror images, and with each network of an
                ensemble, to tell where these disagree; the answer stays that of the image.

        Raises:
            InvalidInput: the network cannot take this image.
            InputTooLarge: at the network's spacing the image is over the limits.
        """
        if not disagreement:
            return self.many([image])[0]
        image = self.match_channels(image)
        prepared = self._prepared(image)
        views = self.views
        with part_of(views, 0):
            maps = self.lengths(prepared.slices)
        classes = max(2, self.network.out_channels)
        flips = Votes.of(self._flipped(prepared.slices, maps), classes)
        members = None
        if isinstance(self.network, Ensemble):
            members = Votes.of(self._by_members(self.network, prepared.slices), classes)
        found = disagreement_of(image, prepared, flips, members)
        return replace(self._answer(image, prepared, [maps]), disagreement=found)

    @property
    def views(self) -> int:
        """How many passes over an image its disagreement takes, the answer's own among them."""
        members = len(self.network.members) if isinstance(self.network, Ensemble) else 0
        return 1 + len(FLIPS) + members

    def _flipped(self, slices: Tensor, maps: Tensor) -> Iterator[Tensor]:
        """Classes `[D, 1, H, W]` of an image with the answer `maps`, and of its mirror images."""
        yield predicted_classes(maps)
        for index, axes in enumerate(FLIPS, start=1):
            with part_of(self.views, index):
                mirrored = self.lengths(slices.flip(axes))
            yield predicted_classes(mirrored).flip(axes)

    def _by_members(self, network: Ensemble, slices: Tensor) -> Iterator[Tensor]:
        """Classes `[D, 1, H, W]` by each network of an ensemble."""
        for index, member in enumerate(network.networks, start=1 + len(FLIPS)):
            with part_of(self.views, index):
                parts = self._passes(member, slices)
                yield torch.cat([predicted_classes(part) for part in parts])

    def many(self, images: Sequence[MedicalImage]) -> list[Segmentation]:
        """Segment images of equal size as one batch.

        The answers equal those of single calls, on a CPU to the bit, on a GPU up to rounding. A 3-D
        network takes one image. Raises as a single call does, for the first image that fails.
        """
        images = [self.match_channels(image) for image in images]
        prepared = [self._prepared(image) for image in images]
        slices = [one.slices for one in prepared]
        parts: Sequence[Iterable[Tensor]]
        if len(slices) == 1:
            parts = [self._passes(self.network, slices[0])]
        else:
            together = self.lengths(torch.cat(slices))
            parts = [[part] for part in together.split([len(x) for x in slices])]
        answers = zip(images, prepared, parts, strict=True)
        return [self._answer(image, one, part) for image, one, part in answers]

    def prepare(self, image: MedicalImage) -> PreparedSlices:
        """The slices of an image as the network takes them, with their neighbours.

        Raises:
            InvalidInput, InputTooLarge: as for a call.
        """
        return self._prepared(self.match_channels(image))

    def shown(self, image: MedicalImage, slice: int | None = None) -> Shown:
        """See `ImageReader.shown`."""
        matched = self.match_channels(image)
        prepared = self._prepared(matched)
        return Shown(prepared.slices, slice, (*matched.warnings, *self._doubts(prepared)))

    def _doubts(self, prepared: PreparedSlices) -> tuple[str, ...]:
        """Whether an image is unlike those of the training."""
        return (
            *slab(prepared, self.card.plane, self.network.spatial_dims),
            *coarser_than_training(self.card, prepared.stack),
            *unlike_training(self.card, prepared.slices),
        )

    def _prepared(self, image: MedicalImage) -> PreparedSlices:
        return self.card.preprocessing.network_input(image, self.limits)

    @property
    def channels(self) -> int:
        """Channels of the image, without those of neighbouring slices."""
        return self.network.in_channels // (2 * self.card.neighbours + 1)

    def try_out(self, size: Sequence[int]) -> None:
        """See `AppliedNetwork.try_out`."""
        self(MedicalImage(np.zeros((self.channels, *size), np.uint8)))

    def match_channels(self, image: MedicalImage) -> MedicalImage:
        """The image with the channels that the network needs: its own, or grey or colour adapted.

        Raises:
            SeveralVolumes: several channels of a volume, where one is needed.
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
        if self.channels == 1 and image.spatial_dims == 3 and given > 1:
            raise several_volumes(image, f"{self.provenance.model} takes 1 channel")
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
        """Capsule lengths `[D, K, H, W]` of normalized slices `[D, C, H, W]` of any size.

        On a CPU background is computed once, see `around_content`: in images whose background was
        masked, all that is further than `MARGIN` from the content of a slice is background.
        """
        return joined(len(slices), self._passes(self.network, slices))

    def _passes(self, network: SegmentationNetwork, slices: Tensor) -> Iterator[Tensor]:
        """The parts of `lengths`, in order, by one of the model's networks."""
        margin = MARGIN if self.card.normalization.foreground_only else None
        call = around_content(network, margin)

        def computed(maps: Tensor) -> Tensor:
            with computed_in(self.precision, maps.device):
                return call(maps)

        return passes(network, computed, slices)

    def _answer(
        self, image: MedicalImage, prepared: PreparedSlices, parts: Iterable[Tensor]
    ) -> Segmentation:
        lengths = prepared.restore_parts(parts)
        ids = np.array(list(self.card.labels))
        ids = ids.astype(np.uint8 if ids.max() < 256 else np.uint16)
        found = np.empty((1, *lengths.shape[1:]), ids.dtype)
        for part in blocks(lengths.shape[1:]):
            found[:, part] = ids[predicted_classes(torch.from_numpy(lengths[None, :, part]))[0]]
        probabilities = calibrated(lengths, self.card.temperature)
        labels = image.with_array(
            found,
            kind="labels",
            palette=self.card.palette,
            warnings=(
                *self._doubts(prepared),
                *((NOTE,) if self.precision == "bf16" else ()),
            ),
        )
        return as_answer(
            Segmentation,
            labels,
            names=dict(self.card.labels),
            codes=dict(self.card.codes),
            probabilities=image.with_array(probabilities, kind="image"),
            provenance=self.provenance,
        )
