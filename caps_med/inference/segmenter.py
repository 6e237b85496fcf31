"""Image in, label map in the same space out."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from caps_med.bundles import ModelCard
from caps_med.errors import InvalidInput
from caps_med.images import MedicalImage, label_palette
from caps_med.inference.planes import Planes, padded
from caps_med.inference.provenance import Provenance, answer
from caps_med.networks import SegCaps

#: Pixels that one forward pass takes: more slices go in several passes, larger slices in windows.
PASS_PIXELS = 512 * 512
#: Edge of a window and the part in which neighbours overlap.
WINDOW, OVERLAP = 512, 0.25
#: A binary model's capsule longer than this is foreground.
THRESHOLD = 0.5


@dataclass(frozen=True, eq=False)
class Segmentation(MedicalImage):
    """A label map with what else the model said.

    Attributes:
        names: label id -> name.
        probabilities: `[K, *S]` capsule lengths, one channel a class (one for a binary model).
        provenance: where the answer came from.
    """

    names: dict[int, str] = field(kw_only=True)
    probabilities: MedicalImage = field(kw_only=True)
    provenance: Provenance = field(kw_only=True)

    @property
    def volume_unit(self) -> str:
        """mm3 for volumes, pixels for pictures."""
        return "pixels" if self.spacing is None else "mm3"

    @property
    def volumes(self) -> dict[str, float]:
        """Volume of each label but the background, in `volume_unit`."""
        voxel = 1.0 if self.spacing is None else abs(float(np.linalg.det(self.affine[:3, :3])))
        ids = list(self.names)[1:]
        return {self.names[i]: float((self.array == i).sum()) * voxel for i in ids}


class Segmenter:
    """Run a segmentation network over pictures and volumes of any size.

    Args:
        network: in evaluation mode.
        card: labels, plane, spacing and normalization of its training.
        provenance: put into every answer.
    """

    def __init__(self, network: SegCaps, card: ModelCard, provenance: Provenance) -> None:
        self.network, self.card, self.provenance = network, card, provenance

    def __call__(self, image: MedicalImage) -> Segmentation:
        """Segment a picture `[C, H, W]` or, slice by slice, a volume `[C, X, Y, Z]`.

        Raises:
            InvalidInput: the image has other channels than the network was trained on.
        """
        self.check(image)
        planes = Planes.of(image, self.card)
        scaled = self.card.normalization.apply(planes.stack.array)
        lengths = self.lengths(planes.at_network_spacing(scaled))
        return self._answer(image, planes.restore(lengths))

    def check(self, image: MedicalImage) -> None:
        """Refuse an image with other channels than the network's.

        Raises:
            InvalidInput: that is so.
        """
        channels = image.array.shape[0]
        if channels != self.network.in_channels:
            raise InvalidInput(
                f"the image has {channels} channel(s): {self.provenance.model} was trained on "
                f"{self.network.in_channels}; convert it to {'grey' if channels > 1 else 'colour'}"
            )

    def lengths(self, slices: Tensor) -> Tensor:
        """Capsule lengths `[D, K, H, W]` of normalized slices `[D, C, H, W]` of any size."""
        rows, columns = slices.shape[2:]
        with torch.inference_mode():
            if rows * columns > PASS_PIXELS:
                return self._in_windows(slices)
            step = max(1, PASS_PIXELS // (rows * columns))
            passes = [self._forward(part) for part in slices.split(step)]
        return torch.cat(passes)

    def _forward(self, slices: Tensor) -> Tensor:
        device = next(self.network.parameters()).device
        lengths = padded(self.network, slices.to(device), self.network.divisor)
        return lengths.float().cpu()

    def _in_windows(self, slices: Tensor) -> Tensor:
        from monai.inferers import SlidingWindowInferer

        inferer = SlidingWindowInferer(
            (WINDOW, WINDOW), overlap=OVERLAP, mode="gaussian", padding_mode="constant"
        )
        return torch.cat([inferer(part, self._forward) for part in slices.split(1)])

    def _answer(self, image: MedicalImage, lengths: NDArray[np.float32]) -> Segmentation:
        ids = np.array(list(self.card.labels), dtype=np.uint16)
        binary = lengths.shape[0] == 1
        classes = (lengths > THRESHOLD)[0].astype(int) if binary else lengths.argmax(0)
        dtype = np.uint8 if ids.max() < 256 else np.uint16
        labels = image.with_array(
            ids[classes][None].astype(dtype), kind="labels", palette=_palette(self.card)
        )
        return answer(
            Segmentation,
            labels,
            names=dict(self.card.labels),
            probabilities=image.with_array(lengths),
            provenance=self.provenance,
        )


def _palette(card: ModelCard) -> NDArray[np.uint8]:
    palette = np.asarray(label_palette(), dtype=np.uint8)
    for label, color in card.colors.items():
        if 0 <= label < len(palette):
            palette[label] = color
    return palette
