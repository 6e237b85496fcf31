"""From a data set to a model in the repository: what the training of every task shares."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import yaml
from rich.console import Console

from caps_med.bundles import Bundle, ModelCard, ModelRepository, Statement
from caps_med.cli.tables import print_table
from caps_med.errors import InvalidInput, InvalidParameter
from caps_med.printing import print_line
from caps_med.wording import counted, shell_command
from training.data import ClassifiedDataset, Dataset
from training.data.cases import files_sha256
from training.data.check.check import by_code
from training.data.classified import ClassifiedSource
from training.data.interface import TrainingData, TrainingSource
from training.engine import distributed
from training.engine.initial import model_to_start_from
from training.engine.recipe import Recipe, check_taken, merged
from training.engine.run_folder import RunFolder
from training.randomization.data import LabelMapData
from training.randomization.source import RandomSource
from training.tasks.overrides import build_recipe
from training.tasks.planning import dims_of, plane_of, taken_as
from training.tasks.publish import Trained, publish
from training.tasks.registry import TASKS, Task

#: Findings of one code that are printed before training.
_SHOWN = 10


@dataclass(frozen=True)
class TrainRequest:
    """One training.

    Attributes:
        task: a key of `TASKS`.
        dataset: the data set to train on.
        name: of the new model.
        overrides: recipe values that take precedence over those planned from the data.
        dims: ``2d``, ``2.5d`` or ``3d``; None follows from the model to start from, or the data.
        folds: folds of a cross-validation; 0 trains a single network.
        models: the model repository; None is the default one.
        first_models: that of the model to start from; None is `models`.
        runs: folder for checkpoints.
        resume: continue from the last checkpoint.
        workers: processes that prepare crops.
        command: the command line, for the model's provenance.
        statement: licence and suitable input, for the model's card.
        candidate: leave it to `ModelRepository.promote` to let the name stand for the new version.
    """

    task: str
    dataset: TrainingData
    name: str
    overrides: Mapping[str, Any]
    dims: str | None = None
    folds: int = 0
    models: Path | None = None
    first_models: Path | None = None
    runs: Path = Path("runs")
    resume: bool = False
    workers: int = 0
    command: str = ""
    statement: Statement | None = None
    candidate: bool = False

    @property
    def started_from(self) -> Path | None:
        """The repository of the model to start from."""
        return self.first_models or self.models

    @property
    def folder(self) -> RunFolder:
        """The folder of the run."""
        return RunFolder(self.runs / self.name)

    @property
    def first_folder(self) -> RunFolder:
        """The folder of the first fold, or of the run where there are no folds."""
        return self.folder.first(self.folds)


@dataclass(frozen=True)
class Prepared:
    """A training whose data are checked and prepared.

    Attributes:
        source: what is trained on.
        recipe: planned from the data and the request; of a resumed run, its own.
        statement: for the model's card.
    """

    request: TrainRequest
    source: TrainingSource
    recipe: Recipe
    statement: Statement

    @property
    def task(self) -> Task:
        """Of the request."""
        return TASKS[self.request.task]

    @property
    def repository(self) -> ModelRepository:
        """Where the model is published."""
        return ModelRepository(self.request.models)


class ReportStopped(KeyboardInterrupt):
    """Ctrl-C while the report of a model was written that is trained and published.

    Attributes:
        bundle: the model.
    """

    def __init__(self, bundle: Bundle) -> None:
        super().__init__()
        self.bundle = bundle


def train(request: TrainRequest, console: Console) -> Bundle | None:
    """Check the data, plan the recipe, train, publish.

    Returns:
        The model; None in all processes but the first.

    Raises:
        InvalidInput: the data have errors; they are printed.
        InvalidParameter: an unknown or impossible value.
        KeyboardInterrupt: on Ctrl-C; the last epoch's checkpoint is kept.
        ReportStopped: on Ctrl-C once the model is published.
    """
    prepared = prepare(request, console)
    if request.folds:
        trained = train_folds(prepared, console)
    else:
        trained = [(train_one(prepared, prepared.source, request.folder), prepared.source)]
    if not distributed.first():
        return None
    return publish_trained(prepared, trained, console)


def prepare(request: TrainRequest, console: Console, plan_again: bool = False) -> Prepared:
    """Check the data, plan the recipe, prepare the samples; print what will be trained.

    Args:
        plan_again: plan the recipe of a run that is resumed, too, as of a search, whose trials have
            recipes of their own.

    Raises:
        InvalidInput, InvalidParameter: see `train`; a run is resumed with other data.
    """
    task, repository = TASKS[request.task], ModelRepository(request.models)
    repository.check_name(request.name)
    repository.make_ready()
    if not request.resume:
        request.folder.refuse_started()
    _check(request.dataset, console)
    recipe = _recipe(replace(request, resume=request.resume and not plan_again), task)
    with idist.one_rank_first():
        source = task.load(request.dataset, request.folder.data, recipe)
    if request.resume:
        source = _as_begun(request, source)
    held_out = _held_out(source, request.folds)  # before anything is written or announced
    split = held_out, len(source.training), len(source.validation), request.folds
    if request.resume:
        request.folder.require_split(*split)
    elif distributed.first():
        request.folder.keep_split(*split)
    recipe = recipe.completed(source)
    if not request.resume and distributed.first():
        request.folder.write(recipe, request.folder.planned)
    statement = _statement(request, source.labels)
    if distributed.first():
        _print_plan(source, recipe, console)
        _print_folds(source, request.folds, console)
        if isinstance(source, RandomSource):
            _show_images(source, request.folder.path / "images.png", console)
    return Prepared(request, source, recipe, statement)


def _as_begun(request: TrainRequest, source: TrainingSource) -> TrainingSource:
    """The images with classes of a run, those held out that it began with.

    An older version may have chosen others. Where the data say what is held out, they may have
    changed.
    """
    begun, dataset = request.folder.kept_split(), request.dataset
    if begun is None or not isinstance(source, ClassifiedSource):
        return source
    divided = isinstance(dataset, ClassifiedDataset) and dataset.of("validation")
    return source if divided else source.holding_out(begun["held_out"])


def publish_trained(
    prepared: Prepared,
    trained: Trained,
    console: Console,
    scores: RunFolder | None = None,
    trials: Sequence[Mapping[str, Any]] = (),
) -> Bundle:
    """Publish what was trained, and write its report.

    Args:
        scores: the folder whose recipe the model's card has, and whose scores its report shows;
            None for the request's first.
        trials: of the search that found its recipe, one row for each.
    """
    request, task, run = prepared.request, prepared.task, scores or prepared.request.first_folder
    recipe = run.read_recipe(task.recipe)  # after a restart, or with less memory, another one
    folds = [request.folder.fold(number) for number in range(1, len(trained) + 1)]
    bundle = publish(
        prepared.repository, request.name, trained, recipe, request.command,
        prepared.statement, request.candidate, trials,
        [fold.read_recipe(task.recipe) for fold in folds] if len(trained) > 1 else (),
        _files_sha256(request.dataset),
    )  # fmt: skip
    if task.report is not None and not isinstance(request.dataset, LabelMapData):
        held_out = [source.held_out for _, source in trained]
        try:
            _report(request, task, bundle, held_out, run.logged(), console)
        except KeyboardInterrupt:
            raise ReportStopped(bundle) from None
    return bundle


def _files_sha256(dataset: TrainingData) -> str:
    """By which images with labels or classes are recognized; empty for other data."""
    if isinstance(dataset, Dataset | ClassifiedDataset):
        return files_sha256(dataset.fingerprint())
    return ""


def _statement(request: TrainRequest, labels: Mapping[int, str]) -> Statement:
    """What the user states, and the codes of labels that the data hold.

    Raises:
        InvalidParameter: a code is of an id that is no label.
    """
    stated = request.statement or Statement()
    if unknown := sorted(set(stated.codes) - set(labels)):
        listed = ", ".join(f"{i} {name}" for i, name in labels.items())
        raise InvalidParameter(f"code of label {unknown[0]}: the labels are {listed}")
    found = {i: code for i, code in request.dataset.codes.items() if i in labels}
    return stated.model_copy(update={"codes": {**found, **stated.codes}})


def _check(dataset: TrainingData, console: Console) -> None:
    """Print the findings.

    Raises:
        InvalidInput: there are errors among them.
    """
    if distributed.first():
        for _, found in by_code(dataset.findings):
            lines = [f"{one}; {one.fix}" for one in found[:_SHOWN]]
            if len(found) > _SHOWN:
                lines.append(f"and {len(found) - _SHOWN} more")
            for line in lines:
                print_line(console, line)
    if not dataset.trainable:
        first = dataset.findings[0]  # an error: they come first
        check = shell_command(["caps-med", "data", "check", str(dataset.data)])
        raise InvalidInput(
            f"{dataset.data}: the data have errors, the first: {first}; {first.fix} "
            f"(`{check}` shows all)"
        )


def _recipe(request: TrainRequest, task: Task) -> Recipe:
    """The recipe of the run to resume, or one planned from the data and the overrides."""
    dataset = request.dataset
    fields = task.recipe.model_fields
    known = {name: value for name, value in dataset.recipe_values.items() if name in fields}
    overrides = {**request.overrides, **known}  # a recipe file may be of a run on other data
    if request.resume:
        file = request.folder.planned  # which runs of older versions lack
        saved = request.first_folder.saved(task.recipe, _with_dims(request, overrides), file)
        whole = request.folds and file.exists()
        return request.folder.read_recipe(task.recipe, file) if whole else saved
    dims, values = request.dims or dims_of(overrides), dict[str, Any]()
    device = distributed.device()
    if model := request.overrides.get("start_from"):
        card = model_to_start_from(model, request.started_from).card
        if _prepared_as_asked(dataset) and dims in (None, _dims_of(card)):
            overrides = merged({"preparation": _cut_as(card)}, overrides)
        dims = dims or _dims_of(card)
        found = task.recipe.values_of(card.network)
        if overrides.get("network") in (None, found.get("network")):  # another one is refused
            values.update(found)
        values.update(task.continued.get(device.type, {}))
    planned = task.plan(dataset, device, dims, plane_of(overrides))
    recipe = build_recipe(task.recipe, [planned, values, _with_dims(request, overrides)])
    check_taken(recipe, request.overrides, planned)
    return recipe


def _with_dims(request: TrainRequest, overrides: Mapping[str, Any]) -> Mapping[str, Any]:
    """The recipe values that a request asks for, with those that follow from its `dims`.

    These take precedence over values of other `dims`, as those of a recipe file may be.

    Raises:
        InvalidParameter: there are no such `dims`.
    """
    if request.dims is None or not _prepared_as_asked(request.dataset):
        return overrides
    taken = {"preparation": taken_as(request.dims)}
    same = dims_of(overrides) == request.dims  # 2.5d, say, with two neighbours on each side
    return merged(taken, overrides) if same else merged(overrides, taken)


def _prepared_as_asked(dataset: TrainingData) -> bool:
    """Whether the data have label maps and no preparation of their own."""
    files = isinstance(dataset, Dataset) and dataset.load is None
    return files or isinstance(dataset, LabelMapData)


def _cut_as(card: ModelCard) -> dict[str, Any]:
    """What a `Preparation` says of how a model to start from cuts volumes."""
    return {"plane": card.plane, **({"neighbours": card.neighbours} if card.neighbours else {})}


def _dims_of(card: ModelCard) -> str:
    """How a model takes volumes, as `TrainRequest.dims` has it."""
    if card.network.arguments.get("spatial_dims") == 3:
        return "3d"
    return "2.5d" if card.neighbours else "2d"


def train_folds(prepared: Prepared, console: Console) -> Trained:
    """The networks of a cross-validation, each with its own held-out cases."""
    request, trained = prepared.request, []
    for number, fold in enumerate(prepared.source.folds(request.folds), start=1):
        if distributed.first():
            console.print(f"fold {number} of {request.folds}")
        trained.append((train_one(prepared, fold, request.folder.fold(number)), fold))
    return trained


def train_one(prepared: Prepared, source: TrainingSource, folder: RunFolder) -> Any:  # noqa: ANN401 - a network of the task
    """Train one network; of a resumed run, continue with the folder's own recipe."""
    request, recipe = prepared.request, prepared.recipe
    # a later fold of a resumed run may not have begun
    resume = request.resume and (not request.folds or folder.checkpoint.exists())
    if resume:  # after a restart, or with less memory, each fold has another one
        recipe = folder.read_recipe(prepared.task.recipe)
    network, _ = prepared.task.train(
        source, recipe, folder, resume, request.workers, request.started_from
    )
    return network


