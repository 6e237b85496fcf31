"""Models that the loop trains by itself: the generator, and the judge with its held-out scores."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from caps_med.bundles import Bundle, ModelRepository
from caps_med.errors import WrongTask
from caps_med.inference import Model
from caps_med.networks.ensemble import Ensemble
from training.augment.config import GENERATOR, SEGMENTER, AugmentOrder, Workshop
from training.augment.split import Parts
from training.data import Dataset, Source, load_source
from training.engine.run_folder import RunFolder
from training.evaluation.evaluator import naming, read_matched
from training.evaluation.metrics.overlap import mean_dice
from training.evaluation.validation import dice_scores
from training.tasks.pipeline import TASKS, Order, train

#: The judge is cross-validated so many times, or as often as there are groups.
FOLDS = 4
#: An image is kept from so many standard deviations below the judge's mean held-out Dice, from
#: this part of it below, whichever is lower, and not below this part of it.
_DEVIATIONS, _PART_BELOW, _LEAST_PART = 2.0, 0.1, 0.5
#: A judge that finds unseen real labels less well says little of synthetic ones.
POOR = 0.5


def train_generator(
    order: AugmentOrder, parts: Parts, workshop: Workshop, models: Path | None, console: Console
) -> Mapping[str, Any]:
    """The generator's reference, repository and checksum, after training it or finding it."""
    if order.model is not None:
        return _described(_given("--model", order.model, "synthesis", models), models)
    given = {**GENERATOR, "seed": order.seed, **order.generator}
    bundle = _train(order, parts, workshop, "synthesis", "generator", given, 0, console)
    return _described(bundle, workshop.models)


def train_judge(
    order: AugmentOrder, parts: Parts, workshop: Workshop, models: Path | None, console: Console
) -> Mapping[str, Any]:
    """The judge's reference, repository and checksum, its held-out Dice, and the threshold."""
    if order.judge_model is not None:
        bundle = _given("--judge", order.judge_model, "segmentation", models)
        dice = dice_on(Model(bundle), parts.dataset)
        found = {**_described(bundle, models), "seen": True}
    else:
        given = {**SEGMENTER, "seed": order.seed, **order.judge}
        folds = min(FOLDS, len(parts.dataset.groups))
        bundle = _train(
            order, parts, workshop, "segmentation", "judge", given, folds, console
        )  # fmt: skip
        dice = _held_out_dice(bundle, parts, workshop, folds)
        found = {**_described(bundle, workshop.models), "seen": False}
    threshold = threshold_of(list(dice.values())) if order.threshold is None else order.threshold
    return {**found, "dice": dice, "threshold": threshold, "given": order.threshold is not None}


def threshold_of(dice: list[float]) -> float:
    """From which Dice on a synthetic image is kept, given the judge's on unseen real ones.

    Two standard deviations below their mean, a tenth of it at least; never below half of it.

    >>> threshold_of([0.8, 0.8, 0.8])
    0.72
    """
    values = torch.tensor(dice, dtype=torch.float64)
    mean, sd = float(values.mean()), float(values.std()) if len(dice) > 1 else 0.0
    below = max(_DEVIATIONS * sd, _PART_BELOW * mean)
    return round(max(mean - below, _LEAST_PART * mean), 4)


def dice_on(model: Model, dataset: Dataset) -> dict[str, float]:
    """Case -> mean Dice over the classes of what a model finds in it.

    Raises:
        InvalidInput: a case holds labels that the model does not know.
    """
    ids = list(model.bundle.card.labels)[1:]
    found = {}
    for case in dataset.cases:
        image, truth = read_matched(case, dataset, model)
        with naming(case.images[0]):
            answer = model.segment(image)
        found[case.name] = round(mean_dice(answer.array, truth.array, ids), 6)
    return found


def fresh_run(folder: RunFolder, folds: int = 0) -> bool:
    """Whether a run has to begin; what is left of one without a checkpoint is removed."""
    if folder.first(folds).checkpoint.exists():
        return False
    shutil.rmtree(folder.path, ignore_errors=True)
    return True


def _given(option: str, reference: str, task: str, models: Path | None) -> Bundle:
    bundle = ModelRepository(models).find(reference)
    if bundle.card.task != task:
        raise WrongTask(f"{option} {reference}: a model for {task} is needed ({bundle.card.task})")
    return bundle


def _train(
    order: AugmentOrder,
    parts: Parts,
    workshop: Workshop,
    task: str,
    name: str,
    given: Mapping[str, Any],
    folds: int,
    console: Console,
) -> Bundle:
    """Train, or go on, or find that it is done."""
    repository = ModelRepository(workshop.models)
    if (workshop.models / name).is_dir() and repository.versions(name):
        return repository.find(f"{name}@1")
    wish = Order(
        task=task,
        dataset=parts.dataset,
        name=name,
        given=given,
        dims="2d",
        folds=folds if folds > 1 else 0,
        models=workshop.models,
        runs=workshop.work / "runs",
        command=order.command,
    )
    if not fresh_run(wish.folder, wish.folds):
        wish = Order(**{**vars(wish), "resume": True})
    train(wish, console)
    return repository.find(f"{name}@1")


def _described(bundle: Bundle, models: Path | None) -> dict[str, Any]:
    return {
        "model": bundle.reference,
        "models": None if models is None else str(models),
        "weights_sha256": bundle.metadata.weights.sha256,
    }


def _held_out_dice(
    bundle: Bundle, parts: Parts, workshop: Workshop, folds: int
) -> dict[str, float]:
    """Group -> Dice of the network that never saw it."""
    run = RunFolder(workshop.work / "runs" / "judge")
    recipe = run.first(folds if folds > 1 else 0).read_recipe(TASKS["segmentation"].recipe)
    source = load_source(parts.dataset, run.data, recipe.preparation)
    network = bundle.load_network()
    pairs = (
        zip(network.members, source.folds(folds), strict=True)
        if isinstance(network, Ensemble)
        else [(network, source)]
    )
    found = {}
    for member, fold in pairs:
        for group in dict.fromkeys(g for g in fold.groups if g in fold.held_out):
            found[group] = _dice_of_group(member, fold, group)
    return found


def _dice_of_group(network: Any, source: Source, group: str) -> float:  # noqa: ANN401
    samples = [s for s, g in zip(source.samples, source.groups, strict=True) if g == group]
    return round(dice_scores(network, samples, source.labels)["score"], 6)
