"""The generator and the judge: models of the repository, or trained on the data.

The judge, a segmenter, is cross-validated, so that each real image gets a Dice from a network that
has not seen it.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from caps_med.bundles import Bundle, ModelRepository
from caps_med.errors import InvalidInput, WrongTask
from caps_med.images import MedicalImage
from caps_med.inference import Model
from caps_med.networks import SegmentationNetwork
from caps_med.networks.ensemble import Ensemble
from caps_med.wording import as_text
from training.augment.config import GENERATOR, SEGMENTER, AugmentConfig, AugmentFolder
from training.augment.generate import check_channels
from training.augment.split import Parts
from training.data import Dataset, Source, load_source
from training.data.cases import Case
from training.engine import distributed
from training.engine.initial import initial_network, model_to_start_from
from training.engine.recipe import Recipe
from training.engine.run_folder import RunFolder
from training.evaluation.dice import mean_dice
from training.evaluation.evaluator import matched_label, naming
from training.evaluation.validation import dice_scores
from training.progress import EVALUATING, tracked
from training.tasks.overrides import build_recipe
from training.tasks.pipeline import TrainRequest, train
from training.tasks.planning import plan_for, plane_of
from training.tasks.segmentation import SegmentationRecipe
from training.tasks.synthesis.recipe import SynthesisRecipe

#: Folds of the judge's cross-validation, or as many as there are groups with labels.
FOLDS = 4
#: The threshold lies this many standard deviations below the judge's mean held-out Dice, or this
#: share of the mean below it, whichever is lower, but never below the last share of the mean.
_DEVIATIONS, _SHARE_BELOW, _LOWEST_SHARE = 2.0, 0.1, 0.5
#: With a lower mean Dice on unseen real images a judge is not reliable.
POOR = 0.5


@dataclass(frozen=True)
class AugmentRun:
    """What the stages of one run share.

    Attributes:
        models: the repository of the given models; None is the default one.
    """

    config: AugmentConfig
    folder: AugmentFolder
    parts: Parts
    models: Path | None
    console: Console


def check_given(run: AugmentRun) -> None:
    """Check that the given models are of the right task and know the labels of the data, and that
    those to start from are there and have the networks that will be trained.

    Raises:
        WrongTask: a generator and a segmenter are needed.
        InvalidInput: one does not know a label, or is for other images.
        ModelNotFound: there is no such model to start from.
        InvalidParameter: it is an ensemble, or another network.
    """
    config = run.config
    for part, overrides, task in (
        ("generator", config.generator, "synthesis"),
        ("judge", config.judge, "segmentation"),
        ("segmenter", config.segmenter, "segmentation"),
    ):
        if model := overrides.get("start_from"):
            _given(run, f"--set {part}.start_from:", model, task)
            model_to_start_from(model, run.models)
            if task == "segmentation":  # that of the generator is trained first
                recipe = segmenter_recipe(run, overrides)
                initial_network(recipe, segmenter_data(run, part, recipe), run.models)
    for option, reference, task in (
        ("--model", config.model, "synthesis"),
        ("--judge", config.judge_model, "segmentation"),
    ):
        if reference is None:
            continue
        bundle = _given(run, option, reference, task)
        for case, label in run.parts.originals.maps:
            try:
                matched_label(case, label, bundle.card)
            except InvalidInput as error:
                raise InvalidInput(f"{error}, or leave out {option} to train one") from error
        if task == "synthesis":
            check_channels(run.parts, Model(bundle))
        else:
            first = run.parts.dataset.cases[0]
            _answer(Model(bundle), first, run.parts.dataset.read(first)[0])


def recipes_of(config: AugmentConfig) -> tuple[Recipe, Recipe, Recipe]:
    """Of generator, judge and segmenters, as far as they do not follow from the data.

    Raises:
        InvalidParameter: an unknown or impossible value.
    """
    usual = {"data": as_text(config.data), "seed": config.seed}
    return (
        build_recipe(SynthesisRecipe, [usual, {**GENERATOR, **config.generator}]),
        build_recipe(SegmentationRecipe, [usual, {**SEGMENTER, **config.judge}]),
        build_recipe(SegmentationRecipe, [usual, {**SEGMENTER, **config.segmenter}]),
    )


def train_generator(run: AugmentRun) -> Mapping[str, Any]:
    """The generator's reference, repository and checksum."""
    config = run.config
    overrides = {**GENERATOR, "seed": config.seed, **config.generator}
    bundle = (
        _train(run, "synthesis", "generator", overrides)
        if config.model is None
        else _given(run, "--model", config.model, "synthesis")
    )
    return _described(run, bundle, given=config.model is not None)


def train_judge(run: AugmentRun) -> Mapping[str, Any]:
    """The judge's reference, repository and checksum, its Dice on real images, the threshold."""
    config, dataset = run.config, run.parts.dataset
    if config.judge_model is None:
        folds = min(FOLDS, len({one.case.grouped for one in run.parts.originals.maps}))
        folds = folds if folds > 1 else 0
        overrides = {"seed": config.seed, **segmenter_values(run, config.judge)}
        bundle = _train(run, "segmentation", "judge", overrides, folds)
        dice = _held_out_dice(run, bundle, folds)
    else:
        bundle = _given(run, "--judge", config.judge_model, "segmentation")
        dice = dice_on(Model(bundle), dataset)
    given = config.judge_model is not None
    return {
        **_described(run, bundle, given=given),
        "seen": given,
        "dice": dice,
        "threshold": threshold_of(list(dice.values()))
        if config.threshold is None
        else config.threshold,
        "given": config.threshold is not None,
    }


