"""Models on labelled images that they were not trained on: scores per case, and what they show."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict

from caps_med.bundles import Bundle, ModelRepository
from caps_med.errors import CapsMedError, InvalidInput, InvalidParameter, ModelNotFound, WrongTask
from caps_med.images import MedicalImage, match_labels
from caps_med.inference import Model
from training.data import Dataset
from training.data.cases import Case, Track
from training.data.check.card import CardMaker, DataCard
from training.data.check.check import SHOWN
from training.evaluation.metrics.overlap import ClassScores, score_case, unit_of
from training.evaluation.statistics import ENOUGH
from training.evaluation.summary import (
    ClassSummary,
    Comparison,
    Row,
    case_means,
    class_summaries,
    comparisons,
)
from training.pictures.sheet import Thumbnail, case_sheet, thumbnail

#: Networks that can be trained to compare with, by task.
BASELINES = {"segmentation": ("unet", "segcaps"), "synthesis": ("pix2pix", "capspix2pix")}


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Summary(_Section):
    """What ``summary.json`` holds.

    Attributes:
        models: references, the evaluated one first.
        unit: of distances.
        notes: what a reader should know before believing the numbers.
    """

    data: str
    cases: int
    groups: int
    models: tuple[str, ...]
    labels: Mapping[int, str]
    unit: str
    seed: int
    notes: tuple[str, ...]
    scores: tuple[ClassSummary, ...]
    comparisons: tuple[Comparison, ...]


@dataclass(frozen=True)
class Evaluation:
    """Everything found.

    Attributes:
        models: as evaluated, the first one against the others.
        dataset: the evaluated cases.
        rows: a model, case and class each.
        card: of the evaluated cases; `sheet` shows some of them.
    """

    models: tuple[Model, ...]
    dataset: Dataset
    rows: tuple[Row, ...]
    summary: Summary
    card: DataCard
    sheet: MedicalImage

    def dice_of_cases(self) -> dict[str, float]:
        """Case -> Dice of the first model, mean over classes; cases without labels are left out."""
        reference = self.models[0].bundle.reference
        return dict(case_means(r for r in self.rows if r.model == reference)["dice"])


def find_models(
    repository: ModelRepository, reference: str, against: Sequence[str] = ()
) -> list[Bundle]:
    """The model and those it is compared with; ``unet`` may stand for ``NAME-unet``.

    Raises:
        ModelNotFound: one is missing; of a baseline the message says how to train it.
        WrongTask: one has another task than the first. InvalidParameter: one is named twice.
        InvalidInput: they know other labels.
    """
    first = repository.find(reference)
    bundles = [first, *(_find_other(repository, first, other) for other in against)]
    for bundle in bundles:
        if bundle.card.task != first.card.task or first.card.task not in BASELINES:
            raise WrongTask(
                f"{bundle.name} is a {bundle.card.task} model: segmentation models are evaluated "
                "against such, and synthesis models against such"
            )
    for one, other in itertools.combinations(bundles, 2):
        if one.reference == other.reference:
            raise InvalidParameter(f"--against: {one.reference} is named twice")
        if list(one.card.labels) != list(other.card.labels):
            raise InvalidInput(
                f"{one.reference} knows the labels {_told(one.card.labels)}, {other.reference} "
                f"{_told(other.card.labels)}: compare models of the same labels"
            )
    return bundles


def _find_other(repository: ModelRepository, first: Bundle, name: str) -> Bundle:
    plain, known = name.partition("@")[0], repository.names()
    suffixed = f"{first.name}-{plain}"
    if plain not in known and suffixed in known:
        return repository.find(f"{first.name}-{name}")
    task = first.card.task
    if plain in BASELINES.get(task, ()) and plain not in known:
        raise ModelNotFound(
            f"no model {plain!r}, nor {suffixed!r}; this trains it: caps-med train {task} "
            f"--data DIR --name {suffixed} --network {plain}"
        )
    return repository.find(name)


def evaluate(
    dataset: Dataset,
    models: Sequence[Model],
    track: Track = iter,
    *,
    seed: int = 0,
) -> Evaluation:
    """Segment every case with every model; one case is in memory at a time.

    Args:
        dataset: the cases to evaluate; `Dataset.subset` restricts it.
        models: the first is compared with the others.
        track: wraps the iteration over cases, to show progress.
        seed: of the confidence intervals.

    Raises:
        InvalidInput: a case is broken, or holds a label that the models do not know; or pictures
            and volumes are mixed, whose distances have different units.
    """
    survey = _Survey(dataset.require_complete(), models)
    for case in track(dataset.cases):
        survey.look_at(case)
    return survey.evaluation(seed)


def read_known(case: Case, dataset: Dataset, model: Model) -> tuple[MedicalImage, MedicalImage]:
    """A case's image and label map, its ids known to the model.

    Raises:
        InvalidInput: the case is broken, or the map holds an id that the model does not know.
    """
    image, label = dataset.read(case)
    card = model.bundle.card
    try:
        return image, match_labels(label, card.labels, binary=card.binary)
    except CapsMedError as error:
        raise InvalidInput(f"{case.label}: {error} ({_told(card.labels)})") from error


class _Survey:
    """What has been seen so far: numbers, and some small pictures."""

    def __init__(self, dataset: Dataset, models: Sequence[Model]) -> None:
        self._dataset, self._models = dataset, tuple(models)
        self._names = dict(list(models[0].bundle.card.labels.items())[1:])
        self._rows: list[Row] = []
        self._card = CardMaker()
        self._units: set[str] = set()
        cases = dataset.cases
        steps = np.linspace(0, len(cases) - 1, min(SHOWN, len(cases)))
        self._shown = {cases[i].name for i in np.rint(steps).astype(int)}
        self._tiles: list[Thumbnail] = []

    def look_at(self, case: Case) -> None:
        """Read one case once, and segment it with every model."""
        image, truth = read_known(case, self._dataset, self._models[0])
        self._units.add(unit_of(image))
        if len(self._units) > 1:
            raise InvalidInput(
                f"{case.images[0]}: pictures and volumes are mixed, whose distances are in pixels "
                "and in mm: evaluate them apart"
            )
        ids, counts = np.unique(truth.array, return_counts=True)
        values = dict(zip(ids.tolist(), counts.tolist(), strict=True))
        self._card.add(case.grouped, image, values, truth)
        if case.name in self._shown:
            self._tiles.append(thumbnail(case.name, image, truth))
        for model in self._models:
            try:
                found = model.segment(image)
            except CapsMedError as error:
                raise InvalidInput(f"{case.images[0]}: {error}") from error
            for scores in score_case(found, truth, list(self._names)):
                name = self._names[scores.label]
                self._rows.append(
                    Row(model.bundle.reference, case.name, case.grouped, name, unit_of(image),
                        scores)
                )  # fmt: skip

    def evaluation(self, seed: int) -> Evaluation:
        """All that was found."""
        card = self._card.card({})
        assert card is not None  # noqa: S101 - require_complete saw to it that there is a case
        references = tuple(m.bundle.reference for m in self._models)
        summary = Summary(
            data=str(self._dataset.root),
            cases=card.cases,
            groups=card.groups,
            models=references,
            labels=self._names,
            unit=next(iter(self._units)),
            seed=seed,
            notes=tuple(self._notes(card)),
            scores=tuple(class_summaries(self._rows, references, self._names, seed)),
            comparisons=tuple(comparisons(self._rows, references, self._names, seed)),
        )
        sheet = case_sheet(self._tiles, {})
        return Evaluation(
            self._models, self._dataset, tuple(self._rows), summary, card, sheet
        )  # fmt: skip

    def _notes(self, card: DataCard) -> Iterator[str]:
        if card.groups < card.cases:
            yield (
                f"{card.cases} cases come from {card.groups} independent groups; intervals are "
                "drawn over groups"
            )
        if card.groups < ENOUGH:
            yield (
                f"{card.groups} independent cases: confidence intervals are rough, and too few to "
                "tell models apart"
            )
        for model in self._models:
            card_of = model.bundle.card
            if note := trained_on_note(model, self._dataset):
                yield note
            other = {
                i: name for i, name in self._dataset.labels.items()
                if i in card_of.labels and name.casefold() != card_of.labels[i].casefold()
            }  # fmt: skip
            if other:
                yield (
                    f"the data call {_told(other)} what {model.bundle.reference} calls "
                    f"{_told({i: card_of.labels[i] for i in other})}; labels are matched by number"
                )


def trained_on_note(model: Model, dataset: Dataset) -> str:
    """What to know of scores on the data that a model has learned from; empty on other data."""
    trained_on = model.bundle.card.provenance.recipe.get("data")
    if not trained_on or Path(str(trained_on)).resolve() != dataset.root.resolve():
        return ""
    return (
        f"{model.bundle.reference} was trained on these data: scores on cases it has seen say "
        "little about new ones"
    )


def _told(labels: Mapping[int, str]) -> str:
    return ", ".join(f"{i} {name}" for i, name in labels.items())


def write_results(evaluation: Evaluation, out: Path) -> None:
    """Into the folder `out`: ``summary.json``, and ``cases.csv``, each replaced whole.

    The table has a row a model, case and class; a score that does not exist is an empty cell.
    """
    out.mkdir(parents=True, exist_ok=True)
    partial = out / "cases.csv.partial"
    named = [field.name for field in fields(ClassScores)]
    with partial.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, ["model", "case", "group", "class", *named, "unit"])
        table.writeheader()
        for row in evaluation.rows:
            about = {"model": row.model, "case": row.case, "group": row.group, "unit": row.unit}
            table.writerow({**about, "class": row.class_name, **asdict(row.scores)})
    partial.replace(out / "cases.csv")
    partial = out / "summary.json.partial"
    partial.write_text(evaluation.summary.model_dump_json(indent=2) + "\n", encoding="utf-8")
    partial.replace(out / "summary.json")
