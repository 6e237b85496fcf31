"""Scores classification models on images with classes, alone or against one another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict

from caps_med.errors import CapsMedError, InvalidInput
from caps_med.inference import Model
from caps_med.inference.classifier import calibrated
from caps_med.inference.passes import device_of
from caps_med.wording import counted
from training.data.classified import ClassifiedDataset
from training.data.classified.images import ClassifiedImage
from training.evaluation.calibration import Floats
from training.evaluation.classification.measures import (
    Answers,
    Resampled,
    measured,
)
from training.evaluation.classification.reconstructions import Reconstruction, reconstructions
from training.evaluation.models import notes_on_training, refuse_twice
from training.evaluation.statistics import (
    ENOUGH_ANSWERS,
    Estimate,
    Verdict,
    estimate,
    independent,
    resamples,
    verdict_of,
)
from training.evaluation.summary import Row, Summary
from training.progress import EVALUATING, tracked

#: Images of one pass.
BATCH = 64
#: Measures of a whole model, and whether more is better.
OVERALL = {
    "accuracy": True,
    "balanced_accuracy": True,
    "kappa": True,
    "auroc": True,
    "average_precision": True,
    "brier_score": False,
    "calibration_error": False,
}
#: The least and the largest value of those that are not between 0 and 1.
BOUNDS = {"kappa": (-1.0, 1.0), "brier_score": (0.0, 2.0)}
#: Measures of each class.
OF_CLASSES = ("sensitivity", "specificity", "auroc", "average_precision")


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ClassMeasures(_Section):
    """One class: images, and the measures of `OF_CLASSES`."""

    name: str
    images: int
    measures: dict[str, Estimate]


class ModelMeasures(_Section):
    """One model: the measures of `OVERALL`, its classes and its confusion matrix.

    Attributes:
        confusion: images of each class (rows) by answer; None where classes go together.
    """

    model: str
    parameters: int
    measures: dict[str, Estimate]
    classes: tuple[ClassMeasures, ...]
    confusion: tuple[tuple[int, ...], ...] | None


class Difference(_Section):
    """The first model minus another, on the same resamples of the images, or of the patients.

    Attributes:
        verdict: on the first model, by whether the interval excludes 0.
    """

    against: str
    metric: str
    difference: Estimate
    verdict: Verdict


class ClassificationSummary(Summary):
    """All results of an evaluation of classification models.

    Attributes:
        groups: patients that the images are of; an image of no known one counts as one.
        part: of the data set that was used; empty for all of it.
        classes: their names.
        scores: one for each model.
        comparisons: of the first model with each other one.
    """

    groups: int
    part: str
    classes: tuple[str, ...]
    scores: tuple[ModelMeasures, ...]
    comparisons: tuple[Difference, ...]


@dataclass(frozen=True)
class ClassificationRow(Row):
    """What one model says of one image."""

    true: str
    answer: str
    correct: bool
    probabilities: Mapping[str, float]

    def values(self) -> Mapping[str, float | None]:
        """Whether it is right."""
        return {"correct": float(self.correct)}

    def cells(self) -> Mapping[str, object]:
        """The columns of ``cases.csv``."""
        about = {"model": self.model, "case": self.case, "group": self.group}
        found = {"class": self.true, "answer": self.answer, "correct": int(self.correct)}
        chances = {f"p({name})": round(p, 6) for name, p in self.probabilities.items()}
        return {**about, **found, **chances}


@dataclass(frozen=True)
class ClassificationEvaluation:
    """The results, and for figures the answers of each model and what the first one draws."""

    models: Sequence[Model]
    summary: ClassificationSummary
    rows: Sequence[ClassificationRow]
    answers: Sequence[Answers]
    reconstructions: Sequence[Reconstruction] = ()


def evaluate_classification(
    dataset: ClassifiedDataset,
    models: Sequence[Model],
    seed: int = 0,
    members: Mapping[str, Model] = MappingProxyType({}),
) -> ClassificationEvaluation:
    """Score models on the test part of a data set, or on all of it if it has no parts.

    Args:
        models: of the same classes.
        seed: of the bootstrap.
        members: name of an image -> what classifies it in place of the first model: of the networks
            of a cross-validation the one that has not seen it.

    Raises:
        InvalidInput: there are no images, one cannot be read, its class is none of the models', or
            it has several or none, where a model tells exactly one.
        InvalidParameter: a model is given twice.
    """
    refuse_twice([model.reference for model in models])
    if dataset.error:
        raise InvalidInput(dataset.error)
    test = dataset.of("test")
    images = test or dataset.images
    if not images:
        raise InvalidInput(f"{dataset.root}: contains no images with classes")
    check_classes(images, models)
    card = models[0].bundle.card
    names = tuple(card.labels.values())
    targets = targets_of(dataset, images, names)
    groups = [image.group for image in images]
    weights = resamples(groups, seed)
    told = probabilities_of(dataset, images, models, members)
    answers = [
        Answers(probabilities, targets, model.classifier.spec.exclusive)
        for model, probabilities in zip(models, told, strict=True)
    ]
    found = [measured(each, weights) for each in answers]
    summary = ClassificationSummary(
        data=dataset.name,
        seed=seed,
        models=tuple(model.bundle.reference for model in models),
        cases=len(images),
        groups=independent(groups),
        notes=tuple(_notes(dataset, images, models, bool(test))),
        part="test" if test else "",
        classes=names,
        scores=tuple(map(_measures, models, answers, found)),
        comparisons=tuple(_differences(models, found, independent(groups))),
    )
    rows = [row for m, a in zip(models, answers, strict=True) for row in _rows(m, a, images, names)]
    drawn = reconstructions(dataset, images, models[0])
    return ClassificationEvaluation(models, summary, rows, answers, drawn)


def check_classes(images: Sequence[ClassifiedImage], models: Sequence[Model]) -> None:
    """Check that each image has exactly one class, if one of the models always tells one.

    Raises:
        InvalidInput: an image has several or none.
    """
    telling_one = [model for model in models if model.classifier.spec.exclusive]
    other = next((image for image in images if len(image.classes) != 1), None)
    if telling_one and other is not None:
        raise InvalidInput(
            f"{other.image}: is of {counted(len(other.classes), 'class', 'classes')}, but "
            f"{telling_one[0].bundle.reference} tells exactly one of each image: leave such images "
            "out, or train a model on them"
        )


def targets_of(
    dataset: ClassifiedDataset, images: Sequence[ClassifiedImage], names: Sequence[str]
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """``[N, J]`` in the order of the model's classes `names`.

    Raises:
        InvalidInput: the data have a class that is not one of them.
    """
    unknown = [name for name in dataset.classes if name not in names]
    if unknown:
        raise InvalidInput(
            f"{dataset.root}: the class {unknown[0]!r} is not one of the model's: "
            f"{', '.join(names)}; rename it, or leave it out"
        )
    targets = np.zeros((len(images), len(names)), np.uint8)
    columns = [names.index(name) for name in dataset.classes]
    targets[:, columns] = dataset.targets(images)
    return targets


def inputs_of(
    models: Sequence[Model], dataset: ClassifiedDataset, image: ClassifiedImage
) -> list[torch.Tensor]:
    """The input ``[1, C, *size]`` of each model's network for one image.

    Raises:
        InvalidInput: the image cannot be read, or a model does not take it; the message names it.
    """
    try:
        content = dataset.read(image)
        matched = [model.classifier.match_channels(content) for model in models]
        return [m.classifier.prepare(one) for m, one in zip(models, matched, strict=True)]
    except CapsMedError as error:
        raise InvalidInput(f"{image.image}: {error}") from error


def probabilities_of(
    dataset: ClassifiedDataset,
    images: Sequence[ClassifiedImage],
    models: Sequence[Model],
    members: Mapping[str, Model] = MappingProxyType({}),
) -> list[Floats]:
    """Probabilities ``[N, J]`` of each model; every image is read once.

    Args:
        members: as of `evaluate_classification`.

    Raises:
        InvalidInput: an image cannot be read.
    """
    own = {id(member): _Batches(member) for member in members.values()}
    first, *others = map(_Batches, models)
    for place, image in enumerate(tracked(images, EVALUATING)):
        member = members.get(image.name)
        asked = [first if member is None else own[id(member)], *others]
        inputs = inputs_of([one.model for one in asked], dataset, image)
        for one, picture in zip(asked, inputs, strict=True):
            one.add(place, picture)
    return [_in_order([first, *own.values()]), *(_in_order([one]) for one in others)]


class _Batches:
    """Pictures that a model classifies a batch at a time, and their places among all."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.places: list[int] = []
        self.found: list[Floats] = []
        self._waiting: list[torch.Tensor] = []

    def add(self, place: int, picture: torch.Tensor) -> None:
        self.places.append(place)
        self._waiting.append(picture)
        if len(self._waiting) == BATCH:
            self.flush()

    def flush(self) -> None:
        """Classify those that wait."""
        if not self._waiting:
            return
        network = self.model.classifier.network
        with torch.inference_mode():
            batch = torch.cat(self._waiting).to(device_of(network))
            scores, _ = network.classify_together(batch)
            self.found.append(calibrated(scores, self.model.classifier.spec).cpu().numpy())
        self._waiting.clear()


