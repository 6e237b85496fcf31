"""From an image to a label map in the same space."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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
from caps_med.inference.applied import ONE_BY_ONE, ImageReader, Shown
from caps_med.inference.assembling import assembled
from caps_med.inference.certainty import Certainty
from caps_med.inference.measures import LabelMeasures, measure_labels
from caps_med.inference.mirrors import mean_over, mirror_images
from caps_med.inference.passes import in_one_call, joined, one_batch, passes
from caps_med.inference.precision import NOTE, Precision, computed_in
from caps_med.inference.progress import part_of
from caps_med.inference.provenance import AnswerProvenance, as_answer
from caps_med.inference.resolution import coarser_than_training
from caps_med.inference.slabs import slab
from caps_med.inference.suitability import unlike_training
from caps_med.inference.uncertainty_maps import (
    PROBABILITIES,
    Disagreement,
    FloatArray,
    ShownMap,
    Votes,
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


@dataclass(frozen=True, eq=False, repr=False)
class Segmentation(MedicalImage):
    """A label map, with the probabilities from which it was derived.

    Attributes:
        names: label id -> name.
        maps: the maps that it keeps, by name: `probabilities`, or others that were requested.
        provenance: model, version and preprocessing.
        disagreement: of mirror images and of an ensemble's networks; None if not requested.
        known_certainty: for answers that do not keep the probabilities; see `certainty`.
    """

    names: Mapping[int, str] = field(kw_only=True)
    maps: Mapping[ShownMap, MedicalImage] = field(kw_only=True)
    provenance: AnswerProvenance = field(kw_only=True)
    disagreement: Disagreement | None = field(default=None, kw_only=True)
    known_certainty: Certainty | None = field(default=None, kw_only=True)

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
    def probabilities(self) -> MedicalImage:
        """`[K, *S]`, one channel per class; one for a binary model.

        Calibrated if the model's card has a temperature, otherwise as output by the network:
        capsule lengths need not add up to 1. Those of a refined answer do.

        Raises:
            InvalidParameter: they were not kept, see `maps`; the same applies to maps derived from
                them.
        """
        return self._kept("probabilities")

    @property
    def confidence_map(self) -> MedicalImage:
        """`[1, *S]`, the probability of the most probable class, from 1 / classes to 1."""
        return self._derived("confidence", confidence_of)

    @property
    def entropy_map(self) -> MedicalImage:
        """`[1, *S]`, entropy of the classes: 0 (sure) to 1 (all equally probable)."""
        return self._derived("entropy", entropy_of)

    def _kept(self, name: ShownMap) -> MedicalImage:
        if name not in self.maps:
            raise InvalidParameter(f"the answer has no {name}: segment with maps=[{name!r}]")
        return self.maps[name]

    def _derived(self, name: ShownMap, measure: Callable[[FloatArray], FloatArray]) -> MedicalImage:
        """A map that is kept, or follows from the probabilities."""
        if "probabilities" not in self.maps:
            return self._kept(name)
        return self.probabilities.with_array(measure(self.probabilities.array)[None], kind="image")

    def map_of(self, name: ShownMap) -> MedicalImage:
        """`confidence_map`, `entropy_map`, the map of `disagreement`, or `probabilities`.

        Raises:
            InvalidParameter: it was not requested.
        """
        if name == "probabilities":
            return self.probabilities
        if name == "disagreement":
            if self.disagreement is None:
                raise InvalidParameter(
                    "the disagreement was not computed: segment with disagreement=True"
                )
            return self.disagreement.map
        return self.confidence_map if name == "confidence" else self.entropy_map

    @cached_property
    def certainty(self) -> Certainty:
        """Confidence of each label, and mean entropy."""
        if self.known_certainty is not None:
            return self.known_certainty
        found = Certainty(self.names)
        for part in blocks(self.array.shape[1:]):
            probabilities = self.probabilities.array[:, part]
            found.add(self.array[0, part], probabilities, entropy_of(probabilities))
        return found

    @property
    def mean_entropy(self) -> float:
        """Mean of `entropy_map` over the foreground, or the whole image if there is none."""
        return self.certainty.mean_entropy

    @property
    def uncertainty(self) -> dict[str, float | None]:
        """`mean_entropy` and, if requested, the disagreement, with four digits for JSON."""
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
    #: Whether the answer is the mean over mirror images; see `with_tta`.
    tta: bool = False

    def in_precision(self, precision: Precision) -> Segmenter:
        """The same in another precision; its answers say so if it is not float32."""
        other = copy.copy(self)
        other.precision = precision
        named = None if precision == "fp32" else precision
        other.provenance = replace(self.provenance, precision=named)
        return other

    def with_tta(self, on: bool = True) -> Segmenter:
        """The same with or without test-time augmentation; answers state the number of views.

        Raises:
            InvalidParameter: the model was trained without mirror images.
        """
        views = self.card.tta_views if on else None
        if views == 1:
            raise InvalidParameter(
                f"tta: {self.provenance.model} was trained without mirror images, so that there "
                "are none to average over; leave it out"
            )
        other = copy.copy(self)
        other.tta = on
        other.provenance = replace(self.provenance, tta_views=views)
        return other

    def __call__(
        self,
        image: MedicalImage,
        disagreement: bool = False,
        maps: Collection[ShownMap] = PROBABILITIES,
    ) -> Segmentation:
        """Segment a picture `[C, H, W]` or a volume `[C, X, Y, Z]`.

        A 2-D network takes a volume slice by slice, a 3-D network as a whole.

        Args:
            disagreement: whether to also segment the mirror images, and with each network of an
                ensemble, to show where these disagree; the answer remains that of the image.
            maps: which maps the answer keeps; the others are never in memory as a whole. If the
                disagreement is among them, it is computed.

        Test-time augmentation does not change the disagreement.

        Raises:
            InvalidInput: the network cannot process this image.
            InputTooLarge: at the network's spacing the image is over the limits.
        """
        if not (disagreement or "disagreement" in maps):
            return self.many([image], maps)[0]
        if self.tta:
            with part_of(2, 0):
                mean = self(image, maps=[name for name in maps if name != "disagreement"])
            with part_of(2, 1):
                alone = self.with_tta(False)(image, disagreement=True, maps=())
            return replace(mean, disagreement=alone.disagreement)
        image = self.match_channels(image)
        prepared = self._prepared(image)
        views = self.views
        seen: list[Tensor] = []
        with part_of(views, 0):
            parts = self._passes(self.network, prepared.slices)
            answer = self._answer(image, prepared, _noting_classes(parts, seen), maps)
        classes = max(2, self.network.out_channels)
        flips = Votes.of(self._flipped(prepared.slices, torch.cat(seen)), classes)
        members = None
        if isinstance(self.network, Ensemble):
            members = Votes.of(self._by_members(self.network, prepared.slices), classes)
        found = disagreement_of(image, prepared, flips, members)
        return replace(answer, disagreement=found)

    def passes_over(self, disagreement: bool = False) -> int:
        """The number of passes over an image for its answer."""
        mean = self.card.tta_views if self.tta else 0
        return mean + self.views if disagreement else max(1, mean)

    @property
    def views(self) -> int:
        """The number of passes over an image for its disagreement, including the image's own."""
        members = len(self.network.members) if isinstance(self.network, Ensemble) else 0
        return 1 + len(self._flips) + members

    @property
    def _flips(self) -> tuple[tuple[int, ...], ...]:
        """Axes of each mirror image `[D, C, H, W]`; not left to right if that swaps labels."""
        return mirror_images([2] if self.card.keeps_sides else [2, 3])

    def _flipped(self, slices: Tensor, classes: Tensor) -> Iterator[Tensor]:
        """Classes `[D, 1, H, W]` of an image, which are given, and of its mirror images."""
        yield classes
        for index, axes in enumerate(self._flips, start=1):
            with part_of(self.views, index):
                mirrored = self._classes(self.network, slices.flip(axes))
            yield mirrored.flip(axes)

    def _by_members(self, network: Ensemble, slices: Tensor) -> Iterator[Tensor]:
        """Classes `[D, 1, H, W]` by each network of an ensemble."""
        for index, member in enumerate(network.networks, start=1 + len(self._flips)):
            with part_of(self.views, index):
                yield self._classes(member, slices)

    def _classes(self, network: SegmentationNetwork, slices: Tensor) -> Tensor:
        """Classes `[D, 1, H, W]` by one of the model's networks."""
        parts = (_small(predicted_classes(part)) for part in self._passes(network, slices))
        return joined(len(slices), parts)

    def many(
        self, images: Sequence[MedicalImage], maps: Collection[ShownMap] = PROBABILITIES
    ) -> list[Segmentation]:
        """Segment images of equal size as one batch.

        The answers equal those of single calls, on a CPU to the bit, on a GPU up to rounding. A 3-D
        network takes one image. Raises like a single call, for the first image that fails, and
        InvalidParameter for images that cannot be one batch. Without images there are no answers.

        Args:
            maps: as for a call, without the disagreement.
        """
        if not images:
            return []
        images = [self.match_channels(image) for image in images]
        prepared = [self._prepared(image) for image in images]
        slices = [one.slices for one in prepared]
        parts: Sequence[Iterable[Tensor]]
        if len(slices) == 1:
            parts = [self._passes(self.network, slices[0])]
        else:
            alone = in_one_call(self.network, slices[0])
            batch = one_batch(self.network, slices)
            together = joined(len(batch), self._passes(self.network, batch, alone))
            parts = [[part] for part in together.split([len(x) for x in slices])]
        answers = zip(images, prepared, parts, strict=True)
        return [self._answer(image, one, part, maps) for image, one, part in answers]

    def prepare(self, image: MedicalImage) -> PreparedSlices:
        """The slices of an image as input of the network, with their neighbours.

        Raises:
            InvalidInput, InputTooLarge: as for a call.
        """
        return self._prepared(self.match_channels(image))

    def shown(self, image: MedicalImage, slice: int | None = None) -> Shown:
        """See `ImageReader.shown`."""
        matched = self.match_channels(image)
        prepared = self._prepared(matched)
        at = self.card.preprocessing.slice_index(matched, slice)
        return Shown(prepared.slices, at, (*matched.warnings, *self._doubts(prepared)))

    def _doubts(self, prepared: PreparedSlices) -> tuple[str, ...]:
        """Warnings if an image is unlike those of the training."""
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

    def as_given(self, image: MedicalImage) -> MedicalImage:
        """The image on the pixels or voxels of its answer, with all its channels.

        For a network that takes pictures with channels, an array ``[H, W, C]`` or ``[C, H, W]`` is
        a picture and not a volume, see `as_picture`.
        """
        pictures = self.network.spatial_dims == 2 and self.card.spacing_mm is None
        if pictures and self.channels > 1:
            return as_picture(image, channels=self.channels)
        return image

    def match_channels(self, image: MedicalImage) -> MedicalImage:
        """The image with the channels that the network needs: its own, or converted grey or colour.

        Raises:
            SeveralVolumes: a volume with several channels where one is needed.
            InvalidInput: other channels, or a picture where a volume is needed.
        """
        if image.spatial_dims < self.network.spatial_dims:
            raise InvalidInput(
                f"the image is a picture, but {self.provenance.model} takes volumes: give a "
                "volume, such as a NIfTI file"
            )
        image = self.as_given(image)
        given = len(image.array)
        adapts = self.card.takes_colours if given == 1 else is_colour(image)
        if self.channels == 1 and image.spatial_dims == 3 and given > 1:
            raise several_volumes(image, f"{self.provenance.model} takes 1 channel")
        if given != self.channels and not (adapts and {given, self.channels} == {1, COLOURS}):
            message = self._wanted_channels(given)
            if image.spatial_dims == 2 and given > COLOURS and image.format in ("npy", "png"):
                message += "; a volume in memory is given as (array, affine)"  # not as a tensor
            raise InvalidInput(message)
        return with_channels(image, self.channels)

    def check_files(self, count: int) -> None:
        """Check, before reading any file, that an image may be given as `count` files, one per
        channel.

        Raises:
            InvalidInput: the network takes fewer channels.
        """
        if count > self.channels:
            raise InvalidInput(f"{self._wanted_channels(count)}{ONE_BY_ONE}")

    def _wanted_channels(self, given: int) -> str:
        """The message about an image with the wrong number of channels."""
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

        On a CPU the background of a volume is computed once, see `around_content`: in images whose
        background was masked, everything further than `MARGIN` from the content of a slice counts
        as background.
        """
        return joined(len(slices), self._passes(self.network, slices))

    def _passes(
        self, network: SegmentationNetwork, slices: Tensor, alone: bool | None = None
    ) -> Iterator[Tensor]:
        """The parts of `lengths`, in order, by one of the model's networks.

        Args:
            alone: whether each slice is a separate image; None for slices of one image.
        """
        margin = MARGIN if self.card.normalization.foreground_only else None
        mirrors = mirror_images(self.card.mirrored_axes) if self.tta else ()
        call = around_content(
            network, margin, in_one_call(network, slices) if alone is None else alone
        )

        def computed(maps: Tensor) -> Tensor:
            with computed_in(self.precision, maps.device):
                return mean_over(mirrors, call, maps)

        return passes(network, computed, slices)

    def _answer(
        self,
        image: MedicalImage,
        prepared: PreparedSlices,
        parts: Iterable[Tensor],
        maps: Collection[ShownMap],
    ) -> Segmentation:
        found = assembled(self.card, prepared, parts, maps)
        labels = image.with_array(
            found.labels,
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
            maps={name: image.with_array(one, kind="image") for name, one in found.maps.items()},
            known_certainty=found.certainty,
            provenance=self.provenance,
        )


def _noting_classes(parts: Iterable[Tensor], classes: list[Tensor]) -> Iterator[Tensor]:
    """The same parts of an answer, while their classes are added to `classes`."""
    for part in parts:
        classes.append(_small(predicted_classes(part)))
        yield part


def _small(classes: Tensor) -> Tensor:
    """Class indices in a quarter of the memory: no network has more classes than this type."""
    return classes.to(torch.int16)
