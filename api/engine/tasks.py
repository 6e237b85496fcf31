"""What a network is asked to do, and which askings may be done in one go."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from caps_med.images import MedicalImage
from caps_med.inference import Model, Segmentation, SyntheticImage

T = TypeVar("T")

#: Values of an input up to which requests share a batch; larger ones fill a pass by themselves.
LARGEST_SHARED = 512 * 512


class Task(ABC, Generic[T]):
    """One request's work on one model."""

    @property
    def key(self) -> Hashable | None:
        """Tasks of one model and equal keys may run together; None runs alone."""
        return None

    @abstractmethod
    def alone(self, model: Model) -> T:
        """Do it."""

    def together(self, model: Model, tasks: Sequence[Task[T]]) -> list[T]:
        """Do `tasks`, all of this one's key, in one go."""
        return [task.alone(model) for task in tasks]


@dataclass(frozen=True)
class Call(Task[T]):
    """Any work, always alone."""

    work: Callable[[Model], T]

    def alone(self, model: Model) -> T:
        """Do it."""
        return self.work(model)


@dataclass(frozen=True)
class Segment(Task[Segmentation]):
    """Segment one image."""

    image: MedicalImage

    @property
    def key(self) -> Hashable | None:
        """Size and geometry."""
        return _shared("segment", self.image)

    def alone(self, model: Model) -> Segmentation:
        """Do it."""
        return model.segmenter(self.image)

    def together(self, model: Model, tasks: Sequence[Task[Segmentation]]) -> list[Segmentation]:
        """The images through the network as one batch."""
        return model.segmenter.many([t.image for t in tasks if isinstance(t, Segment)])


@dataclass(frozen=True)
class Synthesize(Task[list[SyntheticImage]]):
    """Synthesize `count` images of one label map, image i with the seed ``seed + i``."""

    labels: MedicalImage
    seed: int
    count: int = 1

    @property
    def key(self) -> Hashable | None:
        """Size and geometry; several images are work enough for one go."""
        return _shared("synthesize", self.labels) if self.count == 1 else None

    def alone(self, model: Model) -> list[SyntheticImage]:
        """Do it."""
        return model.synthesize_many(self.labels, self.seed, self.count)

    def together(
        self, model: Model, tasks: Sequence[Task[list[SyntheticImage]]]
    ) -> list[list[SyntheticImage]]:
        """The label maps through the network as one batch, each with its own noise."""
        ours = [t for t in tasks if isinstance(t, Synthesize)]
        images = model.synthesizer.many([t.labels for t in ours], [t.seed for t in ours])
        return [[image] for image in images]


def _shared(kind: str, image: MedicalImage) -> Hashable | None:
    if image.array.size > LARGEST_SHARED:
        return None
    return kind, image.array.shape, image.affine.tobytes()
