"""The subcommand ``caps-med augment``; found through the group ``caps_med.commands``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from caps_med.errors import InvalidParameter
from training.cli.options import (
    Data,
    Models,
    SymmetriesOption,
    Tolerance,
    command_line,
    print_notes,
    require_outside,
)

if TYPE_CHECKING:
    from training.augment import Result

console = Console()


def register(app: typer.Typer) -> None:
    """Add ``augment`` to the command line."""
    app.command("augment")(augment)


def augment(
    data: Data,
    out: Annotated[Path, typer.Option(help="Folder for the result; outside the data.")],
    count: Annotated[int, typer.Option(help="Synthetic images to keep.", min=1)],
    model: Annotated[
        str | None, typer.Option(help="A generator of the repository, instead of a new one.")
    ] = None,
    judge: Annotated[
        str | None, typer.Option(help="A segmentation model that judges, instead of a new one.")
    ] = None,
    models: Models = None,
    train_segmenter: Annotated[
        bool,
        typer.Option("--train-segmenter", help="Train with and without them; say if they help."),
    ] = False,
    test: Annotated[
        Path | None, typer.Option(help="Labelled images for that; else a fifth is set aside.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Of the generator.", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Same seed, data and machine: same images.")] = 0,
    threshold: Annotated[
        float | None,
        typer.Option(help="Dice from which an image is kept; else the judge's own.", min=0, max=1),
    ] = None,
    tolerance: Tolerance = 0.25,
    symmetries: SymmetriesOption = "auto",
    recipe_file: Annotated[
        Path | None, typer.Option("--recipe", help="YAML file of the values that --set takes.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="generator.steps=100, judge.epochs=5, segmenter.network=segcaps"
        ),
    ] = None,
) -> None:
    """Many labelled images from few: train a generator, draw new label maps, synthesize, judge.

    Images whose geometry did not survive are dropped. A run that was stopped or killed goes on
    with the same command.

    Example: caps-med augment --data DIR --out more --count 100
    """
    require_outside(out, data)
    if test is not None and not train_segmenter:
        raise InvalidParameter("--test: is for --train-segmenter")

    from pydantic import ValidationError

    from training.augment import AugmentOrder
    from training.augment import augment as augmented
    from training.tasks.pipeline import wishes

    wished = wishes(recipe_file, settings or ())
    if epochs is not None:
        wished["generator"] = {**wished.get("generator", {}), "epochs": epochs}
    asked = {
        "data": str(data), "count": count, "seed": seed, "model": model, "judge_model": judge,
        "threshold": threshold, "train_segmenter": train_segmenter,
        "test": None if test is None else str(test), "tolerance": tolerance,
        "symmetries": symmetries, "command": command_line(),
    }  # fmt: skip
    try:
        order = AugmentOrder.model_validate({**asked, **wished})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidParameter(f"{where}: {first['msg']}") from error
    try:
        result = augmented(order, out, models, console)
    except KeyboardInterrupt:
        console.print(f"\nStopped; this goes on:\n  {order.command}", highlight=False,
                      soft_wrap=True)  # fmt: skip
        raise typer.Exit(130) from None
    _print(result, out)


def _print(result: Result, out: Path) -> None:
    kept, drawn = len(result.kept), len(result.drawn)
    console.print(f"{kept} images with label maps in {out}, {drawn - kept} dropped",
                  highlight=False, soft_wrap=True)  # fmt: skip
    print_notes(console, result.notes())
    if result.usefulness is not None:
        console.print(result.usefulness.said, markup=False, highlight=False, soft_wrap=True)
    console.print(f"report in {out / 'report.html'}", highlight=False, soft_wrap=True)
