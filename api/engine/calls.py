"""What a model is asked to do, and which requests may share one pass through the network."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from api.budget import Cost
from api.engine import costs
from caps_med.images import MedicalImage
from caps_med.inference import (
    Classification,
    Model,
    RefinementChoice,
    Segmentation,
    SyntheticImage,
)
from caps_med.inference.refinement import maps_with
from caps_med.inference.uncertainty_maps import ShownMap

T = TypeVar("T")

#: Inputs of up to this many values are batched; a larger one fills a pass by itself.
LARGEST_BATCHED = 512 * 512


class ModelCall(ABC, Generic[T]):
    """One request's work on one model."""

    @property
    def batch_key(self) -> Hashable | None:
        """Calls of one model with equal keys may share a batch; None runs alone."""
        return None

    @abstractmethod
    def cost(self, model: Model) -> Cost:
        """What this call causes, estimated without doing it; see `api.engine.costs`."""

    @abstractmethod
    def run(self, model: Model) -> T:
        """The answer to this call."""

    def run_batch(self, model: Model, calls: Sequence[ModelCall[T]]) -> list[T]:
        """The answers to `calls`, which all have this one's key."""
        return [call.run(model) for call in calls]


@dataclass(frozen=True)
class Apply(ModelCall[T]):
    """Any function of the model; never batched.

    Attributes:
        estimate: what the function causes, from `api.engine.costs`.
    """

    function: Callable[[Model], T]
    estimate: Callable[[Model], Cost]

    def cost(self, model: Model) -> Cost:
        """What the function causes."""
        return self.estimate(model)

    def run(self, model: Model) -> T:
        """The function's result."""
        return self.function(model)


@dataclass(frozen=True)
class Segment(ModelCall[Segmentation]):
    """Segment one image.

    Attributes:
        image: ``[C, *S]``.
        refine, disagreement, tta: see `Model.segment`.
        maps: those that the answer keeps besides its labels, see `Model.segment`.
    """

    image: MedicalImage
    refine: RefinementChoice | None = None
    disagreement: bool = False
    tta: bool = False
    maps: tuple[ShownMap, ...] = ()

    @property
    def batch_key(self) -> Hashable | None:
        """Size, geometry, refinement and maps; what takes further passes is alone."""
        key = _key("segment", self.image)
        alone = self.disagreement or self.tta or key is None
        return None if alone else (key, self.refine, self.maps)

    def cost(self, model: Model) -> Cost:
        """The passes over its slices, and the maps."""
        method = model.refinement(self.refine)
        maps, refine = maps_with(method, self.maps), method is not None
        return costs.segmentation(model, self.image, refine, self.disagreement, maps, self.tta)

    def run(self, model: Model) -> Segmentation:
        """The segmentation."""
        method = model.refinement(self.refine)
        segmenter = model.segmenter.with_tta(self.tta)
        answer = segmenter(self.image, self.disagreement, maps_with(method, self.maps))
        return model.refined(self.image, answer) if method else answer

    def run_batch(
        self, model: Model, calls: Sequence[ModelCall[Segmentation]]
    ) -> list[Segmentation]:
        """The images through the network as one batch."""
        images = [c.image for c in calls if isinstance(c, Segment)]
        method = model.refinement(self.refine)
        answers = model.segmenter.many(images, maps_with(method, self.maps))
        return list(map(model.refined, images, answers)) if method else answers


@dataclass(frozen=True)
class Classify(ModelCall[Classification]):
    """Classify one image, or one slice of a volume."""

    image: MedicalImage
    slice: int | None = None

    @property
    def batch_key(self) -> Hashable | None:
        """Images of any size, which the model brings to its own."""
        small = self.image.array.size <= LARGEST_BATCHED and self.slice is None
        return "classify" if small else None

    def cost(self, model: Model) -> Cost:
        """Preparing the image, and one pass over a small picture."""
        return costs.classification(model, self.image)

    def run(self, model: Model) -> Classification:
        """The classification."""
        return model.classifier(self.image, self.slice)

    def run_batch(
        self, model: Model, calls: Sequence[ModelCall[Classification]]
    ) -> list[Classification]:
        """The pictures through the network as one batch."""
        images = [call.image for call in calls if isinstance(call, Classify)]
        return model.classifier.many(images)


@dataclass(frozen=True)
class Synthesize(ModelCall[list[SyntheticImage]]):
    """Synthesize `count` images of one label map, image i with the seed ``seed + i``."""

    labels: MedicalImage
    seed: int
    count: int = 1

    @property
    def batch_key(self) -> Hashable | None:
        """Size and geometry; several images of one label map are a batch already."""
        return _key("synthesize", self.labels) if self.count == 1 else None

    def cost(self, model: Model) -> Cost:
        """The passes over its slices, and the images."""
        return costs.synthesis(model, self.labels, self.count)

    def run(self, model: Model) -> list[SyntheticImage]:
        """The images, in the order of their seeds."""
        return model.synthesize_many(self.labels, self.seed, self.count)

    def run_batch(
        self, model: Model, calls: Sequence[ModelCall[list[SyntheticImage]]]
    ) -> list[list[SyntheticImage]]:
        """The label maps through the network as one batch, each with its own noise."""
        ours = [call for call in calls if isinstance(call, Synthesize)]
        images = model.synthesizer.many([c.labels for c in ours], [c.seed for c in ours])
        return [[image] for image in images]


def _key(kind: str, image: MedicalImage) -> Hashable | None:
    if image.array.size > LARGEST_BATCHED:
        return None
    return kind, image.array.shape, image.affine.tobytes()
