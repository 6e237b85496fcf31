"""From data and wishes to a model in the repository: what both kinds of training share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ignite.distributed as idist
import yaml
from pydantic import BaseModel, ValidationError
from rich.console import Console
from rich.table import Table

from caps_med.bundles import Bundle, ModelRepository
from caps_med.errors import InvalidInput, InvalidParameter
from training.data import Dataset, Source, load_source
from training.data.check.check import by_code
from training.engine import distributed
from training.engine.recipe import Recipe
from training.engine.run_folder import RunFolder
from training.tasks.planning import plan, plan_synthesis
from training.tasks.publish import publish
from training.tasks.segmentation import SegmentationRecipe, train_segmentation
from training.tasks.synthesis.recipe import SynthesisRecipe
from training.tasks.synthesis.train import train_synthesis


@dataclass(frozen=True)
class Task:
    """One kind of training: its recipe, what of it follows from the data, how it learns."""

    recipe: type[Recipe]
    plan: Callable[..., Mapping[str, Any]]
    learn: Callable[..., Any]


TASKS: Mapping[str, Task] = {
    "segmentation": Task(SegmentationRecipe, plan, train_segmentation),
    "synthesis": Task(SynthesisRecipe, plan_synthesis, train_synthesis),
}


@dataclass(frozen=True)
class Order:
    """What the user asked for.

    Attributes:
        task: a key of `TASKS`.
        dataset: to learn from.
        name: of the new model.
        given: recipe values by name; nested ones as mappings.
        dims: ``2d``, ``2.5d`` or ``3d``; None follows from the data.
        folds: networks to train, each with other cases held out; 0 trains one.
        models: the repository; None is the usual one.
        runs: where checkpoints live.
        resume: go on from the last checkpoint.
        workers: processes that prepare crops.
        command: as it can be typed again.
    """

    task: str
    dataset: Dataset
    name: str
    given: Mapping[str, Any]
    dims: str | None = None
    folds: int = 0
    models: Path | None = None
    runs: Path = Path("runs")
    resume: bool = False
    workers: int = 0
    command: str = ""

    @property
    def folder(self) -> RunFolder:
        """Of the run."""
        return RunFolder(self.runs / self.name)

    @property
    def first_folder(self) -> RunFolder:
        """Of the first network."""
        return self.folder.first(self.folds)


def train(order: Order, console: Console) -> Bundle | None:
    """Check the data, derive the recipe, train, publish; the first process returns the model.

    Raises:
        InvalidInput: training on the data would be wrong; the message says what to mend.
        InvalidParameter: a wish cannot be met.
        KeyboardInterrupt: on Ctrl-C; the last epoch's checkpoint is kept.
    """
    task, repository = TASKS[order.task], ModelRepository(order.models)
    repository.check_name(order.name)
    repository.make_ready()
    if not order.resume:
        order.first_folder.refuse_started()
    _check(order.dataset, console)
    recipe = _recipe(order, task)
    folder = order.folder
    with idist.one_rank_first():
        source = load_source(order.dataset, folder.data, recipe.preparation)
    if distributed.first():
        _introduce(source, recipe, console)
    if order.folds:
        trained = _folds(order, task, source, recipe, console)
        if not distributed.first():
            return None
        bundle = publish(repository, order.name, trained, recipe, order.command)
        _write_report(order, bundle, (), console)
        return bundle
    network, _ = task.learn(source, recipe, folder, order.resume, order.workers, order.models)
    if not distributed.first():
        return None
    bundle = publish(repository, order.name, [(network, source)], recipe, order.command)
    _write_report(order, bundle, source.held_out, console)
    return bundle


def _write_report(
    order: Order, bundle: Bundle, held_out: Collection[str], console: Console
) -> None:
    """The report of a segmentation model, in its run folder."""
    if order.task != "segmentation":
        return
    from training.reports.segmentation import training_report  # it draws, which only this needs

    path = order.folder.path / "report.html"
    training_report(
        path,
        reference=bundle.reference,
        models=order.models,
        dataset=order.dataset,
        held_out=held_out,
        recipe=bundle.card.provenance.recipe,
        scores=order.first_folder.logged(),
    )
    console.print(f"report in {path}", highlight=False, soft_wrap=True)


def _folds(
    order: Order, task: Task, source: Source, recipe: Recipe, console: Console
) -> list[tuple[Any, Source]]:
    """The networks of a cross-validation, each with the data it was held out from."""
    trained = []
    for number, fold in enumerate(source.folds(order.folds), start=1):
        folder = order.folder.fold(number)
        if distributed.first():
            console.print(f"fold {number} of {order.folds}")
        resume = order.resume and folder.checkpoint.exists()
        network, _ = task.learn(fold, recipe, folder, resume, order.workers, order.models)
        trained.append((network, fold))
    return trained


def _check(dataset: Dataset, console: Console) -> None:
    """Print what is wrong with the data.

    Raises:
        InvalidInput: training on them would be wrong.
    """
    if distributed.first():
        _print_findings(dataset, console)
    if not dataset.trainable:
        raise InvalidInput(
            f"{dataset.data}: training on this would be wrong; mend what is listed above "
            f"(`caps-med data check {dataset.data}` shows it again)"
        )


def _recipe(order: Order, task: Task) -> Recipe:
    """The saved recipe of a run that goes on, or a new one that follows from the data."""
    dataset = order.dataset
    given = {"data": dataset.data, **order.given}
    if order.resume:
        return order.first_folder.saved(task.recipe, given)
    planned: Mapping[str, Any] = {}
    if dataset.card is not None:
        planned = task.plan(dataset.card, distributed.device(), order.dims)
    elif order.dims not in (None, "2d"):
        raise InvalidParameter(f"--dims {order.dims}: {dataset.name} has single slices alone")
    return build_recipe(task.recipe, [planned, given])


def build_recipe(kind: type[Recipe], layers: Sequence[Mapping[str, Any]]) -> Recipe:
    """A recipe from values of rising rank; nested values are joined.

    Raises:
        InvalidParameter: an unknown name or a value out of range.
    """
    values: dict[str, Any] = {}
    for layer in layers:
        values = _joined(values, layer)
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise InvalidParameter(
            f"recipe: {where}: {first['msg']}; known are {', '.join(kind.model_fields)}"
        ) from error


def _print_findings(dataset: Dataset, console: Console) -> None:
    for code, found in by_code(dataset.findings):
        for each in found:
            where = each.file or "the data set"
            line = f"{each.severity}: {code}: {where} {each.what}; {each.fix}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def _introduce(source: Source, recipe: Recipe, console: Console) -> None:
    kind = "slices" if source.spatial_dims == 2 else "volumes"
    console.print(
        f"{source.name}: {len(source.training)} {kind} to train on, {len(source.validation)} held "
        f"out, labels {', '.join(source.labels.values())}",
        highlight=False,
    )
    table = Table("recipe", "value", show_edge=False)
    for name, value in recipe.model_dump(mode="json").items():
        text = yaml.safe_dump(value, default_flow_style=True, width=1000)
        table.add_row(name, text.removesuffix("...\n").strip())
    console.print(table)


def _joined(values: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(values)
    for key, value in more.items():
        before = result.get(key)
        if isinstance(before, BaseModel):
            before = before.model_dump()
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        result[key] = _joined(before, value) if both else value  # type: ignore[arg-type]
    return result


def wishes(recipe_file: Path | None, settings: Sequence[str]) -> dict[str, Any]:
    """Recipe values of a YAML file and of ``name=value`` settings (``augmentation.noise=0.1``).

    Raises:
        InvalidInput: the file is missing or no mapping. InvalidParameter: a setting without ``=``.
    """
    values: dict[str, Any] = {}
    if recipe_file is not None:
        try:
            read = yaml.safe_load(recipe_file.read_text())
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise InvalidInput(f"--recipe {recipe_file}: no YAML file: {error}") from error
        if not isinstance(read, dict):
            raise InvalidInput(f"--recipe {recipe_file}: a mapping of names to values is needed")
        values = read
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise InvalidParameter(f"--set {setting}: name=value is needed")
        try:
            value: Any = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise InvalidParameter(f"--set {setting}: {text!r} is no value in YAML") from error
        for part in reversed(name.split(".")):
            value = {part: value}
        values = _joined(values, value)
    return values
