"""From a label map to an image in the same space."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from caps_med.arguments import whole_number
from caps_med.errors import InvalidInput, InvalidParameter
from caps_med.images import MedicalImage
from caps_med.inference.applied import AppliedNetwork
from caps_med.inference.label_suitability import unlike_training_labels
from caps_med.inference.passes import in_passes, one_batch
from caps_med.inference.progress import part_of
from caps_med.inference.provenance import AnswerProvenance, as_answer
from caps_med.inference.resolution import coarser_than_training
from caps_med.inference.slabs import slab
from caps_med.networks import SynthesisNetwork, one_hot
from caps_med.preprocessing import PreparedSlices

#: The largest seed of a 64-bit generator.
LARGEST_SEED = 2**63 - 1


@dataclass(frozen=True, eq=False, repr=False)
class SyntheticImage(MedicalImage):
    """A synthesized image in the label map's space, float32 in [0, 1].

    Attributes:
        provenance: model and seed.
    """

    provenance: AnswerProvenance = field(kw_only=True)

    @property
    def unit_range(self) -> bool:
        """Always true: picture files store the image in 8 bits."""
        return True


class Synthesizer(AppliedNetwork[SynthesisNetwork]):
    """Apply a generator to label maps of any size. See `AppliedNetwork`."""

    task, kind, reads = "synthesis", SynthesisNetwork, "labels"
    channels = 1

    def __call__(self, labels: MedicalImage, seed: int = 0) -> SyntheticImage:
        """Synthesize an image from a label map.

        All slices of a volume share the style of one noise vector, and cut through its 3-D random
        fields at their positions in mm, see `SynthesisNetwork.noise_of_slices`.

        Raises:
            UnknownLabel: an id that the model does not know.
            InvalidInput: the network cannot process this label map.
            InvalidParameter: the seed is out of range, or the generator does not support this size.
        """
        return self.many([labels], [seed])[0]

    def many(self, labels: Sequence[MedicalImage], seeds: Sequence[int]) -> list[SyntheticImage]:
        """Synthesize from label maps of equal size as one batch, each with the noise of its seed.

        The images equal those of single calls, on a CPU to the bit, on a GPU up to rounding. A 3-D
        network takes one label map. Raises like a single call, for the first that fails, and
        InvalidParameter for label maps that do not have one seed each, or sizes that differ.
        """
        if len(labels) != len(seeds):
            raise InvalidParameter(f"{len(labels)} label maps, {len(seeds)} seeds: give one each")
        if not labels:
            return []
        seeds = [known_seed(seed) for seed in seeds]
        noise = [self.noise(seed) for seed in seeds]
        known = [self.match(one) for one in labels]
        prepared = [self._prepared(one) for one in known]
        pixels = self._pixels(prepared, noise)
        sources = [self.provenance.with_seed(seed) for seed in seeds]
        answers = zip(known, prepared, pixels, sources, strict=True)
        return [self._answer(*each) for each in answers]

    def try_out(self, size: Sequence[int]) -> None:
        """See `AppliedNetwork.try_out`."""
        size = self.network.image_size or size
        self(MedicalImage(np.zeros((1, *size), np.uint8), kind="labels"))

    def interpolate(
        self, labels: MedicalImage, seed: int, to_seed: int, steps: int
    ) -> list[SyntheticImage]:
        """`steps` images from that of `seed` to that of `to_seed`, see `interpolate_noise`.

        Raises:
            InvalidParameter: fewer than two steps. Also the errors of a call.
        """
        images, path = [], self.noise_path(seed, to_seed, steps)
        known = self.match(labels)
        prepared = self._prepared(known)
        for step, (source, z) in enumerate(path):
            with part_of(steps, step):
                [pixels] = self._pixels([prepared], [z])
            images.append(self._answer(known, prepared, pixels, source))
        return images

    def noise_path(
        self, seed: int, to_seed: int, steps: int
    ) -> list[tuple[AnswerProvenance, Tensor]]:
        """Noise vectors at evenly spaced positions from one seed's to another's.

        Raises:
            InvalidParameter: fewer than two steps, or not whole ones, or a seed is out of range.
        """
        if whole_number("steps", steps) < 2:
            raise InvalidParameter(f"steps={steps}: must be at least 2, for the two seeds")
        seed, to_seed = known_seed(seed), known_seed(to_seed, "to_seed")
        start, end = self.noise(seed), self.noise(to_seed)
        path = []
        for position in (step / (steps - 1) for step in range(steps)):
            source = replace(
                self.provenance, seed=seed, to_seed=to_seed, position=round(position, 6)
            )
            path.append((source, interpolate_noise(start, end, position)))
        return path

    def _pixels(
        self, prepared: Sequence[PreparedSlices], noise: Sequence[Tensor]
    ) -> list[NDArray[np.float32]]:
        """The images `[C, *S]` of label maps of equal size, with one noise vector `[1, Z]` each."""
        counts = [len(one.slices) for one in prepared]
        noise = [self.slice_noise(one, z) for one, z in zip(prepared, noise, strict=True)]
        maps = in_passes(
            self.network,
            self._image,
            one_batch(self.network, [one.slices for one in prepared]),
            windowed=self.network.windowed,
            vectors=torch.cat(noise),
        )
        parts = maps.split(counts)
        # resampling and blending windows exceed the range by rounding
        return [one.restore(part).clip(0, 1) for one, part in zip(prepared, parts, strict=True)]

    def _answer(
        self,
        labels: MedicalImage,
        prepared: PreparedSlices,
        pixels: NDArray[np.float32],
        source: AnswerProvenance,
    ) -> SyntheticImage:
        image = labels.with_array(
            pixels,
            kind="image",
            warnings=self._doubts(prepared),
        )
        return as_answer(SyntheticImage, image, provenance=source)

    def prepare(self, labels: MedicalImage) -> PreparedSlices:
        """The slices of a label map as class indices `[D, 1, *size]`.

        Raises:
            UnknownLabel: an id that the model does not know.
            InvalidInput: the network cannot process this label map.
            InputTooLarge: at the network's spacing it is over the limits.
        """
        return self._prepared(self.match(labels))

    def shown(self, labels: MedicalImage) -> tuple[PreparedSlices, tuple[str, ...]]:
        """The result of `prepare`, with assumptions about the label map, and differences from those
        of the training.
        """
        known = self.match(labels)
        prepared = self._prepared(known)
        return prepared, (*known.warnings, *self._doubts(prepared))

    def _doubts(self, prepared: PreparedSlices) -> tuple[str, ...]:
        return (
            *slab(prepared, self.card.plane, self.network.spatial_dims),
            *coarser_than_training(self.card, prepared.stack),
            *unlike_training_labels(self.card, prepared.slices),
        )

    def match(self, labels: MedicalImage) -> MedicalImage:
        """The label map with the ids of the model, see `ModelCard.match`.

        Raises:
            UnknownLabel: an id that the model does not know.
            InvalidInput: the network cannot process this label map.
        """
        if labels.spatial_dims < self.network.spatial_dims:
            raise InvalidInput(
                f"the label map is a picture, but {self.provenance.model} takes volumes: give a "
                "volume, such as a NIfTI file"
            )
        return self.card.match(labels)

    def _prepared(self, known: MedicalImage) -> PreparedSlices:
        prepared = self.card.preprocessing.labels(known, self.limits)
        classes = np.searchsorted(list(self.card.labels), prepared.slices.numpy())
        return replace(prepared, slices=torch.from_numpy(classes).float())

    def noise(self, seed: int) -> Tensor:
        """The noise vector `[1, Z]` of a seed, the same on every machine.

        Raises:
            InvalidParameter: see `known_seed`.
        """
        return self.network.noise_of_seed(known_seed(seed))

    def slice_noise(self, labels: PreparedSlices, z: Tensor) -> Tensor:
        """The noise vectors of a label map's slices, `[D, Z']`; `[1, Z]` for a 3-D network.

        A slice's noise depends on its position in mm, so that it is the same alone as in its
        volume. A picture has the noise of `z` `[1, Z]`.
        """
        if self.network.spatial_dims == 3:
            return z
        stack, count = labels.stack, len(labels.slices)
        if stack.spacing is None or stack.slice_mm is None:
            return z.expand(count, -1)
        pixel = float(np.mean(self.card.spacing_mm or stack.spacing))
        first = float(stack.affine[:3, 3] @ stack.affine[:3, 0]) / stack.slice_mm
        between = self.card.preprocessing.slice_mm or stack.slice_mm
        places = torch.arange(count, dtype=torch.float64, device=z.device)
        depths = (first + between * places) / pixel
        lengths = self.card.noise_mm and [mm / pixel for mm in self.card.noise_mm]
        return self.network.noise_of_slices(z, depths, lengths)

    def _image(self, classes: Tensor, z: Tensor) -> Tensor:
        """Images `[N, C, *S]` in [0, 1] from padded class indices `[N, 1, *S]`, noise `[N, Z]`."""
        image: Tensor = self.network(one_hot(classes, self.network.label_channels), z)
        return (image + 1) / 2 if self.network.output == "tanh" else image


def known_seed(seed: int, name: str = "seed") -> int:
    """A seed as a Python integer.

    Raises:
        InvalidParameter: it is not a whole number, is negative or exceeds 63 bits; the message
            calls it `name`.
    """
    try:
        whole = operator.index(seed)
    except TypeError:
        whole = -1
    if not 0 <= whole <= LARGEST_SEED:
        raise InvalidParameter(f"{name}={seed!r}: must be a whole number from 0 to {LARGEST_SEED}")
    return whole


def interpolate_noise(start: Tensor, end: Tensor, position: float) -> Tensor:
    """The noise vector `[1, Z]` at `position` (0 to 1) between two, both ends exact.

    Directions are interpolated spherically and lengths linearly: Gaussian noise of Z numbers nearly
    always has a length near the square root of Z, from which linear interpolation would depart.
    Parallel vectors, which no unique great circle joins, are interpolated linearly.
    """
    if position in (0.0, 1.0):
        return end if position else start
    lengths = start.norm(), end.norm()
    cosine = (start * end).sum() / (lengths[0] * lengths[1])
    angle = torch.acos(cosine.clamp(-1, 1))
    if not 1e-4 < angle < torch.pi - 1e-4:
        return start + position * (end - start)
    direction = torch.sin((1 - position) * angle) * start / lengths[0]
    direction = direction + torch.sin(position * angle) * end / lengths[1]
    length = lengths[0] + position * (lengths[1] - lengths[0])
    between: Tensor = length * direction / torch.sin(angle)
    return between
