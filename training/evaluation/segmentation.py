"""Evaluation of segmentation models on labelled images: overlap and distances of every class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

import numpy as np

from caps_med.errors import InvalidInput, InvalidParameter
from caps_med.images import MedicalImage
from caps_med.inference import Model
from training.data import Dataset
from training.data.cases import Case
from training.data.check.card import CardBuilder, DataCard
from training.data.check.check import SHOWN
from training.data.layouts.naming import composed, suffix_of
from training.data.reading import unlabelled, values_known_to
from training.evaluation.answers import answered, labels_of
from training.evaluation.evaluator import Evaluator, evenly_spaced, naming, read_with_ids
from training.evaluation.metrics.overlap import ObjectIds, score_case, unit_of
from training.evaluation.object_ids import ids_are_objects, voxels_of
from training.evaluation.predictions import Predictions
from training.evaluation.segmentation_calibration import CalibrationRecord
from training.evaluation.statistics import ENOUGH
from training.evaluation.summary import (
    SegmentationRow,
    SegmentationSummary,
    case_means,
    class_comparisons,
    class_summaries,
)
from training.pictures.sheet import Thumbnail, case_sheet, thumbnail


@dataclass(frozen=True)
class Evaluation:
    """The result of evaluating segmentation models.

    Attributes:
        models: as evaluated; the first one is compared with the others.
        dataset: the evaluated cases.
        rows: one for each case, model and class.
        card: of the evaluated cases.
        sheet: some of them with their labels, an RGB image.
        predictions: of other programs, as evaluated.
        members: as of `evaluate`.
    """

    models: tuple[Model, ...]
    dataset: Dataset
    rows: tuple[SegmentationRow, ...]
    summary: SegmentationSummary
    card: DataCard
    sheet: MedicalImage
    predictions: tuple[Predictions, ...] = ()
    members: Mapping[str, Model] = field(default_factory=dict)

    def models_of(self, case: Case) -> tuple[Model, ...]:
        """The models as they answer to a case."""
        return _models_of(case, self.models, self.members)

    def dice_of_cases(self) -> dict[str, float]:
        """Case -> Dice of the first model, mean over classes; without cases that have no labels."""
        reference = self.models[0].reference
        return case_means(r for r in self.rows if r.model == reference).get("dice", {})


def evaluate(
    dataset: Dataset,
    models: Sequence[Model],
    *,
    seed: int = 0,
    tolerance: float | None = None,
    predictions: Mapping[str, Path] = MappingProxyType({}),
    members: Mapping[str, Model] = MappingProxyType({}),
) -> Evaluation:
    """Segment every case with every model.

    Args:
        dataset: the cases; `Dataset.subset` takes some of them.
        models: the first is compared with the others.
        seed: of the confidence intervals.
        tolerance: of the surface Dice, in mm, or in pixels for 2-D images; None for the longest
            side of a voxel, which may differ between cases.
        predictions: name for tables -> folder with label maps of the cases that another program
            has predicted, see `Predictions.found`; the first model is compared with them, too.
        members: group -> what answers to its cases in place of the first model: of the networks of
            a cross-validation the one that has not seen them.

    Raises:
        InvalidParameter: the tolerance is negative or infinite, predictions have the name of a
            model, or the only label is ignored.
        InvalidInput: a case is broken, or has a label that the models do not know; or 2-D images
            and volumes are mixed, whose distances have different units; or a prediction is missing,
            broken, or of other voxels than its case.
    """
    evaluator = SegmentationEvaluator(dataset, models, seed, tolerance, predictions, members)
    return evaluator.run().evaluation()


def _models_of(
    case: Case, models: tuple[Model, ...], members: Mapping[str, Model]
) -> tuple[Model, ...]:
    return (members.get(case.grouped, models[0]), *models[1:])


class SegmentationEvaluator(Evaluator[Case]):
    """Scores segmentation models case by case; see `evaluate`."""

    def __init__(
        self,
        dataset: Dataset,
        models: Sequence[Model],
        seed: int,
        tolerance: float | None = None,
        predictions: Mapping[str, Path] = MappingProxyType({}),
        members: Mapping[str, Model] = MappingProxyType({}),
    ) -> None:
        super().__init__(dataset, models, seed)
        if tolerance is not None and not 0 <= tolerance < np.inf:
            raise InvalidParameter(f"tolerance={tolerance:g}: must be a distance of at least 0")
        for name in predictions:
            if name in self.references:
                raise InvalidParameter(f"--predictions {name}: is the name of a model")
        self._predictions = tuple(
            Predictions.found(name, folder, self.dataset, objects=self._have_objects)
            for name, folder in predictions.items()
        )
        #: Of the models, then of the predictions.
        self._compared = (*self.references, *predictions)
        self._tolerance, self._members = tolerance, members
        card = models[0].bundle.card
        labels = labels_of(card, dataset.instances)
        made = dataset.instances in ("binary", "borders")  # whose ids are not those of the files
        made |= bool(values_known_to(dataset.label_values, card.labels))  # nor are 0 and 1 of masks
        left_out = None if made else dataset.ignored
        self._names = {i: name for i, name in list(labels.items())[1:] if i != left_out}
        if not self._names:
            raise InvalidParameter(
                f"--ignore-label {left_out}: is the only label that {self.references[0]} segments, "
                "so nothing would be scored"
            )
        self._voxels = self._ignored = 0
        self._rows: list[SegmentationRow] = []
        self._calibration = CalibrationRecord()
        self._card = CardBuilder()
        self._units: set[str] = set()
        cases = self.dataset.cases
        self._check_units()
        self._shown = {cases[i].name for i in evenly_spaced(len(cases), SHOWN)}
        self._thumbnails: list[Thumbnail] = []

    @property
    def units(self) -> Sequence[Case]:
        """The cases."""
        return self.dataset.cases

    def score(self, unit: Case) -> None:
        """Segment one case with every model, and read what others have predicted of it."""
        image, truth, ids = read_with_ids(unit, self.dataset, self.models)
        labelled = ~unlabelled(ids, self.dataset.ignored)
        self._voxels += labelled.size
        self._ignored += int((~labelled).sum())

        def scored(label: MedicalImage) -> MedicalImage:
            """A label map with background in place of what is not labelled in the truth."""
            return label.with_array(label.array * labelled)

        objects = ObjectIds(scored(ids), self._have_borders) if self._have_objects else None
        self._add_unit(unit, image)
        self._card.add(unit.grouped, image, voxels_of(truth), truth)
        if unit.name in self._shown:
            self._thumbnails.append(thumbnail(unit.name, image, truth))
        for model in _models_of(unit, self.models, self._members):
            with naming(unit.images[0]):
                answer, found = answered(model, image, self.dataset.instances)
            self._calibration.add(model.reference, unit.name, unit.grouped, answer, truth, labelled)
            known = objects and replace(objects, found=found and scored(found))
            self._add_rows(model.reference, unit, scored(answer), truth, known)
        for predictions in self._predictions:
            predicted, found = predictions.read(unit.name, self.models)
            known = objects and replace(objects, found=found and scored(found))
            self._add_rows(predictions.name, unit, scored(predicted), truth, known)

    def _check_units(self) -> None:
        """Read a case in each format, as what is mixed most often is pictures and volumes' files.

        Raises:
            InvalidInput: there are both.
        """
        of_formats = {suffix_of(case.images[0].file): case for case in reversed(self.units)}
        if len(of_formats) > 1:
            for case in of_formats.values():
                self._add_unit(case, self.read(case)[0])

    def _add_unit(self, case: Case, image: MedicalImage) -> None:
        self._units.add(unit_of(image))
        if len(self._units) > 1:
            raise InvalidInput(
                f"{case.images[0]}: the data mix 2-D images and volumes, whose distances are in "
                "pixels and in mm: evaluate them separately"
            )

    def _add_rows(
        self,
        name: str,
        case: Case,
        prediction: MedicalImage,
        truth: MedicalImage,
        objects: ObjectIds | None,
    ) -> None:
        for scores in score_case(prediction, truth, list(self._names), self._tolerance, objects):
            self._rows.append(
                SegmentationRow(
                    model=name,
                    case=case.name,
                    group=case.grouped,
                    class_name=self._names[scores.label],
                    unit=unit_of(truth),
                    scores=scores,
                )
            )

    @property
    def _have_borders(self) -> bool:
        """Whether the models learned borders between touching objects."""
        return self.dataset.instances == "borders"

    @cached_property
    def _have_objects(self) -> bool:
        """Whether the ids in the label maps are those of objects.

        Where all ids are foreground, they may be those of parts of an object.
        """
        if self.dataset.instances != "binary":
            return self._have_borders
        return ids_are_objects(self.dataset.cases, self.dataset.ignored)

    def evaluation(self) -> Evaluation:
        """Everything that was found."""
        card = self._card.card({})
        assert card is not None  # noqa: S101 - a complete data set has a case
        summary = SegmentationSummary(
            data=composed(str(self.dataset.root)),
            cases=card.cases,
            groups=card.groups,
            models=self._compared,
            labels=self._names,
            unit=next(iter(self._units)),
            tolerance=self._tolerance,
            objects="ids" if self._have_objects else "components",
            seed=self.seed,
            notes=tuple(dict.fromkeys((*self._notes_on(card), *self.notes()))),
            scores=tuple(class_summaries(self._rows, self._compared, self._names, self.seed)),
            comparisons=tuple(
                class_comparisons(self._rows, self._compared, self._names, self.seed)
            ),
            calibration=tuple(self._calibration.scores(self.references, self.seed)),
        )
        sheet = case_sheet(self._thumbnails, {})
        return Evaluation(
            self.models, self.dataset, tuple(self._rows), summary, card, sheet, self._predictions,
            self._members,
        )  # fmt: skip

    def _notes_on(self, card: DataCard) -> Iterator[str]:
        if (ignored := self.dataset.ignored) is not None:
            share = self._ignored / self._voxels
            yield f"the id {ignored} marks unlabelled voxels: {share:.1%} of all are not scored"
        if card.groups == 1:
            yield (
                "1 independent case: there are no confidence intervals, and models cannot be told "
                "apart"
            )
            return
        if card.groups < card.cases:
            yield (
                f"{card.cases} cases come from {card.groups} independent groups; "
                "confidence intervals resample groups"
            )
        if card.groups < ENOUGH:
            yield (
                f"{card.groups} independent cases: confidence intervals are "
                "rough, and there are too few cases to tell models apart"
            )
