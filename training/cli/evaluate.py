"""The subcommand ``caps-med evaluate``; found through the group ``caps_med.commands``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from caps_med.cli.options import AsJson, ModelName, is_given, say_json, say_warnings
from caps_med.cli.tables import print_table
from caps_med.errors import InvalidParameter
from caps_med.printing import Terminal, print_line
from training.cli.options import (
    Binary,
    Data,
    IgnoreLabel,
    Instances,
    Models,
    check_out_folder,
    interpretation_of,
    print_notes,
    progress_bar,
)

if TYPE_CHECKING:
    from caps_med.inference import Model
    from training.tasks.evaluating import Part

console = Terminal()


def register(app: typer.Typer) -> None:
    """Add ``evaluate`` to the command line."""
    app.command("evaluate")(evaluate)


def evaluate(
    context: typer.Context,
    model: ModelName,
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for the report; must be outside the data.")],
    against: Annotated[
        str,
        typer.Option(
            help="Models to compare with, separated by commas. The name of a network, such as "
            "unet or pix2pix, also finds MODEL-unet or MODEL-pix2pix."
        ),
    ] = "",
    predictions: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]FOLDER",
            help="For a segmentation model: label maps that another program has predicted for the "
            "same images, to compare with, named as the label maps of the data. NAME is for the "
            "tables. May be repeated.",
        ),
    ] = None,
    tta: Annotated[
        bool,
        typer.Option(
            "--tta",
            help="For segmentation models: also score each with test-time augmentation, as NAME "
            "with TTA: averaged over mirror images, as `caps-med segment --tta` does.",
        ),
    ] = False,
    segmenter: Annotated[
        str | None,
        typer.Option(
            help="For a synthesis model: a good segmentation model, to measure whether geometry is "
            "kept."
        ),
    ] = None,
    images: Annotated[
        int, typer.Option(help="For a synthesis model: number of images per label map.", min=1)
    ] = 4,
    models: Models = None,
    seed: Annotated[
        int,
        typer.Option(
            help="Random seed of the confidence intervals and of synthetic images.", min=0
        ),
    ] = 0,
    as_json: AsJson = False,
    binary: Binary = False,
    instances: Instances = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            help="For a segmentation model: the distance within which surfaces agree, for the "
            "surface Dice, in mm, or in pixels for pictures. By default the longest side of a "
            "voxel.",
            min=0,
        ),
    ] = None,
    ignore_label: IgnoreLabel = None,
    robust: Annotated[
        bool,
        typer.Option(
            "--robust",
            help="For a classification model: also test it on images that are rotated, noisy, "
            "crowded, ... or attacked.",
        ),
    ] = False,
    robust_images: Annotated[
        int,
        typer.Option(
            help="With --robust: number of images, chosen at random, that are changed.", min=1
        ),
    ] = 200,
) -> None:
    """Score a model on labelled images, case by case, alone or in comparison with others.

    Writes cases.csv, summary.json and report.html; with --robust also robustness.json. Label maps
    with one id per object are understood as in the training of the model, unless --binary or
    --instances is given.

    Examples:
      caps-med evaluate --model my-organ --data test-scans --against unet --out report
      caps-med evaluate --model my-organ --data test-scans --predictions nnunet --out report
      caps-med evaluate --model my-axons --data phantoms --against pix2pix --out report
    """
    check_out_folder(out, data)
    folders = _folders_of(predictions or ())
    for folder in folders.values():
        check_out_folder(out, folder)

    from caps_med.bundles import ModelRepository
    from caps_med.inference import Model
    from training.data.stacks import LIMITS
    from training.evaluation.models import find_models
    from training.progress import shown_by
    from training.tasks.evaluating import Request
    from training.tasks.registry import TASKS

    others = [name.strip() for name in against.split(",") if name.strip()]
    repository = ModelRepository(models)
    baselines = {name: task.networks for name, task in TASKS.items()}
    asked = interpretation_of(binary, instances, None, "", ignore_label)
    found = find_models(repository, model, others, baselines, asked.instances)
    loaded = [Model(one, LIMITS) for one in found]
    task = TASKS[loaded[0].task]
    _check_options(context, loaded[0], task.options)
    if tta:
        loaded = _with_tta(loaded)
    known = asked.instances or loaded[0].bundle.card.instances
    request = Request(
        data=data,
        models=loaded,
        out=out,
        seed=seed,
        interpretation=replace(asked, instances=known),
        images=images,
        segmenter=None if segmenter is None else Model(repository.find(segmenter), LIMITS),
        changed=robust_images if robust else 0,
        tolerance=tolerance,
        predictions=folders,
    )
    with shown_by(progress_bar):
        parts = task.evaluate(request)
    _print_parts(parts, out, as_json)


def _folders_of(given: Sequence[str]) -> dict[str, Path]:
    """``NAME=FOLDER`` by name; a folder alone has its own name.

    Raises:
        InvalidParameter: two have one name.
    """
    found: dict[str, Path] = {}
    for text in given:
        name, separator, folder = text.partition("=")
        if not separator or Path(text).is_dir():
            name, folder = Path(text).resolve().name, text
        if not name or name in found:
            fault = f"{name} is given twice" if name else "has no name"
            raise InvalidParameter(f"--predictions {text}: {fault}; write NAME=FOLDER")
        found[name] = Path(folder)
    return found


def _check_options(context: typer.Context, model: Model, known: Sequence[str]) -> None:
    """Refuse what would be ignored.

    Raises:
        InvalidParameter: an option of another task is given, or one without that which it refines.
    """
    from training.tasks.registry import TASKS

    given = [name for name in context.params if is_given(context, name)]
    of_tasks = {name for task in TASKS.values() for name in task.options}
    for name in given:
        if name in of_tasks and name not in known:
            option = f"--{name.replace('_', '-')}"
            raise InvalidParameter(
                f"{option}: {model.bundle.reference} is a {model.task} model, which does not take "
                f"it; leave {option} out"
            )
    if "robust_images" in given and not context.params["robust"]:
        raise InvalidParameter("--robust-images: has no effect without --robust; add --robust")


def _with_tta(models: Sequence[Model]) -> list[Model]:
    """The models, each followed by itself with test-time augmentation, where it can have that.

    Raises:
        InvalidParameter: none of them can.
    """
    without = [model for model in models if model.bundle.card.tta_views == 1]
    if len(without) == len(models):
        models[0].with_tta()  # says why not
    say_warnings(
        f"{model.reference} was trained without mirror images: it is scored only without --tta"
        for model in without
    )
    return [
        one
        for model in models
        for one in ((model,) if model in without else (model, model.with_tta()))
    ]


def _print_parts(parts: Sequence[Part], out: Path, as_json: bool) -> None:
    if as_json:
        document: dict[str, Any] = {}
        for part in parts:
            found = part.summary.model_dump(mode="json")
            document |= {part.name: found} if part.name else found
        say_json(document)
        return
    for part in parts:
        for table in part.tables:
            print_table(console, table.headings, table.rows, table.title)
        print_notes(console, part.summary.notes)
    print_line(console, f"report in {out}")
