"""Label map in, image in the same space out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from caps_med.bundles import ModelCard
from caps_med.errors import InvalidInput, InvalidParameter
from caps_med.images import DEFAULT_LIMITS, Limits, MedicalImage, match_labels
from caps_med.inference.passes import in_passes
from caps_med.inference.provenance import AnswerProvenance, answer
from caps_med.networks import SynthesisNetwork, one_hot
from caps_med.preprocessing import PreparedSlices

#: Seeds are what a 64-bit generator takes.
LARGEST_SEED = 2**63 - 1


@dataclass(frozen=True, eq=False)
class SyntheticImage(MedicalImage):
    """A synthesized image in the label map's space, float32 in [0, 1].

    Attributes:
        provenance: model and seed.
    """

    provenance: AnswerProvenance = field(kw_only=True)

    @property
    def unit_range(self) -> bool:
        """True: files of pictures hold it in 8 bits."""
        return True


class Synthesizer:
    """Run a generator over label maps of any size.

    Args:
        network: in evaluation mode.
        card: labels, plane and spacing of its training.
        provenance: put into every answer.
        limits: bounds on a label map at the network's spacing.
    """

    def __init__(
        self,
        network: SynthesisNetwork,
        card: ModelCard,
        provenance: AnswerProvenance,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.network, self.card, self.provenance = network, card, provenance
        self.limits = limits

    def __call__(self, labels: MedicalImage, seed: int = 0) -> SyntheticImage:
        """Synthesize from a label map; of a volume all slices share one noise vector.

        Raises:
            UnknownLabel: an id that the model does not know.
            InvalidInput: a label map that this network cannot take.
            InvalidParameter: the seed is out of range, or the size is none the generator can take.
        """
        return self.many([labels], [seed])[0]

    def many(self, labels: Sequence[MedicalImage], seeds: Sequence[int]) -> list[SyntheticImage]:
        """Synthesize from label maps of equal size in one go, each with the noise of its seed.

        On a CPU the images are those of a call each, to the last bit; on a GPU to rounding. A 3-D
        network takes one label map. Raises what a single call does, for the first that fails.
        """
        noise = [self.noise(seed) for seed in seeds]
        pixels = self._pixels(labels, noise)
        sources = [self.provenance.with_seed(seed) for seed in seeds]
        return [self._answer(*each) for each in zip(labels, pixels, sources, strict=True)]

    def between(
        self, labels: MedicalImage, seed: int, to_seed: int, steps: int
    ) -> list[SyntheticImage]:
        """`steps` images from one seed's to another's, equally far apart.

        The noise moves on the great circle between the directions of the two vectors while its
        length changes evenly: Gaussian noise of Z numbers has nearly always a length near the
        square root of Z, which a straight line would leave. The first and the last vector are the
        seeds' own, so that their images are those of `synthesize`, on a CPU to the last bit.

        Raises:
            InvalidParameter: fewer than two steps. What a call raises.
        """
        images = []
        for position, z in self.way(seed, to_seed, steps):
            [pixels] = self._pixels([labels], [z])
            source = replace(self.provenance, seed=seed, to_seed=to_seed, position=position)
            images.append(self._answer(labels, pixels, source))
        return images

    def way(self, seed: int, to_seed: int, steps: int) -> list[tuple[float, Tensor]]:
        """Positions from 0 to 1 and the noise vectors there, see `between`.

        Raises:
            InvalidParameter: fewer than two steps, or a seed is out of range.
        """
        if steps < 2:
            raise InvalidParameter(f"steps={steps}: at least 2, the images of the two seeds")
        start, end = self.noise(seed), self.noise(to_seed)
        positions = [step / (steps - 1) for step in range(steps)]
        return [(round(p, 6), spherical(start, end, p)) for p in positions]

    def _pixels(
        self, labels: Sequence[MedicalImage], noise: Sequence[Tensor]
    ) -> list[NDArray[np.float32]]:
        """The images of label maps of equal size, `[C, *S]` each, with one noise vector each."""
        prepared = [self.prepare(one) for one in labels]
        slices = [one.slices for one in prepared]
        vectors = (
            noise
            if len(prepared) == 1
            else [z.expand(len(c), -1) for z, c in zip(noise, slices, strict=True)]
        )
        maps = in_passes(
            self.network,
            self._image,
            torch.cat(slices),
            windowed=self.network.windowed,
            vectors=torch.cat(list(vectors)),
        )
        parts = maps.split([len(classes) for classes in slices])
        # weights of resampling and of windows add up to 1 but for rounding
        return [one.restore(part).clip(0, 1) for one, part in zip(prepared, parts, strict=True)]

    def _answer(
        self, labels: MedicalImage, pixels: NDArray[np.float32], source: AnswerProvenance
    ) -> SyntheticImage:
        image = labels.with_array(pixels, kind="image")
        return answer(SyntheticImage, image, provenance=source)

    def prepare(self, labels: MedicalImage) -> PreparedSlices:
        """The slices of a label map as class indices `[D, 1, *size]`.

        Raises:
            UnknownLabel: an id that the model does not know.
            InvalidInput: a label map that this network cannot take.
            InputTooLarge: at the network's spacing it is over the limits.
        """
        if labels.spatial_dims < self.network.spatial_dims:
            raise InvalidInput(
                f"the label map is a picture: {self.provenance.model} takes volumes; send NIfTI"
            )
        known = match_labels(labels, self.card.labels, binary=self.card.binary)
        prepared = self.card.preprocessing.labels(known, self.limits)
        classes = np.searchsorted(list(self.card.labels), prepared.slices.numpy())
        return replace(prepared, slices=torch.from_numpy(classes).float())

    def noise(self, seed: int) -> Tensor:
        """The noise vector `[1, Z]` of a seed, the same on every machine.

        Raises:
            InvalidParameter: the seed is negative or over 63 bits.
        """
        if not 0 <= seed <= LARGEST_SEED:
            raise InvalidParameter(f"seed={seed}: must be from 0 to {LARGEST_SEED}")
        return torch.randn(
            1, self.network.noise_size, generator=torch.Generator().manual_seed(seed)
        )

    def _image(self, classes: Tensor, z: Tensor) -> Tensor:
        """The image in [0, 1] `[N, C, *S]` of padded class indices and noise `[N, Z]`."""
        image: Tensor = self.network(one_hot(classes, self.network.label_channels), z)
        return (image + 1) / 2 if self.network.output == "tanh" else image


def spherical(start: Tensor, end: Tensor, position: float) -> Tensor:
    """The vector `[1, Z]` at `position` (0 to 1) on the way from one to the other.

    Directions by spherical interpolation, lengths evenly; both ends exact; a straight line between
    vectors that point the same way, or opposite ways, which no one great circle joins.
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
