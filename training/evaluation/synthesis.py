"""Evaluation of synthesis models on labelled images: similarity, diversity, fidelity to labels.

Every label map of the data is synthesized several times. Cases that share a label map are real
repeats of it, with which the diversity of the synthetic images is compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from caps_med.bundles import ModelCard
from caps_med.errors import InvalidInput, InvalidParameter
from caps_med.images import MedicalImage, Plane, SliceStack, as_written
from caps_med.inference import Model
from caps_med.preprocessing import single_slice_plane
from caps_med.wording import counted
from training.data import Dataset
from training.data.cases import Case
from training.data.layouts.naming import composed
from training.evaluation.dice import dice
from training.evaluation.evaluator import Evaluator, evenly_spaced, naming, read_matched
from training.evaluation.metrics import (
    DISTANCES,
    SSIM_WINDOW,
    Diversity,
    ImageSet,
    distances,
    has_ssim,
    mean_pairwise,
    psnr,
    ssim,
    structural,
)
from training.evaluation.metrics.artefacts import border, grid, slice_correlation
from training.evaluation.models import list_labels, same_labels
from training.evaluation.statistics import ENOUGH
from training.evaluation.summary import (
    PAIRED,
    ArtefactScore,
    DiversityScore,
    SynthesisRow,
    SynthesisScores,
    SynthesisSummary,
    compare,
    spreads,
)
from training.rounding import rounded

Floats = NDArray[np.float32]
#: Cases that share a label map.
Repeats = tuple[Case, ...]

#: Slices of a volume that are compared, evenly spaced among those with a label.
SLICES = 8
#: Artefacts that are measured, see `training.evaluation.metrics.artefacts`.
ARTEFACTS = ("grid", "checkerboard", "border", "slices")
#: Label maps that are shown, with so many of their real images and of each model's images.
SHOWN, SHOWN_REAL, SHOWN_SYNTHETIC = 4, 3, 4


@dataclass(frozen=True)
class Shown:
    """One label map with its images: ids ``[H, W]``, images ``[C, H, W]`` in [0, 1]."""

    case: str
    labels: NDArray[np.generic]
    real: Sequence[Floats]
    synthetic: Mapping[str, Sequence[Floats]]
    spacing: tuple[float, float] | None


@dataclass(frozen=True)
class SynthesisEvaluation:
    """The result of evaluating synthesis models."""

    models: tuple[Model, ...]
    dataset: Dataset
    rows: tuple[SynthesisRow, ...]
    summary: SynthesisSummary
    shown: tuple[Shown, ...]


def evaluate_synthesis(
    dataset: Dataset,
    models: Sequence[Model],
    *,
    seed: int = 0,
    images: int = 4,
    segmenter: Model | None = None,
) -> SynthesisEvaluation:
    """Synthesize every label map with every model, and compare with the real images.

    Args:
        dataset: the cases.
        models: the first is compared with the others.
        seed: of the noise, different for every image, and of the intervals.
        images: synthesized from each label map.
        segmenter: a good segmentation model of the same labels, for the geometry.

    Raises:
        InvalidParameter: `images` below 1.
        InvalidInput: a case is broken, or has a label that the models or the segmenter do not
            know.
    """
    evaluator = SynthesisEvaluator(dataset, models, seed, images, segmenter)
    return evaluator.run().evaluation()


def repeats_of(dataset: Dataset, model: Model) -> list[Repeats]:
    """The cases grouped by label map, in the order of the first case of each.

    Raises:
        InvalidInput: a case is broken, or has a label that the model does not know.
    """
    found: dict[str, list[Case]] = {}
    for case in dataset.cases:
        _, label = read_matched(case, dataset, [model])
        ids = np.ascontiguousarray(label.array.astype(np.int32))
        key = hashlib.sha256(repr(ids.shape).encode() + ids.tobytes()).hexdigest()
        found.setdefault(key, []).append(case)
    return [tuple(repeats) for repeats in found.values()]


@dataclass
class _Images:
    """What is kept of one model's images and of the real ones in its normalization.

    Attributes:
        halves: the real images of every second label map, and of the others.
        diversity: distance -> mean pairwise distance of each label map's images, synthetic and
            real.
        artefacts: measure -> its values, synthetic and real.
    """

    synthetic: ImageSet = field(default_factory=ImageSet)
    real: ImageSet = field(default_factory=ImageSet)
    halves: tuple[ImageSet, ImageSet] = field(default_factory=lambda: (ImageSet(), ImageSet()))
    diversity: Mapping[str, tuple[list[float | None], list[float | None]]] = field(
        default_factory=lambda: {name: ([], []) for name in DISTANCES}
    )
    artefacts: Mapping[str, tuple[list[float | None], list[float | None]]] = field(
        default_factory=lambda: {name: ([], []) for name in ARTEFACTS}
    )

    def look(
        self, side: int, volume: Floats, labels: NDArray[np.generic], mm: float | None
    ) -> None:
        """Measure the artefacts of one image ``[D, C, H, W]``: synthetic (0) or real (1)."""
        for z in evenly_spaced(len(volume), SLICES):
            self.artefacts["grid"][side].append(grid(volume[z, 0]))
            self.artefacts["checkerboard"][side].append(grid(volume[z, 0], pitch=2))
            self.artefacts["border"][side].append(border(volume[z, 0]))
        if mm is not None and len(volume) > 1:
            found = slice_correlation(volume[:, 0], labels[:, 0].astype(int), mm)
            self.artefacts["slices"][side].append(found)


class SynthesisEvaluator(Evaluator[Repeats]):
    """Scores synthesis models label map by label map; see `evaluate_synthesis`."""

    def __init__(
        self,
        dataset: Dataset,
        models: Sequence[Model],
        seed: int,
        images: int,
        segmenter: Model | None,
    ) -> None:
        super().__init__(dataset, models, seed)
        if images < 1:
            raise InvalidParameter(f"images={images}: must be at least 1")
        _check_labels(models[0], segmenter)
        self._images, self._segmenter = images, segmenter
        self._maps = repeats_of(self.dataset, models[0])
        self._groups = {case.group for case in dataset.cases}
        self._number = 0
        self._small: set[int] = set()
        self._rows: list[SynthesisRow] = []
        self._found = {reference: _Images() for reference in self.references}
        self._shown_maps = set(evenly_spaced(len(self._maps), SHOWN))
        self._shown: list[Shown] = []

    @property
    def units(self) -> Sequence[Repeats]:
        """The cases of each label map."""
        return self._maps

    def score(self, unit: Repeats) -> None:
        """Synthesize one label map with every model, and compare with its real images."""
        read = [self.read(case) for case in unit]
        label, reals = read[0][1], [image for image, _ in read]
        shown: dict[str, list[Floats]] = {}
        for model in self.models:
            first = self.seed + self._number * self._images
            with naming(unit[0].label):
                images = model.synthesize_many(label, first, self._images)
                synthetic = [as_written(image) for image in images]
                shown[model.bundle.reference] = self._compare(model, unit, label, reals, synthetic)
        if self._number in self._shown_maps:
            self._show(unit[0], label, reals, shown)
        self._number += 1

    def _compare(
        self,
        model: Model,
        repeats: Repeats,
        label: MedicalImage,
        reals: Sequence[MedicalImage],
        synthetic: Sequence[MedicalImage],
    ) -> list[Floats]:
        """Score one model's images; gives the slice of each that is shown."""
        reference, card = model.bundle.reference, model.bundle.card
        found = self._found[reference]
        chosen = _labelled_slices(label, card.plane)
        whole = _slices(label, card.plane)
        stacks = (
            [_unit_range(_slices(x, card.plane).array) for x in synthetic],
            [_normalized(x, card) for x in reals],
        )
        for side, each in enumerate(stacks):
            for stack in each:
                found.look(side, stack, whole.array, whole.slice_mm)
        fake, real = ([stack[chosen] for stack in each] for each in stacks)
        for image in (one for stack in fake for one in stack):
            found.synthetic.add(image)
        for image in (one for stack in real for one in stack):
            found.real.add(image)
            found.halves[self._number % 2].add(image)
        among, really = _distances_among(fake), _distances_among(real)
        for name, (synthetic_ones, real_ones) in found.diversity.items():
            synthetic_ones.append(among[name])
            real_ones.append(really[name])
        geometry, large = self._geometry(label, synthetic), has_ssim(whole.array)
        if not large:
            self._small.add(self._number)
        for case, stack in zip(repeats, real, strict=True):
            pairs = [(a, b) for one in fake for a, b in zip(one, stack, strict=True)]
            self._rows.append(
                SynthesisRow(
                    model=reference,
                    case=case.name,
                    group=self._group_of(case),
                    label_map=self._number,
                    ssim=float(np.mean([ssim(a, b) for a, b in pairs])) if large else None,
                    psnr=float(np.mean([psnr(a, b) for a, b in pairs])),
                    geometry=geometry,
                    distances=among,
                )
            )
        return [stack[len(chosen) // 2] for stack in fake[:SHOWN_SYNTHETIC]]

    def _group_of(self, case: Case) -> str:
        """That of the case; of one on its own, the label map that it shares with its repeats."""
        return case.grouped if case.grouped in self._groups else f"label map {self._number}"

    def _geometry(self, label: MedicalImage, images: Sequence[MedicalImage]) -> float | None:
        """Mean Dice of the segmenter's answers, over images and classes."""
        if self._segmenter is None:
            return None
        ids = list(self._segmenter.bundle.card.labels)[1:]
        found = [self._segmenter.segment(image).array for image in images]
        scores = [dice(one == i, label.array == i) for one in found for i in ids]
        known = [score for score in scores if score is not None]
        return float(np.mean(known)) if known else None

    def _show(
        self,
        case: Case,
        label: MedicalImage,
        reals: Sequence[MedicalImage],
        synthetic: Mapping[str, Sequence[Floats]],
    ) -> None:
        card = self.models[0].bundle.card
        chosen = _labelled_slices(label, card.plane)
        z = chosen[len(chosen) // 2]
        stack = _slices(label, card.plane)
        real = [_normalized(x, card)[z] for x in reals[:SHOWN_REAL]]
        self._shown.append(Shown(case.name, stack.array[z, 0], real, synthetic, stack.spacing))

    def evaluation(self) -> SynthesisEvaluation:
        """Everything that was found."""
        first, *others = self.references
        summary = SynthesisSummary(
            data=composed(str(self.dataset.root)),
            cases=len(self.dataset.cases),
            label_maps=len(self._maps),
            models=self.references,
            images=self._images,
            seed=self.seed,
            segmenter=self._segmenter.bundle.reference if self._segmenter else None,
            notes=(*self._limits(), *self.notes()),
            floor=_distances(*self._found[first].halves),
            scores=tuple(self._scores(model) for model in self.models),
            comparisons=tuple(
                comparison
                for other in others
                for comparison in compare(self._rows, first, other, PAIRED, self.seed)
            ),
        )
        return SynthesisEvaluation(
            self.models, self.dataset, tuple(self._rows), summary, tuple(self._shown)
        )

    def _scores(self, model: Model) -> SynthesisScores:
        reference = model.bundle.reference
        found = self._found[reference]
        diversity = {name: Diversity.of(*values) for name, values in found.diversity.items()}
        rows = [row for row in self._rows if row.model == reference]
        return SynthesisScores(
            model=reference,
            parameters=sum(p.numel() for p in model.network.parameters()),
            sets=_distances(found.synthetic, found.real),
            diversity={
                name: DiversityScore(
                    synthetic=rounded(one.synthetic),
                    real=rounded(one.real),
                    ratio=rounded(one.ratio),
                )
                for name, one in diversity.items()
            },
            artefacts={
                name: ArtefactScore(synthetic=_mean(sides[0]), real=_mean(sides[1]))
                for name, sides in found.artefacts.items()
                if any(value is not None for side in sides for value in side)
            },
            **spreads(rows, PAIRED, self.seed),
        )

    def _limits(self) -> Iterator[str]:
        """What could not be measured, or only roughly."""
        maps = len(self._maps)
        if maps == len(self.dataset.cases):
            yield (
                "every label map has only one real image: there is nothing to compare diversity "
                "with (caps-med data phantoms --repeats makes several images of a label map)"
            )
        if self._images == 1:
            yield "only one image per label map: diversity needs --images 2 or more"
        if self._segmenter is None:
            yield "geometry was not measured: name a good model of these labels with --segmenter"
        if self._small:
            yield (
                f"{counted(len(self._small), 'label map')} of under {SSIM_WINDOW} x {SSIM_WINDOW} "
                "pixels, SSIM's window: not part of SSIM, nor of the diversity by it"
            )
        if maps < ENOUGH:
            yield f"{counted(maps, 'label map')}: confidence intervals and distances are rough"


def _check_labels(model: Model, segmenter: Model | None) -> None:
    if segmenter is not None and not same_labels(model.bundle, segmenter.bundle):
        known, other = (list_labels(m.bundle.card.labels) for m in (segmenter, model))
        raise InvalidInput(
            f"--segmenter {segmenter.bundle.reference} knows the labels {known}, "
            f"but {model.bundle.reference} {other}: geometry needs the same labels"
        )


def _distances_among(stacks: Sequence[Floats]) -> dict[str, float | None]:
    """Distance -> its mean over all pairs of images ``[D, C, H, W]``; None where there is none."""
    known = {
        name: mean_pairwise(stacks, _over_slices(distance))
        for name, distance in DISTANCES.items()
        if distance is not structural or has_ssim(stacks[0])
    }
    return {name: known.get(name) for name in DISTANCES}


def _over_slices(distance: Callable[[Floats, Floats], float]) -> Callable[[Floats, Floats], float]:
    """The mean of a distance over slices ``[D, C, H, W]``."""
    return lambda a, b: float(np.mean([distance(x, y) for x, y in zip(a, b, strict=True)]))


def _slices(image: MedicalImage, plane: Plane) -> SliceStack:
    """The slices of an image in the plane of a model; a volume of a single slice as that one."""
    return SliceStack.from_image(image, single_slice_plane(image) or plane)


def _normalized(image: MedicalImage, card: ModelCard) -> NDArray[np.float32]:
    """The slices of a real image on the scale of the model."""
    normalization = card.normalization.for_white(image.white)
    return normalization.apply(_slices(image, card.plane).array, 1)


def _labelled_slices(label: MedicalImage, plane: Plane) -> list[int]:
    """Up to `SLICES` slices with a label, evenly spaced; the middle one of an empty map."""
    stack = _slices(label, plane).array
    labelled = np.flatnonzero(stack.reshape(len(stack), -1).any(1))
    if not len(labelled):
        return [len(stack) // 2]
    return [int(labelled[i]) for i in evenly_spaced(len(labelled), SLICES)]


def _unit_range(pixels: NDArray[np.generic]) -> Floats:
    """A synthetic image as its file holds it, in [0, 1]."""
    scale = 255.0 if pixels.dtype == np.uint8 else 1.0
    return np.asarray(np.asarray(pixels, np.float32) / np.float32(scale))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(float(np.mean(known)), 4) if known else None


def _distances(images: ImageSet, reference: ImageSet) -> dict[str, float] | None:
    if min(len(images), len(reference)) < 2:
        return None
    return {name: round(value, 6) for name, value in vars(distances(images, reference)).items()}
