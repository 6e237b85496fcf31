"""Label map in, image in the same space out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from caps_med.bundles import ModelCard
from caps_med.errors import InvalidInput, InvalidParameter
from caps_med.images import DEFAULT_LIMITS, Limits, MedicalImage, match_labels
from caps_med.inference.passes import in_passes
from caps_med.inference.planes import Planes
from caps_med.inference.provenance import Provenance, answer
from caps_med.networks import CapsPix2Pix
from caps_med.networks.noise import BroadcastNoise, InputNoise

#: Seeds are what a 64-bit generator takes.
LARGEST_SEED = 2**63 - 1


@dataclass(frozen=True, eq=False)
class SyntheticImage(MedicalImage):
    """A synthesized image in the label map's space; `provenance` holds model and seed."""

    provenance: Provenance = field(kw_only=True)


class Synthesizer:
    """Run a CapsPix2Pix generator over label maps of any size.

    Args:
        network: in evaluation mode.
        card: labels, plane and spacing of its training.
        provenance: put into every answer.
        limits: bounds on a label map at the network's spacing.
    """

    def __init__(
        self,
        network: CapsPix2Pix,
        card: ModelCard,
        provenance: Provenance,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.network, self.card, self.provenance = network, card, provenance
        self.limits = limits

    def __call__(self, labels: MedicalImage, seed: int = 0) -> SyntheticImage:
        """Synthesize from a label map; of a volume all slices share one noise vector.

        Pictures come out as 8-bit, volumes and npy as float32 in [0, 1].

        Raises:
            UnknownLabel: an id that the model does not know.
            InvalidInput: a label map that this network cannot take.
            InvalidParameter: the seed is out of range, or the size is none the generator can take.
        """
        return self.many([labels], [seed])[0]

    def many(self, labels: Sequence[MedicalImage], seeds: Sequence[int]) -> list[SyntheticImage]:
        """Synthesize from label maps of equal size in one go, each with the noise of its seed.

        On a CPU the images are those of a call each, to the last bit; on a GPU to rounding. A 3-D
        network takes one label map.

        Raises:
            What a call raises, for the first label map that does.
        """
        prepared = [self.classes(one) for one in labels]
        noise = [self.noise(seed) for seed in seeds]
        slices = [classes for _, classes in prepared]
        vectors = (
            noise
            if len(prepared) == 1
            else [z.expand(len(c), -1) for z, c in zip(noise, slices, strict=True)]
        )
        # Noise of one value a row, or one a pixel, is another noise in a window.
        anywhere = not isinstance(self.network.noise, (BroadcastNoise, InputNoise))
        maps = in_passes(
            self.network,
            self._image,
            torch.cat(slices),
            windowed=anywhere,
            vectors=torch.cat(vectors),
        )
        parts = maps.split([len(classes) for classes in slices])
        answers = zip(labels, prepared, parts, seeds, strict=True)
        return [self._answer(one, p.restore(part), seed) for one, (p, _), part, seed in answers]

    def _answer(
        self, labels: MedicalImage, pixels: NDArray[np.generic], seed: int
    ) -> SyntheticImage:
        if labels.spatial_dims == 2 and labels.format != "npy":
            pixels = np.rint(np.clip(pixels, 0, 1) * 255).astype(np.uint8)
        image = labels.with_array(pixels, kind="image")
        return answer(SyntheticImage, image, provenance=self.provenance.with_seed(seed))

    def classes(self, labels: MedicalImage) -> tuple[Planes, Tensor]:
        """The planes of a label map, and its class indices `[D, 1, *size]`.

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
        planes = Planes.of(known, self.card, self.limits)
        classes = np.searchsorted(list(self.card.labels), planes.stack.array)
        return planes, planes.at_network_spacing(classes, labels=True)

    def one_hot(self, classes: Tensor) -> Tensor:
        """Class indices `[N, 1, *S]` as the generator takes them, `[N, L, *S]`."""
        if self.network.label_channels == 1:
            return classes
        one_hot = F.one_hot(classes[:, 0].long(), self.network.label_channels)
        return one_hot.movedim(-1, 1).float()

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
        image: Tensor = self.network(self.one_hot(classes), z)
        return (image + 1) / 2 if self.network.output == "tanh" else image
