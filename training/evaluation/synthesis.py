"""Synthesis models on labelled images: how near to real ones, how various, true to the labels.

Every label map of the data is synthesized several times. Cases that share a label map are real
repeats of it; against them the diversity of the synthetic images is measured.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from caps_med.errors import CapsMedError, InvalidInput, InvalidParameter
from caps_med.images import MedicalImage, SliceStack, as_written
from caps_med.inference import Model
from training.data import Dataset
from training.data.cases import Case
from training.evaluation.metrics import (
    DISTANCES,
    Diversity,
    ImageSet,
    SetDistances,
    distances,
    mean_pairwise,
    psnr,
    ssim,
)
from training.evaluation.metrics.overlap import score_case
from training.evaluation.segmentation import read_known, trained_on_note
from training.evaluation.statistics import ENOUGH
from training.evaluation.synthesis_summary import (
    PAIRED,
    DiversityScore,
    SynthesisRow,
    SynthesisScores,
    SynthesisSummary,
    compared,
    spread_over,
)

Floats = NDArray[np.float32]
#: Cases that show the same label map.
Repeats = tuple[Case, ...]
Track = Callable[[Iterable[Repeats]], Iterable[Repeats]]

#: Slices of a volume that are looked at, evenly among those with a label.
SLICES = 8
#: Label maps that are shown; of each, real images beside it, and synthetic ones below: four a row.
SHOWN, REPEATS, LOOKS = 4, 3, 4


@dataclass(frozen=True)
class Shown:
    """One label map in pictures: ids ``[H, W]``, images ``[C, H, W]`` in [0, 1]."""

    case: str
    labels: NDArray[np.generic]
    real: Sequence[Floats]
    synthetic: Mapping[str, Sequence[Floats]]
    spacing: tuple[float, float] | None


@dataclass(frozen=True)
class SynthesisEvaluation:
    """Everything found."""

    models: tuple[Model, ...]
    dataset: Dataset
    rows: tuple[SynthesisRow, ...]
    summary: SynthesisSummary
    shown: tuple[Shown, ...]


def evaluate_synthesis(
    dataset: Dataset,
    models: Sequence[Model],
    track: Track = iter,
    *,
    seed: int = 0,
    images: int = 4,
    segmenter: Model | None = None,
) -> SynthesisEvaluation:
    """Synthesize every label map with every model, and compare with the real images.

    Args:
        dataset: the cases to evaluate.
        models: the first is compared with the others.
        track: wraps the iteration over label maps, to show progress.
        seed: of the noise, different for every image, and of the intervals.
        images: synthesized from each label map.
        segmenter: a good segmentation model of the same labels, for the geometry.

    Raises:
        InvalidParameter: `images` below 1.
        InvalidInput: a case is broken, or holds a label that the models or the segmenter do not
            know.
    """
    if images < 1:
        raise InvalidParameter(f"images={images}: must be at least 1")
    _check_segmenter(models[0], segmenter)
    maps = repeats_of(dataset.require_complete(), models[0])
    survey = _Survey(dataset, models, segmenter, seed, images, len(maps))
    for repeats in track(maps):
        survey.look_at(repeats)
    return survey.evaluation()


def repeats_of(dataset: Dataset, model: Model) -> list[Repeats]:
    """The cases by their label map, in the order of the first of each.

    Raises:
        InvalidInput: a case is broken, or holds a label that the model does not know.
    """
    found: dict[str, list[Case]] = {}
    for case in dataset.cases:
        _, label = read_known(case, dataset, model)
        ids = np.ascontiguousarray(label.array.astype(np.int32))
        key = hashlib.sha256(repr(ids.shape).encode() + ids.tobytes()).hexdigest()
        found.setdefault(key, []).append(case)
    return [tuple(repeats) for repeats in found.values()]


def _check_segmenter(model: Model, segmenter: Model | None) -> None:
    if segmenter is None:
        return
    known = [list(m.bundle.card.labels) for m in (model, segmenter)]
    if known[0] != known[1]:
        raise InvalidInput(
            f"--segmenter {segmenter.bundle.reference} knows the labels {known[1]}, "
            f"{model.bundle.reference} {known[0]}: geometry needs the same"
        )


@dataclass
class _Found:
    """Of one model, image by image."""

    images: ImageSet = field(default_factory=ImageSet)
    real: ImageSet = field(default_factory=ImageSet)
    halves: tuple[ImageSet, ImageSet] = field(default_factory=lambda: (ImageSet(), ImageSet()))
    made: dict[str, list[float | None]] = field(default_factory=dict)
    repeated: dict[str, list[float | None]] = field(default_factory=dict)


class _Survey:
    """What has been seen so far: numbers, and some small pictures."""

    def __init__(
        self,
        dataset: Dataset,
        models: Sequence[Model],
        segmenter: Model | None,
        seed: int,
        images: int,
        maps: int,
    ) -> None:
        self._dataset, self._models, self._segmenter = dataset, tuple(models), segmenter
        self._seed, self._images, self._maps = seed, images, maps
        self._number = 0
        self._rows: list[SynthesisRow] = []
        self._found = {model.bundle.reference: _Found() for model in models}
        places = np.linspace(0, maps - 1, min(SHOWN, maps))
        self._wanted = set(np.rint(places).astype(int).tolist())
        self._shown: list[Shown] = []

    def look_at(self, repeats: Repeats) -> None:
        """Read the cases of one label map, and synthesize it with every model."""
        read = [read_known(case, self._dataset, self._models[0]) for case in repeats]
        label = read[0][1]
        reals = [image for image, _ in read]
        pictures: dict[str, list[Floats]] = {}
        for model in self._models:
            made = self._synthesized(model, label, repeats[0])
            pictures[model.bundle.reference] = self._compare(model, repeats, label, reals, made)
        if self._number in self._wanted:
            self._keep(repeats[0], label, reals, pictures)
        self._number += 1

    def _synthesized(self, model: Model, label: MedicalImage, case: Case) -> list[MedicalImage]:
        first = self._seed + self._number * self._images
        try:
            made = model.synthesize_many(label, first, self._images)
        except CapsMedError as error:
            raise InvalidInput(f"{case.label}: {error}") from error
        return [as_written(image) for image in made]

    def _compare(
        self,
        model: Model,
        repeats: Repeats,
        label: MedicalImage,
        reals: Sequence[MedicalImage],
        made: Sequence[MedicalImage],
    ) -> list[Floats]:
        """Measure one model's images; gives the slice of each that is shown."""
        reference, found = model.bundle.reference, self._found[model.bundle.reference]
        card = model.bundle.card
        chosen = _slices(label, card.plane)
        real = [card.normalization.apply(_stack(x, card.plane))[chosen] for x in reals]
        fake = [_unit(_stack(x, card.plane))[chosen] for x in made]
        for image in (one for stack in fake for one in stack):
            found.images.add(image)
        for image in (one for stack in real for one in stack):
            found.real.add(image)
            found.halves[self._number % 2].add(image)
        among = {name: mean_pairwise(fake, _each(d)) for name, d in DISTANCES.items()}
        for name, distance in DISTANCES.items():
            found.made.setdefault(name, []).append(among[name])
            found.repeated.setdefault(name, []).append(mean_pairwise(real, _each(distance)))
        geometry = self._geometry(label, made)
        for case, stack in zip(repeats, real, strict=True):
            pairs = [(a, b) for one in fake for a, b in zip(one, stack, strict=True)]
            self._rows.append(
                SynthesisRow(
                    model=reference,
                    case=case.name,
                    group=case.group or f"label map {self._number}",
                    label_map=self._number,
                    ssim=float(np.mean([ssim(a, b) for a, b in pairs])),
                    psnr=float(np.mean([psnr(a, b) for a, b in pairs])),
                    geometry=geometry,
                    distances=among,
                )
            )
        middle = len(chosen) // 2
        return [stack[middle] for stack in fake[:LOOKS]]

    def _geometry(self, label: MedicalImage, made: Sequence[MedicalImage]) -> float | None:
        """Mean Dice of the segmenter's answers, over images and classes."""
        if self._segmenter is None:
            return None
        ids = list(self._segmenter.bundle.card.labels)[1:]
        dice = [
            scores.dice
            for image in made
            for scores in score_case(self._segmenter.segment(image), label, ids)
            if scores.dice is not None
        ]
        return float(np.mean(dice)) if dice else None

    def _keep(
        self,
        case: Case,
        label: MedicalImage,
        reals: Sequence[MedicalImage],
        pictures: Mapping[str, Sequence[Floats]],
    ) -> None:
        card = self._models[0].bundle.card
        chosen = _slices(label, card.plane)
        z = chosen[len(chosen) // 2]
        stack = SliceStack.from_image(label, card.plane)
        real = [card.normalization.apply(_stack(x, card.plane))[z] for x in reals[:REPEATS]]
        self._shown.append(Shown(case.name, stack.array[z, 0], real, pictures, stack.spacing))

    def evaluation(self) -> SynthesisEvaluation:
        """All that was found."""
        references = tuple(self._found)
        first = self._found[references[0]]
        summary = SynthesisSummary(
            data=str(self._dataset.root),
            cases=len(self._dataset.cases),
            label_maps=self._maps,
            models=references,
            images=self._images,
            seed=self._seed,
            segmenter=self._segmenter.bundle.reference if self._segmenter else None,
            notes=tuple(self._notes()),
            floor=_distances(*first.halves),
            scores=tuple(self._scores(model) for model in self._models),
            comparisons=tuple(compared(self._rows, references, self._seed)),
        )
        return SynthesisEvaluation(
            self._models, self._dataset, tuple(self._rows), summary, tuple(self._shown)
        )

    def _scores(self, model: Model) -> SynthesisScores:
        reference = model.bundle.reference
        found = self._found[reference]
        rows = [row for row in self._rows if row.model == reference]
        diversity = {
            name: Diversity.of(found.made[name], found.repeated[name]) for name in DISTANCES
        }
        return SynthesisScores(
            model=reference,
            parameters=sum(p.numel() for p in model.network.parameters()),
            sets=_distances(found.images, found.real),
            diversity={
                name: DiversityScore(
                    synthetic=_short(one.synthetic), real=_short(one.real), ratio=_short(one.ratio)
                )
                for name, one in diversity.items()
            },
            **{metric: spread_over(rows, metric, self._seed) for metric in PAIRED},
        )

    def _notes(self) -> Iterator[str]:
        if self._maps == len(self._dataset.cases):
            yield (
                "every label map has a single real image: diversity has nothing to be compared "
                "with (caps-med data phantoms --repeats gives one label map several images)"
            )
        if self._images == 1:
            yield "one image a label map: diversity needs --images 2 or more"
        if self._segmenter is None:
            yield "geometry was not measured: name a good model of these labels with --segmenter"
        if self._maps < ENOUGH:
            yield f"{self._maps} label maps: confidence intervals and distances are rough"
        for model in self._models:
            if note := trained_on_note(model, self._dataset):
                yield note


def _each(distance: Callable[[Floats, Floats], float]) -> Callable[[Floats, Floats], float]:
    """The mean of a distance over slices ``[D, C, H, W]``."""
    return lambda a, b: float(np.mean([distance(x, y) for x, y in zip(a, b, strict=True)]))


def _stack(image: MedicalImage, plane: str) -> NDArray[np.generic]:
    return SliceStack.from_image(image, plane).array  # type: ignore[arg-type]


def _slices(label: MedicalImage, plane: str) -> list[int]:
    """Up to `SLICES` slices that hold a label, evenly; the middle one of an empty map."""
    labelled = np.flatnonzero(_stack(label, plane).reshape(len(_stack(label, plane)), -1).any(1))
    if not len(labelled):
        return [len(_stack(label, plane)) // 2]
    places = np.linspace(0, len(labelled) - 1, min(SLICES, len(labelled)))
    return [int(labelled[i]) for i in np.unique(np.rint(places).astype(int))]


def _unit(pixels: NDArray[np.generic]) -> Floats:
    """A synthesized image, as its file holds it, in [0, 1]."""
    scale = 255.0 if pixels.dtype == np.uint8 else 1.0
    return np.asarray(np.asarray(pixels, np.float32) / np.float32(scale))


def _distances(images: ImageSet, reference: ImageSet) -> dict[str, float] | None:
    if min(len(images), len(reference)) < 2:
        return None
    found: SetDistances = distances(images, reference)
    return {name: round(value, 6) for name, value in vars(found).items()}


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def write_synthesis_results(evaluation: SynthesisEvaluation, out: Path) -> None:
    """Into the folder `out`: ``summary.json``, and ``cases.csv``, each replaced whole."""
    out.mkdir(parents=True, exist_ok=True)
    partial = out / "cases.csv.partial"
    with partial.open("w", encoding="utf-8", newline="") as file:
        named = ["model", "case", "group", "label_map", *PAIRED,
                 *(f"{name}_among_synthetic" for name in DISTANCES)]  # fmt: skip
        table = csv.DictWriter(file, named)
        table.writeheader()
        for row in evaluation.rows:
            among = {f"{name}_among_synthetic": value for name, value in row.distances.items()}
            values = {**vars(replace(row)), **among}
            del values["distances"]
            table.writerow({k: round(v, 6) if isinstance(v, float) else v
                            for k, v in values.items()})  # fmt: skip
    partial.replace(out / "cases.csv")
    partial = out / "summary.json.partial"
    partial.write_text(evaluation.summary.model_dump_json(indent=2) + "\n", encoding="utf-8")
    partial.replace(out / "summary.json")
