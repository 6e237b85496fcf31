"""Whether the synthetic images help: segmenters trained with and without them, compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from caps_med.bundles import ModelRepository
from caps_med.inference import Model
from training.augment.config import SEGMENTER, AugmentOrder, Workshop
from training.augment.models import dice_on, fresh_run
from training.augment.split import Parts
from training.data import Source, load_source, open_dataset
from training.data.prepare import StoredSamples
from training.data.samples import Sample
from training.engine.run_folder import RunFolder
from training.evaluation.statistics import Spread, Verdict, spread_of, verdict
from training.tasks.pipeline import build_recipe
from training.tasks.planning import plan
from training.tasks.publish import publish
from training.tasks.segmentation import SegmentationRecipe, train_segmentation

#: The two ways to train, by name.
REAL, BOTH = "real images alone", "real and synthetic images"
_SHORT = {REAL: "real", BOTH: "both"}


class Usefulness(BaseModel):
    """What came of it.

    Attributes:
        dice: way to train -> seed -> Dice of each test case.
        spreads: of the cases' Dice, means over the seeds, of each way.
        difference: of those, with the synthetic images minus without, case by case.
        verdict: what the interval of the difference shows of the synthetic images.
        test: how many cases, in how many independent groups, and from where.
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
    def said(self) -> str:
        """The verdict in a sentence."""
        change = 100 * self.difference.mean
        by = f"{change:+.1f} Dice points on average"
        if self.difference.interval is not None:
            low, high = (100 * end for end in self.difference.interval)
            by += f" (95 % interval {low:+.1f} to {high:+.1f})"
        return {
            "better": f"The synthetic images helped: {by}.",
            "worse": f"The synthetic images did harm: {by}. Do not train on them.",
            "no difference shown": f"No difference was shown: {by}, which may be chance.",
            "too few cases": f"Too few test cases to tell: {by}, which says little. Give more "
            "labelled images with --test DIR.",
        }[self.verdict]


def compare(
    order: AugmentOrder, parts: Parts, workshop: Workshop, say: Callable[[str], None]
) -> Usefulness:
    """Train both ways with every seed, as many steps each, and test on what none of them saw."""
    assert parts.test is not None  # noqa: S101 - the caller asked for it
    recipe = _recipe(order, parts)
    dice: dict[str, list[dict[str, float]]] = {REAL: [], BOTH: []}
    for number in range(order.segmenter_seeds):
        for way, found in dice.items():
            name = f"segmenter-{_SHORT[way]}-{number + 1}"
            say(f"{way}, seed {number + 1} of {order.segmenter_seeds}")
            chosen = recipe.model_copy(update={"seed": order.seed + number})
            work = partial(_trained, way, name, chosen, parts, workshop, order)
            found.append(workshop.once(name, work)["dice"])
    return summarized(dice, {c.name: c.grouped for c in parts.test.cases}, recipe, order)


def summarized(
    dice: Mapping[str, Sequence[Mapping[str, float]]],
    groups: Mapping[str, str],
    recipe: SegmentationRecipe,
    order: AugmentOrder,
) -> Usefulness:
    """Means over the seeds, case by case, and what their differences show.

    Args:
        dice: way to train -> seed -> case -> Dice.
        groups: case -> what is independent of others.
        recipe: of each training.
        order: for its seed.
    """
    cases = list(groups)
    means = {
        way: [sum(seed[case] for seed in seeds) / len(seeds) for case in cases]
        for way, seeds in dice.items()
    }
    differences = [b - a for a, b in zip(means[REAL], means[BOTH], strict=True)]
    spreads = {w: spread_of(m, list(groups.values()), order.seed) for w, m in means.items()}
    difference = spread_of(differences, list(groups.values()), order.seed)
    assert difference is not None  # noqa: S101 - there are test cases
    where = "set aside from the data" if order.test is None else f"of {Path(order.test).name}"
    return Usefulness(
        dice=dice,
        spreads={w: s for w, s in spreads.items() if s is not None},
        difference=difference,
        verdict=verdict(difference, more_is_better=True),
        test=f"{len(cases)} images in {len(set(groups.values()))} groups, {where}",
        steps=recipe.epochs * recipe.steps,
    )


def _recipe(order: AugmentOrder, parts: Parts) -> SegmentationRecipe:
    from training.engine import distributed

    card = parts.dataset.card
    assert card is not None  # noqa: S101 - the data were checked before
    planned = plan(card, distributed.device(), "2d")
    given = {"data": parts.dataset.data, "seed": order.seed, **SEGMENTER, **order.segmenter}
    recipe = build_recipe(SegmentationRecipe, [planned, given])
    assert isinstance(recipe, SegmentationRecipe)  # noqa: S101
    return recipe


def _trained(
    way: str,
    name: str,
    recipe: SegmentationRecipe,
    parts: Parts,
    workshop: Workshop,
    order: AugmentOrder,
) -> Mapping[str, Any]:
    """The Dice of one segmenter on each test case."""
    assert parts.test is not None  # noqa: S101 - the caller asked for it
    store = workshop.work / "runs" / "segmenter-data"
    source = load_source(parts.dataset, store / "real", recipe.preparation)
    if way == BOTH:
        synthetic = load_source(open_dataset(workshop.out), store / "synthetic", recipe.preparation)
        source = half_synthetic(source, synthetic)
    folder = RunFolder(workshop.work / "runs" / name)
    repository = ModelRepository(workshop.work / "models")
    if not repository.versions(name):
        resume = not fresh_run(folder)
        network, _ = train_segmentation(source, recipe, folder, resume)
        publish(repository, name, [(network, source)], recipe, order.command)
    return {"dice": dice_on(Model(repository.find(f"{name}@1")), parts.test)}


def half_synthetic(real: Source, synthetic: Source) -> Source:
    """Both together: what is held out are real images alone, as without the synthetic ones.

    The real training samples are repeated so that about half of what is drawn is real.
    """
    samples, stored = real.samples, synthetic.samples
    assert isinstance(samples, StoredSamples)  # noqa: S101 - both are folders
    assert isinstance(stored, StoredSamples)  # noqa: S101
    stored = StoredSamples(stored.store, stored.entries, samples.ids, stored.neighbours)
    repeats = max(1, round(len(stored) / len(real.training)))
    chosen: list[tuple[Sequence[Sample], int]] = []
    groups: list[str] = []
    for number, group in enumerate(real.groups):
        times = 1 if group in real.held_out else repeats
        chosen += [(samples, number)] * times
        groups += [group] * times
    chosen += [(stored, number) for number in range(len(stored))]
    groups += [f"synthetic {group}" for group in synthetic.groups]
    return replace(real, samples=_Mixed(chosen), groups=groups)


class _Mixed(Sequence[Sample]):
    """Samples from several places, still read when asked for."""

    def __init__(self, places: Sequence[tuple[Sequence[Sample], int]]) -> None:
        self.places = places

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, index: Any) -> Any:  # noqa: ANN401 - no slices, which Sequence allows
        samples, number = self.places[index]
        return samples[number]
