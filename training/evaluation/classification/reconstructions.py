"""What the class capsules draw of some images, beside what the network was given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from caps_med.inference import Model
from training.data.classified import ClassifiedDataset
from training.data.classified.images import ClassifiedImage

#: Images that are drawn at most, as many of each class as there is room for.
SHOWN = 24


@dataclass(frozen=True)
class Reconstruction:
    """One image.

    Attributes:
        name: of the image.
        classes: its true ones.
        answer: the most probable class.
        given: the network's input ``[C, H, W]`` in [0, 1].
        drawn: its reconstruction ``[C, h, w]`` in [0, 1], by the capsules of the answer.
    """

    name: str
    classes: tuple[str, ...]
    answer: str
    given: NDArray[np.float32]
    drawn: NDArray[np.float32]


def reconstructions(
    dataset: ClassifiedDataset, images: Sequence[ClassifiedImage], model: Model
) -> list[Reconstruction]:
    """The first images of each class; none if the network has no decoder.

    Raises:
        CapsMedError: one cannot be read.
    """
    if not model.reconstructs:
        return []
    found = []
    for image in _some_of_each(images):
        read, classifier = dataset.read(image), model.classifier
        answer = classifier(read)
        assert answer.reconstruction is not None  # noqa: S101 - the network has a decoder
        given = classifier.prepare(classifier.match_channels(read))[0].numpy()
        classes = tuple(dataset.classes[k] for k in image.classes)
        drawn = np.asarray(answer.reconstruction.array, np.float32)
        found.append(Reconstruction(image.name, classes, answer.label, given, drawn))
    return found


def _some_of_each(images: Sequence[ClassifiedImage]) -> list[ClassifiedImage]:
    by_class: dict[tuple[int, ...], list[ClassifiedImage]] = {}
    for image in images:
        by_class.setdefault(image.classes, []).append(image)
    each = max(1, SHOWN // len(by_class))
    return [image for key in sorted(by_class) for image in by_class[key][:each]][:SHOWN]
