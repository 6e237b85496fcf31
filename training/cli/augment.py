"""The subcommand ``caps-med augment``; found through the group ``caps_med.commands``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from caps_med.cli.interrupts import INTERRUPTED
from caps_med.cli.options import is_given
from caps_med.errors import InvalidParameter
from caps_med.printing import Terminal, print_line
from caps_med.wording import counted, reason
from training.cli.options import (
    Data,
    Models,
    SymmetriesOption,
    Tolerance,
    check_out_folder,
    command_line,
    print_notes,
    progress_bar,
)

if TYPE_CHECKING:
    from training.augment import AugmentConfig, Result

console = Terminal()


def register(app: typer.Typer) -> None:
    """Add ``augment`` to the command line."""
    app.command("augment")(augment)


def augment(
    context: typer.Context,
    data: Data,
    out: Annotated[Path, typer.Option(help="Output folder; must be outside the data.")],
    count: Annotated[int, typer.Option(help="Number of synthetic images to keep.", min=1)],
    model: Annotated[
        str | None, typer.Option(help="Synthesis model to use; by default a new one is trained.")
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(
            help="Segmentation model that judges the images; by default a new one is trained."
        ),
    ] = None,
    models: Models = None,
    train_segmenter: Annotated[
        bool,
        typer.Option(
            "--train-segmenter",
            help="Also train a segmenter with and without the synthetic images, to measure whether "
            "they help.",
        ),
    ] = False,
    test: Annotated[
        Path | None,
        typer.Option(
            help="Labelled images to test that segmenter on; by default a fifth of the data is set "
            "aside."
        ),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Number of epochs of the generator.", min=1)
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            help="Random seed; the same seed and data give the same images on the same machine.",
            min=0,
        ),
    ] = 0,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="Lowest Dice of an image that is kept; by default derived from the judge's "
            "scores.",
            min=0,
            max=1,
        ),
    ] = None,
    tolerance: Tolerance = 0.25,
    symmetries: SymmetriesOption = "auto",
    recipe_file: Annotated[
        Path | None, typer.Option("--recipe", help="YAML file of the values that --set takes.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Set a value, such as generator.steps=100, judge.epochs=5 or "
            "segmenter.network=segcaps. May be repeated.",
        ),
    ] = None,
) -> None:
    """Make many labelled images from few: train a generator, draw label maps, synthesize, judge.

    Images in which the judge does not recover the label map are dropped. To continue an
    interrupted run, give the same command again.

    Example: caps-med augment --data DIR --out more --count 100
    """
    check_out_folder(out, data)
    if test is not None and not train_segmenter:
        raise InvalidParameter(
            "--test: only used with --train-segmenter; add that option, or leave --test out"
        )
    if test is not None:
        check_out_folder(out, test)
    if epochs is not None and model is not None:
        raise InvalidParameter(
            "--epochs: only used where a generator is trained; leave --epochs or --model out"
        )

    from pydantic import ValidationError

    from training.augment import AugmentConfig
    from training.augment import augment as augmented
    from training.engine.recipe import merged
    from training.progress import shown_by
    from training.tasks.overrides import read_overrides

    overrides = read_overrides(recipe_file, settings or ())
    options = {
        "data": str(data), "count": count, "seed": seed, "model": model, "judge_model": judge,
        "threshold": threshold, "train_segmenter": train_segmenter,
        "test": None if test is None else str(test), "tolerance": tolerance,
        "symmetries": symmetries, "command": command_line(),
    }  # fmt: skip
    names = overrides.keys() & options.keys()
    if isinstance(generator := overrides.get("generator"), dict):
        names |= {f"generator.{name}" for name in generator}
    for name in names:
        option = {"judge_model": "judge", "generator.epochs": "epochs"}.get(name, name)
        if is_given(context, option):
            raise InvalidParameter(
                f"--set {name}: --{option.replace('_', '-')} is given, too; leave one out"
            )
    if epochs is not None:
        overrides = merged({"generator": {"epochs": epochs}}, overrides)
    try:
        config = AugmentConfig.model_validate({**options, **overrides})
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidParameter(f"{where}: {reason(first)}") from error
    _refuse_unused(config)
    try:
        with shown_by(progress_bar):
            result = augmented(config, out, models, console)
    except KeyboardInterrupt:
        print_line(console, f"stopped; continue with: {config.command}")
        raise typer.Exit(INTERRUPTED) from None
    _print(result, out)


def _refuse_unused(config: AugmentConfig) -> None:
    """Refuse values of a training that there is none of.

    Raises:
        InvalidParameter: there are some.
    """
    for name, untrained, fix in (
        ("generator", config.model is not None, "or --model"),
        ("judge", config.judge_model is not None, "or --judge"),
        ("segmenter", not config.train_segmenter, "or add --train-segmenter"),
    ):
        if untrained and getattr(config, name):
            raise InvalidParameter(
                f"--set {name}...: only used where a {name} is trained; leave it out, {fix}"
            )


def _print(result: Result, out: Path) -> None:
    kept, drawn = len(result.kept), len(result.drawn)
    print_line(
        console, f"{counted(kept, 'image')} with label maps in {out}, {drawn - kept} dropped"
    )
    print_notes(console, result.notes())
    if result.benefit is not None:
        print_line(console, result.benefit.summary)
    print_line(console, f"report in {out / 'report.html'}")