def _in_order(batches: Sequence[_Batches]) -> Floats:
    """What was found, in the order of places."""
    for one in batches:
        one.flush()
    found = np.concatenate([part for one in batches for part in one.found])
    return found[np.argsort([place for one in batches for place in one.places])]


def _measures(model: Model, answers: Answers, found: Resampled) -> ModelMeasures:
    names = model.bundle.card.labels.values()
    matrix = answers.confusion.tolist() if answers.exclusive else None
    return ModelMeasures(
        model=model.bundle.reference,
        parameters=sum(p.numel() for p in model.network.parameters()),
        measures={name: estimate(found[name], BOUNDS.get(name, (0, 1))) for name in OVERALL},
        classes=tuple(
            ClassMeasures(
                name=name,
                images=int(answers.targets[:, k].sum()),
                measures={m: estimate(found[f"{m}/{k}"]) for m in OF_CLASSES},
            )
            for k, name in enumerate(names)
        ),
        confusion=None if matrix is None else tuple(map(tuple, matrix)),
    )


def _differences(
    models: Sequence[Model], found: Sequence[Resampled], groups: int
) -> Iterable[Difference]:
    """On the same resamples, so that what is common to both models cancels."""
    for model, other in zip(models[1:], found[1:], strict=True):
        for metric, more_is_better in OVERALL.items():
            least, largest = BOUNDS.get(metric, (0, 1))
            widest = (least - largest, largest - least)
            difference = estimate(found[0][metric] - other[metric], widest)
            yield Difference(
                against=model.bundle.reference,
                metric=metric,
                difference=difference,
                verdict=verdict_of(difference.interval, groups, more_is_better, ENOUGH_ANSWERS),
            )


