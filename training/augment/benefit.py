"""The benefit of the synthetic images: segmenters trained with and without them, compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from caps_med.bundles import ModelRepository
from caps_med.inference import Model
from caps_med.wording import counted
from training.augment.config import AugmentConfig
from training.augment.models import (
    AugmentRun,
    dice_on,
    segmenter_data,
    segmenter_recipe,
    started,
)
from training.data import Dataset, Source, load_source, open_dataset
from training.data.layouts.naming import name_of
from training.data.prepare import StoredSamples
from training.data.samples import Sample
from training.engine.run_folder import RunFolder
from training.evaluation.statistics import Spread, Verdict, spread_of, verdict
from training.tasks.publish import publish
from training.tasks.segmentation import SegmentationRecipe, train_segmentation

#: The two arms of the comparison.
REAL, BOTH = "real images alone", "real and synthetic images"
_SHORT = {REAL: "real", BOTH: "both"}


class Benefit(BaseModel):
    """The comparison's result.

    Attributes:
        dice: arm -> seed -> test case -> Dice.
        spreads: arm -> spread over the test cases of the mean Dice over the seeds.
        difference: spread of the paired differences, with minus without synthetic images.
        verdict: what the confidence interval of the difference shows.
        test: number of test cases and independent groups, and their origin.
        steps: optimizer steps of each training.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dice: Mapping[str, Sequence[Mapping[str, float]]]
    spreads: Mapping[str, Spread]
    difference: Spread
    verdict: Verdict
    test: str
    steps: int

    @property
    def summary(self) -> str:
        """The verdict as a sentence."""
        change = 100 * self.difference.mean
        by = f"{change:+.1f} Dice points on average"
        if self.difference.interval is not None:
            low, high = (100 * end for end in self.difference.interval)
            by += f" (95 % interval {low:+.1f} to {high:+.1f})"
        return {
            "better": f"The synthetic images helped: {by}.",
            "worse": f"The synthetic images were harmful: {by}. Do not train on them.",
            "no difference shown": f"No difference was shown: {by}, which may be chance.",
            "too few cases": f"Too few test cases to tell: {by}, which says little. Give more "
            "labelled images with --test DIR.",
        }[self.verdict]


def compare(run: AugmentRun) -> Benefit:
    """Train both arms with each seed for the same number of steps; test on unseen images."""
    config, test = run.config, run.parts.test
    assert test is not None  # noqa: S101 - set with train_segmenter
    recipe, synthetic = segmenter_recipe(run, config.segmenter), open_dataset(run.folder.out)
    dice: dict[str, list[dict[str, float]]] = {REAL: [], BOTH: []}
    for number in range(config.segmenter_seeds):
        for arm, found in dice.items():
            name = f"segmenter-{_SHORT[arm]}-{number + 1}"
            run.console.print(f"{arm}, seed {number + 1} of {config.segmenter_seeds}")
            seeded = recipe.model_copy(update={"seed": config.seed + number})
            images = synthetic if arm == BOTH else None
            work = partial(_train_and_test, run, name, seeded, images, test)
            found.append(run.folder.once(name, work)["dice"])
    return summarized(dice, {c.name: c.grouped for c in test.cases}, recipe, config)


def summarized(
    dice: Mapping[str, Sequence[Mapping[str, float]]],
    groups: Mapping[str, str],
    recipe: SegmentationRecipe,
    config: AugmentConfig,
) -> Benefit:
    """Mean Dice over the seeds for each case, and the spread of their differences.

    Args:
        dice: arm -> seed -> case -> Dice.
        groups: case -> its group; groups are independent of each other.
        recipe: of each training.
        config: its seed is that of the confidence intervals.
    """
    cases = list(groups)
    means = {
        way: [sum(seed[case] for seed in seeds) / len(seeds) for case in cases]
        for way, seeds in dice.items()
    }
    differences = [b - a for a, b in zip(means[REAL], means[BOTH], strict=True)]
    spreads = {w: spread_of(m, list(groups.values()), config.seed) for w, m in means.items()}
    difference = spread_of(differences, list(groups.values()), config.seed)
    assert difference is not None  # noqa: S101 - there are test cases
    where = "set aside from the data" if config.test is None else f"of {name_of(Path(config.test))}"
    images = counted(len(cases), "image")
    return Benefit(
        dice=dice,
        spreads={w: s for w, s in spreads.items() if s is not None},
        difference=difference,
        verdict=verdict(difference, more_is_better=True),
        test=f"{images} in {counted(len(set(groups.values())), 'group')}, {where}",
        steps=recipe.epochs * recipe.steps,
    )


def _train_and_test(
    run: AugmentRun, name: str, recipe: SegmentationRecipe, images: Dataset | None, test: Dataset
) -> Mapping[str, Any]:
    """The Dice on each test case of a segmenter of the real images and `images`."""
    source = segmenter_data(run, "segmenter", recipe)
    if images is not None:
        store = run.folder.runs / "segmenter-data" / "synthetic"
        synthetic = load_source(images, store, recipe.preparation)
        source = half_synthetic(source, synthetic)
    folder = RunFolder(run.folder.runs / name)
    repository = ModelRepository(run.folder.work / "models")
    if not repository.versions(name):
        if resume := started(folder):  # after a restart, or with less memory, it is another one
            recipe = folder.read_recipe(SegmentationRecipe)
        network, _ = train_segmentation(source, recipe, folder, resume, models=run.models)
        became = folder.read_recipe(SegmentationRecipe)
        publish(repository, name, [(network, source)], became, run.config.command)
    return {"dice": dice_on(Model(repository.find(f"{name}@1")), test)}


def half_synthetic(real: Source, synthetic: Source) -> Source:
    """Real and synthetic samples together; only real ones are held out, the same as in `real`.

    The fewer ones are repeated so that about half of the training samples are real.
    """
    samples, stored = real.samples, synthetic.samples
    assert isinstance(samples, StoredSamples)  # noqa: S101 - both are folders
    assert isinstance(stored, StoredSamples)  # noqa: S101 - as above
    stored = StoredSamples(stored.store, stored.entries, samples.ids, stored.neighbours)
    ratio = len(stored) / len(real.training)
    repeats, again = (max(1, round(each)) for each in (ratio, 1 / ratio))
    chosen: list[tuple[Sequence[Sample], int]] = []
    groups: list[str] = []
    for number, group in enumerate(real.groups):
        times = 1 if group in real.held_out else repeats
        chosen += [(samples, number)] * times
        groups += [group] * times
    chosen += [(stored, number) for number in range(len(stored))] * again
    groups += [f"synthetic {group}" for group in synthetic.groups] * again
    return replace(real, samples=_Mixed(chosen), groups=groups, places=())


class _Mixed(Sequence[Sample]):
    """Samples of several sequences, read on access."""

    def __init__(self, places: Sequence[tuple[Sequence[Sample], int]]) -> None:
        self.places = places

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - no slices, which Sequence allows
        samples, number = self.places[index]
        return samples[number]
