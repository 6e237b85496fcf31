"""From an image to the number of cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from caps_med.errors import InvalidInput
from caps_med.images import MedicalImage, with_channels
from caps_med.inference.applied import ImageReader, Shown
from caps_med.inference.passes import device_of
from caps_med.inference.provenance import AnswerProvenance
from caps_med.preprocessing import unit_pictures

from .card import CountingDetails
from .network import CountingNetwork


@dataclass(frozen=True)
class Count:
    """How many there are.

    Attributes:
        number: as the network answers it, not rounded.
        warnings: whether it is beyond the numbers of the training.
    """

    number: float
    warnings: tuple[str, ...]
    provenance: AnswerProvenance

    def numbers(self) -> dict[str, Any]:
        """For JSON."""
        return {**self.__dict__, "provenance": self.provenance.as_dict()}


class Counter(ImageReader[CountingNetwork]):
    """Apply a counting network to images of any size."""

    task, kind = "counting", CountingNetwork

    @property
    def details(self) -> CountingDetails:
        """Of the card."""
        found = self.card.task_details
        assert isinstance(found, CountingDetails)
        return found

    @property
    def channels(self) -> int:
        """Channels of the image."""
        return self.details.pictures.channels

    def __call__(self, image: MedicalImage) -> Count:
        """Count what an image shows."""
        shown = self.shown(image)
        with torch.inference_mode():
            number = self.network(shown.slices.to(device_of(self.network))).item()
        largest = self.details.largest
        notes = (f"trained on up to {largest}",) if number > largest + 0.5 else ()
        return Count(number, (*shown.warnings, *notes), self.provenance)

    def shown(self, image: MedicalImage, slice: int | None = None) -> Shown:
        """The picture that the network takes."""
        matched = self.match_channels(image)
        picture = torch.from_numpy(self.details.pictures(matched, slice).copy())
        return Shown(unit_pictures(picture)[None], 0, matched.warnings)

    def try_out(self, size: Sequence[int]) -> None:
        """Run one pass over an empty image."""
        self.network(torch.zeros(1, self.channels, *self.details.pictures.size))

    def match_channels(self, image: MedicalImage) -> MedicalImage:
        """The image in grey."""
        return with_channels(image, self.channels)

    def check_files(self, count: int) -> None:
        """Refuse several files for one image."""
        if count > 1:
            raise InvalidInput(f"counting takes one image; got {count} files")
