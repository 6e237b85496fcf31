"""The subcommand ``caps-med train``; found through the entry-point group ``caps_med.commands``."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

if TYPE_CHECKING:
    from training.run import Recipe

train = typer.Typer(
    no_args_is_help=True,
    help="Train a model from labelled images and put it into the model repository.",
)
console = Console()

Data = Annotated[
    str,
    typer.Option(help="mni152, or a folder with images/ and labels/ of equally named files."),
]
Name = Annotated[str, typer.Option(help="Name of the new model: a-z, 0-9 and hyphens.")]
Models = Annotated[Path | None, typer.Option(help="Model repository.", envvar="CAPS_MED_MODELS")]
Runs = Annotated[Path, typer.Option(help="Where checkpoints live until the model is done.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint.")]
Epochs = Annotated[int | None, typer.Option(help="Epochs.", min=1)]
Steps = Annotated[int | None, typer.Option(help="Optimizer steps an epoch.", min=1)]
Batch = Annotated[int | None, typer.Option(help="Crops a step.", min=1)]
Crop = Annotated[int | None, typer.Option(help="Edge of a crop, a multiple of 8.", min=64)]
Rate = Annotated[float | None, typer.Option(help="Peak learning rate.", min=1e-7)]
StartFrom = Annotated[str | None, typer.Option(help="Go on from a model's weights.")]
Atoms = Annotated[int | None, typer.Option(help="Atoms of the first capsules (16).", min=1)]
Seed = Annotated[int, typer.Option(help="Same seed, data and machine: same weights.", min=0)]
Workers = Annotated[int, typer.Option(help="Processes that prepare crops.", min=0)]


def register(app: typer.Typer) -> None:
    """Add ``train`` to the command line."""
    app.add_typer(train, name="train")


@train.command("segmentation")
def segmentation(
    data: Data,
    name: Name,
    models: Models = None,
    runs: Runs = Path("runs"),
    resume: Resume = False,
    epochs: Epochs = None,
    steps: Steps = None,
    batch_size: Batch = None,
    crop: Crop = None,
    learning_rate: Rate = None,
    atoms: Atoms = None,
    start_from: StartFrom = None,
    plain: Annotated[
        float | None,
        typer.Option(help="Share of crops that are only cut and flipped.", min=0, max=1),
    ] = None,
    variant: Annotated[str | None, typer.Option(help="r3 (as published) or r1 (faster).")] = None,
    individuals: Annotated[
        float | None,
        typer.Option(help="mni152: share of crops drawn as other individuals.", min=0, max=1),
    ] = None,
    seed: Seed = 0,
    workers: Workers = 0,
) -> None:
    """Train a SegCaps to segment.

    Example: caps-med train segmentation --data mni152 --name my-tissue
    """
    from training.publish import publish_segmentation
    from training.segmentation import SegmentationRecipe, train_segmentation

    chosen = {"epochs": epochs, "steps": steps, "batch_size": batch_size, "crop": crop,
              "learning_rate": learning_rate, "atoms": atoms,
              "start_from": start_from, "variant": variant, "individuals": individuals,
              "plain": plain}  # fmt: skip
    recipe = SegmentationRecipe(data=data, seed=seed, **_given(chosen))
    _run(recipe, name, models, runs, resume, workers, train_segmentation, publish_segmentation)


@train.command("synthesis")
def synthesis(
    data: Data,
    name: Name,
    models: Models = None,
    runs: Runs = Path("runs"),
    resume: Resume = False,
    epochs: Epochs = None,
    steps: Steps = None,
    batch_size: Batch = None,
    crop: Crop = None,
    learning_rate: Rate = None,
    atoms: Atoms = None,
    start_from: StartFrom = None,
    noise_source: Annotated[
        str | None,
        typer.Option(help="input, broadcast, broadcast_conv, broadcast_latent or dropout."),
    ] = None,
    noise_size: Annotated[int | None, typer.Option(help="Length of z.", min=2)] = None,
    adversarial_weight: Annotated[
        float | None, typer.Option(help="Weight of the adversarial loss beside L1.", min=0)
    ] = None,
    seed: Seed = 0,
    workers: Workers = 0,
) -> None:
    """Train a CapsPix2Pix to synthesize images from label maps.

    Example: caps-med train synthesis --data mni152 --name my-t1
    """
    from training.publish import publish_synthesis
    from training.synthesis import SynthesisRecipe, train_synthesis

    chosen = {"epochs": epochs, "steps": steps, "batch_size": batch_size, "crop": crop,
              "learning_rate": learning_rate, "atoms": atoms, "start_from": start_from,
              "noise_source": noise_source, "noise_size": noise_size,
              "adversarial_weight": adversarial_weight}  # fmt: skip
    recipe = SynthesisRecipe(data=data, seed=seed, **_given(chosen))
    _run(recipe, name, models, runs, resume, workers, train_synthesis, publish_synthesis)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if value is not None}


def _run(
    recipe: Recipe,
    name: str,
    models: Path | None,
    runs: Path,
    resume: bool,
    workers: int,
    learn: Any,  # noqa: ANN401 - train_segmentation or train_synthesis, with its own recipe
    publish: Any,  # noqa: ANN401
) -> None:
    """Load the data, train, publish; on Ctrl-C say how to go on."""
    from caps_med.bundles import ModelRepository
    from training.datasets import load_source
    from training.run import RunFolder

    repository = ModelRepository(models)
    repository.check_name(name)
    source = load_source(recipe.data)
    console.print(
        f"{source.name}: {len(source.training)} slices to train on, {len(source.validation)} held "
        f"out, labels {', '.join(source.labels.values())}"
    )
    folder = RunFolder(runs / name)
    command = _command()
    try:
        network, best = learn(source, recipe, folder, resume, workers, models)
    except KeyboardInterrupt:
        kept = folder.checkpoint.exists()
        console.print(
            f"\nStopped. The last whole epoch is kept; go on with:\n  {command} --resume"
            if kept
            else "\nStopped before the first epoch was done: nothing is kept.",
            soft_wrap=True,
        )
        raise typer.Exit(130) from None
    bundle = publish(repository, name, network, source, recipe, best, command)
    console.print(f"{name}@{bundle.version}: best score {best.score:.4f} (epoch {best.epoch})")
    console.print(f"in {bundle.path}")


def _command() -> str:
    """The command as it can be typed again."""
    return shlex.join(["caps-med", *(a for a in sys.argv[1:] if a != "--resume")])
