"""The base classes of what applies a network to images."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from torch import Tensor

from caps_med.bundles import ModelCard
from caps_med.bundles.tasks import Task
from caps_med.images import DEFAULT_LIMITS, Kind, Limits, MedicalImage
from caps_med.inference.provenance import AnswerProvenance
from caps_med.networks import CapsuleNetwork

N = TypeVar("N", bound=CapsuleNetwork)

#: Added where more files are given than an image has channels.
ONE_BY_ONE = ", or process several one by one (on the command line with --input)"


@dataclass(frozen=True, eq=False)
class Shown:
    """An image as a network takes it.

    Attributes:
        slices: ``[D, C, H, W]``; for a 3-D network those of the whole volume.
        index: where the requested slice is among the D; None for the middle one.
        warnings: what was decided about the image, and whether it is unlike those of the training.
    """

    slices: Tensor
    index: int | None = None
    warnings: tuple[str, ...] = ()


class AppliedNetwork(ABC, Generic[N]):
    """A network, and the model card that says how to apply it to images.

    Attributes:
        task: the task of its models.
        kind: the class of its networks.
        reads: images or label maps.

    Args:
        network: in evaluation mode.
        card: labels and preprocessing of its training.
        provenance: the provenance of every answer.
        limits: bounds on an image, for networks with a spacing at that spacing.
    """

    task: ClassVar[Task]
    kind: ClassVar[type[CapsuleNetwork]]
    reads: ClassVar[Kind]

    def __init__(
        self,
        network: N,
        card: ModelCard,
        provenance: AnswerProvenance,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.network, self.card, self.provenance = network, card, provenance
        self.limits = limits

    @abstractmethod
    def __call__(self, source: MedicalImage, /) -> Any:  # noqa: ANN401 - each task has its own
        """What the model answers to an image or a label map."""

    @property
    @abstractmethod
    def channels(self) -> int:
        """Number of channels that the input has."""

    @abstractmethod
    def try_out(self, size: Sequence[int]) -> None:
        """Run one pass over an empty input of `size`, or of the network's only size."""


class ImageReader(AppliedNetwork[N]):
    """A network that is applied to images, not to label maps. See `AppliedNetwork`."""

    reads = "image"

    @abstractmethod
    def match_channels(self, image: MedicalImage) -> MedicalImage:
        """The image with the channels that the network needs.

        Raises:
            InvalidInput: the network does not take it.
        """

    @abstractmethod
    def shown(self, image: MedicalImage, slice: int | None = None) -> Shown:
        """What the network is shown of an image.

        Args:
            slice: of a volume; None for the middle one.

        Raises:
            InvalidInput, InvalidParameter: as for a call.
        """

    @abstractmethod
    def check_files(self, count: int) -> None:
        """Check that an image may be given as `count` files, one per channel, before any is read.

        Raises:
            InvalidInput: the network takes fewer channels.
        """