def _report(
    request: TrainRequest,
    task: Task,
    bundle: Bundle,
    held_out: Sequence[Collection[str]],
    logged: Sequence[Mapping[str, float]],
    console: Console,
) -> None:
    assert task.report is not None  # noqa: S101 - checked by the caller
    path = request.folder.path / "report.html"
    task.report(
        path,
        reference=bundle.reference,
        models=request.models,
        dataset=request.dataset,
        held_out=held_out,
        recipe=bundle.card.provenance.recipe,
        scores=logged,
    )
    print_line(console, f"report in {path}")


def _show_images(source: RandomSource, path: Path, console: Console) -> None:
    """A sheet of the images that training draws."""
    path.parent.mkdir(parents=True, exist_ok=True)
    source.sheet().save(path)
    print_line(console, f"some of the random images in {path}")


def _held_out(source: TrainingSource, folds: int) -> frozenset[str]:
    """What a run keeps of what it holds out, of given folds with the number of the fold.

    Raises:
        InvalidParameter: so many folds are not possible.
    """
    if not folds:
        return source.held_out
    parts = source.folds(folds)
    if len(source.given_folds) != folds:
        return source.held_out
    return frozenset(f"{k} {name}" for k, part in enumerate(parts, 1) for name in part.held_out)


def _print_folds(source: TrainingSource, folds: int, console: Console) -> None:
    """Which folds are trained, where the data give some."""
    given = len(source.given_folds) if folds else 0
    if given and folds == given:
        print_line(console, f"the {folds} folds are those that the data define")
    elif given:
        whose = f"the data define {counted(given, 'fold')}"
        if given > 1:
            whose += f", which --folds {given} would use"
        print_line(console, f"the cases are divided again into {folds} folds: {whose}")


def _print_plan(source: TrainingSource, recipe: Recipe, console: Console) -> None:
    console.print(f"{source.name}: {source.summary}", markup=False, highlight=False)
    rows = []
    for name, value in recipe.model_dump(mode="json").items():
        text = yaml.safe_dump(value, default_flow_style=True, width=1000, allow_unicode=True)
        rows.append((name, text.removesuffix("...\n").strip()))
    print_table(console, ("recipe", "value"), rows)
