"""What the evaluation of every task shares: the pass over the cases, label matching, notes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Generic, Self, TypeVar

import numpy as np

from caps_med.bundles import ModelCard
from caps_med.errors import CapsMedError, InvalidInput
from caps_med.images import MedicalImage
from caps_med.images.labels import same_name
from caps_med.inference import Model
from training.data import Dataset
from training.data.cases import Case, FileRef
from training.data.interpretation import MADE_NAMES
from training.evaluation.models import list_labels, notes_on_training, refuse_twice
from training.progress import EVALUATING, tracked

Unit = TypeVar("Unit")


class Evaluator(ABC, Generic[Unit]):
    """Runs models over a data set; a subclass per task keeps what it finds.

    Args:
        dataset: the cases; one unit of them is in memory at a time.
        models: the first is compared with the others.
        seed: of the confidence intervals.

    Raises:
        InvalidInput: files of the data set belong to no case.
        InvalidParameter: a model is given twice.
    """

    def __init__(self, dataset: Dataset, models: Sequence[Model], seed: int) -> None:
        self.dataset = dataset.require_complete()
        self.models = tuple(models)
        self.references = tuple(model.reference for model in models)
        refuse_twice(self.references)
        self.seed = seed

    @property
    @abstractmethod
    def units(self) -> Sequence[Unit]:
        """What is read and scored together: single cases, or the cases of one label map."""

    @abstractmethod
    def score(self, unit: Unit) -> None:
        """Run every model on one unit and keep the scores."""

    def run(self) -> Self:
        """Score every unit."""
        for unit in tracked(self.units, EVALUATING):
            self.score(unit)
        return self

    def read(self, case: Case) -> tuple[MedicalImage, MedicalImage]:
        """A case's image and label map; see `read_matched`."""
        return read_matched(case, self.dataset, self.models)

    def notes(self) -> Iterator[str]:
        """A part that is left out, models that may have seen the data in training, and labels that
        they name differently.
        """
        if self.dataset.has_test:
            yield (
                f"{self.dataset.name} has a test part, which is left out: to score it, give its "
                "folder, or a list of its own without parts"
            )
        for model in self.models:
            yield from notes_on_training(model, self.dataset)
        first, *others = self.models
        for model in self.models:
            yield from _renamed("the data set calls", self._numbered(model), model)
        for model in others:
            reference = model.bundle.reference
            yield from _renamed(f"{reference} calls", model.bundle.card.labels, first)

    def _numbered(self, model: Model) -> Mapping[int, str]:
        """The labels of the data that a model knows by their numbers.

        Segments with names that it knows are matched by these, see `ModelCard.match`. Names that
        were made for instances are not those of the data.
        """
        made = MADE_NAMES.get(self.dataset.instances or "", {})
        labels = {i: name for i, name in self.dataset.labels.items() if made.get(i) != name}
        if not any(case.segments for case in self.dataset.cases):
            return labels
        known = set(map(same_name, model.bundle.card.labels.values()))
        return {i: name for i, name in labels.items() if same_name(name) not in known}


def _renamed(who_calls: str, labels: Mapping[int, str], model: Model) -> Iterator[str]:
    """A note if labels have other names than those of a model."""
    known = model.bundle.card.labels
    differing = {
        i: name
        for i, name in labels.items()
        if i in known and same_name(name) != same_name(known[i])
    }
    if differing:
        yield (
            f"{who_calls} {list_labels(differing)} what {model.bundle.reference} calls "
            f"{list_labels({i: known[i] for i in differing})}; labels are matched by number"
        )


def read_matched(
    case: Case, dataset: Dataset, models: Sequence[Model]
) -> tuple[MedicalImage, MedicalImage]:
    """A case's image ``[C, *S]`` and label map ``[1, *S]`` of ids that the models know.

    A volume of a single slice is read as one if any of the models resamples: it needs the spacing.
    Models of pictures answer to it as to the picture.

    Raises:
        InvalidInput: the case is broken, or the map has an id that the models do not know.
    """
    image, label, _ = read_with_ids(case, dataset, models)
    return image, label


def read_with_ids(
    case: Case, dataset: Dataset, models: Sequence[Model]
) -> tuple[MedicalImage, MedicalImage, MedicalImage]:
    """As `read_matched`, and third the label map as it is in its file, of instances their ids."""
    card = models[0].bundle.card
    image, label, ids = dataset.read_with_ids(case, flat=read_flat(models), known=card.labels)
    try:
        return image, matched_label(case, label, card), ids
    except InvalidInput as error:
        if list(card.labels) != [0, 1]:
            raise
        fix = "if every id above 0 is foreground, use --binary"
        if card.task == "segmentation":
            fix += "; if an id marks unlabelled voxels, use --ignore-label"
        raise InvalidInput(f"{error}; {fix}") from error


def read_flat(models: Sequence[Model]) -> bool:
    """Whether volumes of a single slice are read as pictures: unless a model resamples."""
    return all(model.bundle.card.spacing_mm is None for model in models)


def matched_label(case: Case, label: MedicalImage, card: ModelCard) -> MedicalImage:
    """The label map of a case with the ids of the model of that card.

    Raises:
        InvalidInput: it has an id that the model does not know.
    """
    try:
        return card.match(label)
    except CapsMedError as error:
        raise InvalidInput(f"{case.label}: {error} ({list_labels(card.labels)})") from error


@contextmanager
def naming(file: FileRef) -> Iterator[None]:
    """Raise a model's error on a case as `InvalidInput` that names the file."""
    try:
        yield
    except CapsMedError as error:
        raise InvalidInput(f"{file}: {error}") from error


def evenly_spaced(total: int, count: int) -> list[int]:
    """Up to `count` of `total` indices, first and last included.

    >>> evenly_spaced(9, 3), evenly_spaced(2, 3)
    ([0, 4, 8], [0, 1])
    """
    places = np.rint(np.linspace(0, total - 1, min(count, total)))
    return [int(place) for place in np.unique(places)]