def _notes(
    dataset: ClassifiedDataset,
    images: Sequence[ClassifiedImage],
    models: Sequence[Model],
    test: bool,
) -> Iterable[str]:
    if not test:
        used = counted(len(images), "image")
        yield f"{dataset.name} has no test part: all of it was used, {used}"
    for model in models:
        if not test:
            yield from notes_on_training(model, dataset)
    yield from confidence_notes([image.group for image in images])


def confidence_notes(groups: Sequence[str]) -> Iterable[str]:
    """What the intervals rest on, and whether that is much.

    Args:
        groups: of the images, their patients; "" where none is known.
    """
    images, patients = len(groups), independent(groups)
    if patients == 1 < images:
        yield "all images are of one patient: there are no intervals"
        return
    if patients < images:
        yield f"{images} images of {patients} patients: intervals and verdicts are by patient"
    if patients < ENOUGH_ANSWERS:
        kind = "image" if patients == images else "patient"
        yield f"only {counted(patients, kind)}: intervals mean little"


def _rows(
    model: Model, answers: Answers, images: Sequence[ClassifiedImage], names: Sequence[str]
) -> Iterable[ClassificationRow]:
    predicted = answers.predicted
    for image, true, said, chances in zip(
        images, answers.targets > 0, predicted, answers.probabilities, strict=True
    ):
        yield ClassificationRow(
            model=model.bundle.reference,
            case=image.name,
            group=image.group,
            true="|".join(name for name, there in zip(names, true, strict=True) if there),
            answer="|".join(name for name, there in zip(names, said, strict=True) if there),
            correct=bool((true == said).all()),
            probabilities=dict(zip(names, chances.tolist(), strict=True)),
        )
