"""The base classes of objects that apply a network to images."""

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
    """An image prepared as input of a network.

    Attributes:
        slices: ``[D, C, H, W]``; for a 3-D network those of the whole volume.
        index: position of the requested slice among the D; None for the middle one.
        warnings: assumptions about the image, and differences from the training images.
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
        """The model's answer to an image or a label map."""

    @property
    @abstractmethod
    def channels(self) -> int:
        """Number of channels of the input."""

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
            InvalidInput: the network cannot process it.
        """

    @abstractmethod
    def shown(self, image: MedicalImage, slice: int | None = None) -> Shown:
        """The part of an image that the network is shown.

        Args:
            slice: slice of a volume; None for the middle one.

        Raises:
            InvalidInput, InvalidParameter: as for a call.
        """

    @abstractmethod
    def check_files(self, count: int) -> None:
        """Check, before reading any file, that an image may be given as `count` files, one per
        channel.

        Raises:
            InvalidInput: the network takes fewer channels.
        """
