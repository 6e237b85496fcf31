"""Evaluation of segmentation models on labelled images: overlap and distances of every class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from caps_med.errors import InvalidInput, InvalidParameter
from caps_med.images import MedicalImage
from caps_med.inference import Model
from caps_med.wording import counted
from training.data import Dataset
from training.data.cases import Case, Track
from training.data.check.card import CardBuilder, DataCard
from training.data.check.check import SHOWN
from training.data.check.instances import InstanceSurvey
from training.data.reading import read_label_ids
from training.evaluation.evaluator import Evaluator, evenly_spaced, naming, read_with_ids
from training.evaluation.metrics.overlap import TrueObjects, score_case, unit_of
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
    """

    models: tuple[Model, ...]
    dataset: Dataset
    rows: tuple[SegmentationRow, ...]
    summary: SegmentationSummary
    card: DataCard
    sheet: MedicalImage

    def dice_of_cases(self) -> dict[str, float]:
        """Case -> Dice of the first model, mean over classes; without cases that have no labels."""
        reference = self.models[0].bundle.reference
        return case_means(r for r in self.rows if r.model == reference).get("dice", {})


def evaluate(
    dataset: Dataset,
    models: Sequence[Model],
    track: Track[Case] = iter,
    *,
    seed: int = 0,
    tolerance: float | None = None,
) -> Evaluation:
    """Segment every case with every model.

    Args:
        dataset: the cases; `Dataset.subset` takes some of them.
        models: the first is compared with the others.
        track: wraps the iteration over cases, to show progress.
        seed: of the confidence intervals.
        tolerance: of the surface Dice, in mm, or in pixels for 2-D images; None for the longest
            side of a voxel, which may differ between cases.

    Raises:
        InvalidParameter: the tolerance is negative or infinite.
        InvalidInput: a case is broken, or has a label that the models do not know; or 2-D images
            and volumes are mixed, whose distances have different units.
    """
    return SegmentationEvaluator(dataset, models, seed, tolerance).run(track).evaluation()


class SegmentationEvaluator(Evaluator[Case]):
    """Scores segmentation models case by case; see `evaluate`."""

    def __init__(
        self, dataset: Dataset, models: Sequence[Model], seed: int, tolerance: float | None = None
    ) -> None:
        super().__init__(dataset, models, seed)
        if tolerance is not None and not 0 <= tolerance < np.inf:
            raise InvalidParameter(f"tolerance={tolerance:g}: must be a distance of at least 0")
        self._tolerance = tolerance
        self._names = dict(list(models[0].bundle.card.labels.items())[1:])
        self._rows: list[SegmentationRow] = []
        self._calibration = CalibrationRecord()
        self._card = CardBuilder()
        self._units: set[str] = set()
        cases = self.dataset.cases
        self._shown = {cases[i].name for i in evenly_spaced(len(cases), SHOWN)}
        self._thumbnails: list[Thumbnail] = []

    @property
    def units(self) -> Sequence[Case]:
        """The cases."""
        return self.dataset.cases

    def score(self, unit: Case) -> None:
        """Segment one case with every model."""
        image, truth, ids = read_with_ids(unit, self.dataset, self.models)
        objects = TrueObjects(ids, self._have_borders) if self._have_objects else None
        self._units.add(unit_of(image))
        if len(self._units) > 1:
            raise InvalidInput(
                f"{unit.images[0]}: 2-D images and volumes are mixed, whose distances are in "
                "pixels and in mm: evaluate them apart"
            )
        self._card.add(unit.grouped, image, _voxels(truth), truth)
        if unit.name in self._shown:
            self._thumbnails.append(thumbnail(unit.name, image, truth))
        for model in self.models:
            with naming(unit.images[0]):
                answer = model.segment(image)
            self._calibration.add(model.bundle.reference, unit.name, unit.grouped, answer, truth)
            labels = list(self._names)
            for scores in score_case(answer, truth, labels, self._tolerance, objects):
                self._rows.append(
                    SegmentationRow(
                        model=model.bundle.reference,
                        case=unit.name,
                        group=unit.grouped,
                        class_name=self._names[scores.label],
                        unit=unit_of(image),
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
        survey = InstanceSurvey()
        for case in self.dataset.cases:
            label = read_label_ids(case)
            survey.add(str(case.label), label, _voxels(label))
        return survey.all_separate()

    def evaluation(self) -> Evaluation:
        """Everything that was found."""
        card = self._card.card({})
        assert card is not None  # noqa: S101 - a complete data set has a case
        summary = SegmentationSummary(
            data=str(self.dataset.root),
            cases=card.cases,
            groups=card.groups,
            models=self.references,
            labels=self._names,
            unit=next(iter(self._units)),
            tolerance=self._tolerance,
            objects="ids" if self._have_objects else "components",
            seed=self.seed,
            notes=(*self._notes_on(card), *self.notes()),
            scores=tuple(class_summaries(self._rows, self.references, self._names, self.seed)),
            comparisons=tuple(
                class_comparisons(self._rows, self.references, self._names, self.seed)
            ),
            calibration=tuple(self._calibration.scores(self.references, self.seed)),
        )
        sheet = case_sheet(self._thumbnails, {})
        return Evaluation(self.models, self.dataset, tuple(self._rows), summary, card, sheet)

    def _notes_on(self, card: DataCard) -> Iterator[str]:
        if card.groups < card.cases:
            yield (
                f"{card.cases} cases come from {counted(card.groups, 'independent group')}; "
                "confidence intervals resample groups"
            )
        if card.groups < ENOUGH:
            yield (
                f"{counted(card.groups, 'independent case')}: confidence intervals are "
                "rough, and too few to tell models apart"
            )


def _voxels(label: MedicalImage) -> dict[int, int]:
    """Id -> number of voxels."""
    ids, counts = np.unique(label.array, return_counts=True)
    return dict(zip(ids.tolist(), counts.tolist(), strict=True))