def segmenter_values(run: AugmentRun, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What is asked for, else `SEGMENTER`; of a model to start from, its network."""
    if not (model := asked.get("start_from")):
        return {**SEGMENTER, **asked}
    usual = {k: v for k, v in SEGMENTER.items() if k not in ("network", "features")}
    network = model_to_start_from(model, run.models).card.network
    return {**usual, **SegmentationRecipe.values_of(network), **asked}


def segmenter_recipe(run: AugmentRun, asked: Mapping[str, Any]) -> SegmentationRecipe:
    """Of a segmenter of the run's images, with these values."""
    config, dataset = run.config, run.parts.dataset
    planned = plan_for(dataset, distributed.device(), "2d", plane_of(asked))
    overrides = {"data": dataset.data, "seed": config.seed, **segmenter_values(run, asked)}
    recipe = build_recipe(SegmentationRecipe, [planned, overrides])
    assert isinstance(recipe, SegmentationRecipe)  # noqa: S101 - of this task
    return recipe


def segmenter_data(run: AugmentRun, part: str, recipe: SegmentationRecipe) -> Source:
    """The run's images, prepared as the recipe says."""
    store = run.folder.runs / f"{part}-data" / "real"
    return load_source(run.parts.dataset, store, recipe.preparation)


def threshold_of(dice: list[float]) -> float:
    """The lowest Dice with which a synthetic image is kept.

    Two standard deviations, or at least a tenth of the mean, below the mean; at least half of the
    mean.

    Args:
        dice: the judge's, on real images it has not seen.

    >>> threshold_of([0.8, 0.8, 0.8])
    0.72
    """
    values = torch.tensor(dice, dtype=torch.float64)
    mean, sd = float(values.mean()), float(values.std()) if len(dice) > 1 else 0.0
    below = max(_DEVIATIONS * sd, _SHARE_BELOW * mean)
    return round(max(mean - below, _LOWEST_SHARE * mean), 4)


def dice_on(model: Model, dataset: Dataset) -> dict[str, float]:
    """Case -> mean Dice over the classes of the model's segmentation.

    A volume of a single slice is taken as a picture, as the synthetic images of it are.

    Raises:
        InvalidInput: a case holds labels that the model does not know.
    """
    card = model.bundle.card
    ids = list(card.labels)[1:]
    dice = {}
    for case in tracked(dataset.cases, EVALUATING):
        image, label, _ = dataset.read_with_ids(case, known=card.labels)
        truth = matched_label(case, label, card)
        answer = _answer(model, case, image)
        dice[case.name] = round(mean_dice(answer.array, truth.array, ids), 6)
    return dice


def _answer(model: Model, case: Case, image: MedicalImage) -> MedicalImage:
    """The model's segmentation of the image of a case, which an error names."""
    with naming(case.images[0]):
        return model.segment(image)


def started(folder: RunFolder, folds: int = 0) -> bool:
    """Whether there is a checkpoint to continue from; without one, remains are deleted."""
    if folder.first(folds).checkpoint.exists():
        return True
    shutil.rmtree(folder.path, ignore_errors=True)
    return False


def _given(run: AugmentRun, option: str, reference: str, task: str) -> Bundle:
    bundle = ModelRepository(run.models).find(reference)
    if bundle.card.task != task:
        raise WrongTask(f"{option} {reference}: a model for {task} is needed ({bundle.card.task})")
    return bundle


def _train(
    run: AugmentRun, task: str, name: str, overrides: Mapping[str, Any], folds: int = 0
) -> Bundle:
    """The trained model; an interrupted training continues, a finished one is not repeated."""
    models = run.folder.models
    repository = ModelRepository(models)
    if (models / name).is_dir() and repository.versions(name):
        return repository.find(f"{name}@1")
    request = TrainRequest(
        task=task,
        dataset=run.parts.dataset,
        name=name,
        overrides=overrides,
        dims="2d",
        folds=folds,
        models=models,
        first_models=ModelRepository(run.models).root,
        runs=run.folder.runs,
        command=run.config.command,
    )
    train(replace(request, resume=started(request.folder, folds)), run.console)
    return repository.find(f"{name}@1")


def _described(run: AugmentRun, bundle: Bundle, *, given: bool) -> dict[str, Any]:
    models = run.models if given else run.folder.models
    return {
        "model": bundle.reference,
        "models": None if models is None else str(models),
        "weights_sha256": bundle.metadata.weights.sha256,
    }


def _held_out_dice(run: AugmentRun, bundle: Bundle, folds: int) -> dict[str, float]:
    """Group -> Dice of the network that has not seen it.

    A group without labels has none; where there is no other, as in the right fifth of a picture, it
    has 0: nothing was found.
    """
    folder = RunFolder(run.folder.runs / "judge")
    recipe = folder.first(folds).read_recipe(SegmentationRecipe)
    source = load_source(run.parts.dataset, folder.data, recipe.preparation)
    network = bundle.load_network()
    pairs = (
        zip(network.members, source.folds(folds), strict=True)
        if isinstance(network, Ensemble)
        else [(network, source)]
    )
    dice, without = dict[str, float](), dict[str, float]()
    for member, fold in pairs:
        assert isinstance(member, SegmentationNetwork)  # noqa: S101 - of the judge's recipe
        for group in dict.fromkeys(g for g in fold.groups if g in fold.held_out):
            samples = [s for s, g in zip(fold.samples, fold.groups, strict=True) if g == group]
            if any(sample["label"].any() for sample in samples):
                dice[group] = round(dice_scores(member, samples, fold.labels)["score"], 6)
            else:
                without[group] = 0.0
    return dice or without
