"""The subcommand ``caps-med train``; found through the entry-point group ``caps_med.commands``."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping, Sized
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from caps_med.cli.interrupts import INTERRUPTED
from caps_med.cli.options import InputDescription, License
from caps_med.errors import InvalidParameter
from caps_med.printing import Terminal, print_line
from training.cli.options import (
    Binary,
    Channels,
    Code,
    IgnoreLabel,
    Instances,
    Labels,
    command_line,
    interpretation_of,
    progress_bar,
)

if TYPE_CHECKING:
    from caps_med.bundles import Bundle
    from training.data.interface import TrainingData
    from training.engine.run_folder import RunFolder
    from training.progress import Show
    from training.tasks.pipeline import TrainRequest

train = typer.Typer(
    no_args_is_help=True,
    help="Train a model on labelled images and add it to the model repository.",
)
console = Terminal()

Data = Annotated[
    str,
    typer.Option(
        help="Folder or list of labelled images (check it with `caps-med data check`), or mni152."
    ),
]
Name = Annotated[str, typer.Option(help="Name of the new model: a-z, 0-9 and hyphens.")]
Models = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the model repository, to which the model is added.",
        envvar="CAPS_MED_MODELS",
    ),
]
Runs = Annotated[Path, typer.Option(help="Folder for checkpoints.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue from the last checkpoint.")]
RecipeFile = Annotated[
    Path | None,
    typer.Option(
        "--recipe", help="YAML file of recipe values, named as in the recipe.json of a run."
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", help="Set any recipe value, such as augmentation.noise=0.1. May be repeated."
    ),
]
Epochs = Annotated[int | None, typer.Option(help="Number of epochs.", min=1)]
Steps = Annotated[int | None, typer.Option(help="Optimizer steps per epoch.", min=1)]
Batch = Annotated[int | None, typer.Option(help="Crops per optimizer step.", min=1)]


def _rate(text: str) -> float | str:
    """A learning rate, or ``auto``."""
    try:
        rate = float(text)
    except ValueError:
        rate = math.nan
    if text == "auto":
        return text
    if not 1e-7 <= rate < math.inf:
        raise typer.BadParameter(f"{text!r}: must be auto or a number of at least 1e-7")
    return rate


Rate = Annotated[
    float | None,
    typer.Option(
        help="Peak learning rate; auto searches for one before training.",
        parser=_rate,
        metavar="RATE|auto",
    ),
]
StartFrom = Annotated[str | None, typer.Option(help="Model whose weights initialize the network.")]
Atoms = Annotated[int | None, typer.Option(help="Number of atoms of the first capsules.", min=1)]
Patience = Annotated[
    int | None,
    typer.Option(
        help="Stop early after this many epochs without a better score; 0 never stops early.", min=0
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        help="Random seed; the same seed and data give the same weights on the same machine.", min=0
    ),
]
Candidate = Annotated[
    bool,
    typer.Option(
        "--candidate",
        help="Add the model as a candidate: its name keeps referring to the current version until "
        "you run `caps-med models promote`.",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        help="Train folds or trials in parallel on a Ray cluster: HOST:PORT of its head, auto, or "
        "local for this machine only."
    ),
]
#: Options that are not recipe values.
_NOT_RECIPE = ("tune", "cluster",
               "name", "models", "runs", "resume", "recipe_file", "settings", "workers", "dims",
               "folds", "data", "input_description", "license", "candidate", "binary", "instances",
               "labels", "channels", "randomize", "code", "ignore_label")  # fmt: skip
#: Of the options that a command may lack.
_DEFAULTS: Mapping[str, Any] = {
    "models": None, "runs": Path("runs"), "resume": False, "recipe_file": None, "settings": None,
    "workers": 0, "input_description": None, "license": None, "candidate": False,
}  # fmt: skip


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
    network: Annotated[
        str | None,
        typer.Option(
            help="convcaps (default), ucaps, onlycaps, segcaps or segcaps-normalized; for "
            "comparison, without capsules: unet, convcaps-plain, ucaps-plain, onlycaps-plain "
            "or segcaps-plain."
        ),
    ] = None,
    dims: Annotated[
        str | None, typer.Option(help="2d, 2.5d (slices with their neighbours) or 3d.")
    ] = None,
    folds: Annotated[
        int,
        typer.Option(
            help="Cross-validate with this many folds, and publish their networks as one model. "
            "If the data define as many (fold in a list, nnU-Net's splits_final.json), these are "
            "used.",
            min=0,
        ),
    ] = 0,
    tune: Annotated[
        int,
        typer.Option(
            help="Train this many trials with other networks, learning rates, losses and crops, "
            "and publish the best.",
            min=0,
        ),
    ] = 0,
    cluster: Cluster = None,
    recipe_file: RecipeFile = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Set any recipe value, such as augmentation.noise=0.1, or reconstruct_first=0.2 "
            "to spend the first fifth of the steps on reconstructing images, without labels. "
            "May be repeated.",
        ),
    ] = None,
    epochs: Epochs = None,
    steps: Steps = None,
    batch_size: Batch = None,
    crop: Annotated[
        int | None,
        typer.Option(help="Edge length of a crop: a multiple of 8, or of 16 for unet.", min=32),
    ] = None,
    learning_rate: Rate = None,
    patience: Patience = None,
    loss: Annotated[
        str | None,
        typer.Option(
            help="Loss function: dice_ce, dice, dice_focal, bce, weighted_bce, margin or "
            "weighted_margin."
        ),
    ] = None,
    atoms: Atoms = None,
    variant: Annotated[
        str | None, typer.Option(help="Variant of SegCaps: r3 (as published) or r1 (faster).")
    ] = None,
    start_from: StartFrom = None,
    foreground: Annotated[
        float | None,
        typer.Option(help="Share of crops that are centred on a labelled pixel.", min=0, max=1),
    ] = None,
    plain: Annotated[
        float | None,
        typer.Option(help="Share of crops that are only cropped and flipped.", min=0, max=1),
    ] = None,
    individuals: Annotated[
        float | None,
        typer.Option(
            help="For mni152: share of crops that show other individuals, sampled from its tissue "
            "probabilities.",
            min=0,
            max=1,
        ),
    ] = None,
    seed: Seed = None,
    workers: Annotated[
        int,
        typer.Option(
            help="Number of processes that prepare crops; with --randomize there are none.", min=0
        ),
    ] = 0,
    binary: Binary = False,
    instances: Instances = None,
    labels: Annotated[
        list[str] | None,
        typer.Option(
            help="Names of the labels, such as 1=nucleus,2=membrane. May be repeated. With "
            "--randomize, also the meaning of the ids: a YAML file, or freesurfer-tissue."
        ),
    ] = None,
    code: Code = None,
    channels: Channels = "",
    ignore_label: IgnoreLabel = None,
    randomize: Annotated[
        bool,
        typer.Option(
            "--randomize",
            help="Train on label maps alone: images of random contrast are generated from them.",
        ),
    ] = False,
    input_description: InputDescription = None,
    license: License = None,
    candidate: Candidate = False,
) -> None:
    """Train a segmentation network; values that are not given follow from the data and machine.

    Examples:
      caps-med train segmentation --data my-scans --name my-organ
      caps-med train segmentation --data mni152 --name my-tissue
      caps-med train segmentation --data label-maps --randomize --name any-contrast
      caps-med train segmentation --data my-scans --name my-organ --tune 16
      torchrun --nproc-per-node 2 --no-python caps-med train segmentation --data ... --name ...
    """
    train_task("segmentation", locals())


@train.command("synthesis")
def synthesis(
    data: Data,
    name: Name,
    models: Models = None,
    runs: Runs = Path("runs"),
    resume: Resume = False,
    dims: Annotated[
        str | None, typer.Option(help="2d (slice by slice) or 3d (for small volumes).")
    ] = None,
    recipe_file: RecipeFile = None,
    settings: Settings = None,
    epochs: Epochs = None,
    steps: Steps = None,
    batch_size: Batch = None,
    crop: Annotated[
        int | None,
        typer.Option(
            help="Edge length of a crop: a multiple of 8, at least 64 for the discriminators "
            "convolutional and capsule. With --noise-source input, that of the images.",
            min=32,
        ),
    ] = None,
    learning_rate: Rate = None,
    patience: Patience = None,
    atoms: Atoms = None,
    start_from: StartFrom = None,
    network: Annotated[
        str | None,
        typer.Option(
            help="capspix2pix (default); for comparison, without capsules: pix2pix, spade or "
            "capspix2pix-plain."
        ),
    ] = None,
    noise_source: Annotated[
        str | None,
        typer.Option(
            help="Noise: field, input, broadcast, broadcast_conv, broadcast_latent or dropout."
        ),
    ] = None,
    noise_size: Annotated[
        int | None, typer.Option(help="Length of the noise vector z.", min=2)
    ] = None,
    adversarial_weight: Annotated[
        float | None,
        typer.Option(help="Weight of the adversarial loss, which is added to the L1 loss.", min=0),
    ] = None,
    discriminator: Annotated[
        str | None, typer.Option(help="Discriminator: convolutional, patch, capsule or capsnet.")
    ] = None,
    adversarial_loss: Annotated[
        str | None, typer.Option(help="Adversarial loss: bce, lsgan or hinge.")
    ] = None,
    seed: Seed = None,
    workers: Annotated[
        int, typer.Option(help="Number of processes that prepare crops.", min=0)
    ] = 0,
    binary: Binary = False,
    instances: Instances = None,
    labels: Labels = None,
    code: Code = None,
    channels: Channels = "",
    input_description: InputDescription = None,
    license: License = None,
    candidate: Candidate = False,
) -> None:
    """Train a CapsPix2Pix to synthesize images from label maps.

    Example: caps-med train synthesis --data mni152 --name my-t1
    """
    train_task("synthesis", locals())


@train.command("classification")
def classification(
    data: Annotated[
        str,
        typer.Option(
            help="Images with classes: a folder per class, a list with classes, IDX files or a "
            "MedMNIST .npz file."
        ),
    ],
    name: Name,
    models: Models = None,
    runs: Runs = Path("runs"),
    resume: Resume = False,
    network: Annotated[
        str | None,
        typer.Option(
            help="efficient, capsnet or matrix; for comparison, without capsules: cnn or resnet."
        ),
    ] = None,
    folds: Annotated[
        int,
        typer.Option(
            help="Cross-validate with this many folds, and publish their networks as one model. "
            "If a list of the data defines as many (fold), these are used.",
            min=0,
        ),
    ] = 0,
    cluster: Cluster = None,
    recipe_file: RecipeFile = None,
    settings: Settings = None,
    epochs: Epochs = None,
    steps: Annotated[
        int | None,
        typer.Option(help="Optimizer steps per epoch; 0 goes through the images once.", min=0),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Images per optimizer step.", min=1)
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(help="Edge length, in pixels, to which images are scaled.", min=8, max=1024),
    ] = None,
    learning_rate: Rate = None,
    patience: Patience = None,
    loss: Annotated[
        str | None, typer.Option(help="Loss function: margin, spread or cross_entropy.")
    ] = None,
    iterations: Annotated[
        int | None,
        typer.Option(help="Number of routing iterations of capsnet and matrix.", min=1, max=10),
    ] = None,
    validation: Annotated[
        float | None,
        typer.Option(help="Share of the images that is held out for validation.", min=0, max=1),
    ] = None,
    start_from: StartFrom = None,
    seed: Seed = None,
    workers: Annotated[
        int,
        typer.Option(
            help="Number of processes that read images; if all fit on the GPU, there are none.",
            min=0,
        ),
    ] = 0,
    input_description: InputDescription = None,
    license: License = None,
    candidate: Candidate = False,
) -> None:
    """Train a classification network; values that are not given follow from the data.

    A test part of the data is never used.

    Examples:
      caps-med train classification --data /usr/share/datasets/fashion-mnist --name fashion
      caps-med train classification --data lesions.csv --name lesions --network capsnet
    """
    train_task("classification", locals())


def _requested(task: str, options: Mapping[str, Any]) -> TrainRequest:
    """The training that the options of a command describe, its data opened.

    Args:
        options: see `train_task`; every option of `_DEFAULTS` is among them.

    Raises:
        CapsMedError: options exclude each other, or the data cannot be opened.
    """
    from caps_med.bundles.metadata import checked_statement
    from training.engine.recipe import merged
    from training.tasks.opening import Understanding, open_data
    from training.tasks.overrides import read_overrides
    from training.tasks.pipeline import TrainRequest

    flags = {k: v for k, v in options.items() if k not in _NOT_RECIPE and v is not None}
    if (edge := flags.pop("image_size", None)) is not None:
        flags["preparation"] = {"size": [edge, edge]}
    overrides = merged(read_overrides(options["recipe_file"], options["settings"] or ()), flags)
    understood = Understanding()
    if options.get("randomize"):
        _refuse_image_options(options)
        understood = Understanding(label_maps=options["labels"] or ())
    elif "instances" in options:
        instances = options["instances"] or overrides.pop("instances", None)
        ignored = options.get("ignore_label")
        if ignored is None and "ignore_label" in options:  # generators learn every id
            ignored = overrides.pop("ignored", None)
        understood = Understanding(
            interpretation_of(
                options["binary"], instances, options["labels"], options["channels"], ignored
            )
        )
    _refuse_without_effect(options)
    dataset = open_data(task, options["data"], understood)
    if options.get("validation") is not None:
        _refuse_share_of(dataset)
    first = not (options["resume"] and not options.get("tune", 0))
    return TrainRequest(
        task=task,
        dataset=dataset,
        name=options["name"],
        overrides={"seed": 0, **overrides} if first else overrides,
        dims=options.get("dims"),
        folds=options.get("folds", 0),
        models=options["models"],
        runs=options["runs"],
        resume=options["resume"],
        workers=options["workers"],
        command=command_line(without="--resume"),
        statement=checked_statement(
            options["license"], options["input_description"], options.get("code") or ()
        ),
        candidate=options["candidate"],
    )


def train_task(task: str, options: Mapping[str, Any]) -> None:
    """Train with the options of a command; on Ctrl-C print how to resume.

    Args:
        options: ``data`` and ``name``, and any others of the commands here; those with other names
            are recipe values.

    Raises:
        CapsMedError: see `training.tasks.pipeline.train`.
    """
    from caps_med.bundles import ModelRepository
    from training.engine import distributed
    from training.progress import shown_by
    from training.tasks.pipeline import ReportStopped, train

    options = {**_DEFAULTS, **options}
    request = _requested(task, options)
    trials, cluster = options.get("tune", 0), options.get("cluster")
    if distributed.restarted() and request.first_folder.checkpoint.exists():
        request = replace(request, resume=True)
    ModelRepository.check_name(request.name)  # of which the folder has its name
    try:
        bundle: Bundle | None
        # of several processes the first claims it; Ray Train sees to it that its own are alone
        first = distributed.first()
        alone = first and not distributed.grouped()
        with (
            request.folder.claimed() if alone else nullcontext(),
            shown_by(_shown_in(request.folder)) if first else nullcontext(),
        ):
            if trials or cluster is not None:
                bundle = _train_side_by_side(request, trials, cluster)
            else:
                bundle = distributed.in_parallel(lambda: train(request, console))
    except ReportStopped as stopped:
        published = f"{stopped.bundle.reference} is trained, in {stopped.bundle.path}"
        how = f"stopped before the report was written; to write it: {request.command} --resume"
        print_line(console, f"{published}\n{how}")
        raise typer.Exit(INTERRUPTED) from None
    except KeyboardInterrupt:
        if distributed.first():
            _print_how_to_resume(request.folder.path, request.command)
        raise typer.Exit(INTERRUPTED) from None
    if bundle is not None:
        shown = ", ".join(f"{k} {v:g}" for k, v in bundle.card.shown_scores)
        print_line(console, f"{bundle.reference}: {shown}")
        print_line(console, f"in {bundle.path}")


def _shown_in(folder: RunFolder) -> Show:
    """Shows passes over the data on a terminal, and to programs in the folder of the run."""
    from training.engine.progress import noted

    def show(items: Iterable[Any], what: str, total: int | None) -> Generator[Any, None, None]:
        count = len(items) if isinstance(items, Sized) else total
        return progress_bar(noted(folder, items, what, count), what, count)

    return show


def _train_side_by_side(request: TrainRequest, trials: int, cluster: str | None) -> Bundle:
    """Train the trials of a search, or the folds of a cross-validation, on a cluster.

    Raises:
        InvalidParameter: options that exclude each other.
        MissingExtra: Ray is not installed.
    """
    from caps_med.extras import require_extra
    from training.engine import distributed

    if distributed.launched():
        raise InvalidParameter(
            "--tune and --cluster start their processes themselves: leave out torchrun"
        )
    if trials and request.folds:
        raise InvalidParameter(
            "--tune and --folds exclude each other: tune first, then cross-validate with "
            "--recipe runs/NAME/trial-NN/recipe.json"
        )
    if not trials and not request.folds:
        raise InvalidParameter(
            "--cluster trains folds or trials in parallel: add --folds or --tune"
        )
    require_extra("scale", "--tune" if trials else "--cluster")
    if trials:
        from training.cluster.tuning import tune

        return tune(request, trials, cluster or "local", console)
    from training.cluster.folds import train_folds_together

    return train_folds_together(request, str(cluster), console)


def _refuse_without_effect(options: Mapping[str, Any]) -> None:
    """Refuse what the data or other options leave no use for.

    Raises:
        InvalidParameter: one is given.
    """
    from training.data import REGISTERED

    if options.get("individuals") is not None and options["data"] not in REGISTERED:
        raise InvalidParameter(
            f"--individuals: drawn from tissue probabilities, which {options['data']} lacks; "
            f"leave it out, or choose --data {' or '.join(REGISTERED)}"
        )
    if options.get("validation") is not None and options.get("folds"):
        raise InvalidParameter(
            "--validation and --folds exclude each other, as each fold holds out its own images: "
            "leave one out"
        )


def _refuse_share_of(dataset: TrainingData) -> None:
    """Refuse a share to hold out of data that say themselves what is held out.

    Raises:
        InvalidParameter: they do.
    """
    from training.data.classified import ClassifiedDataset

    if isinstance(dataset, ClassifiedDataset) and dataset.of("validation"):
        raise InvalidParameter(
            f"--validation: {dataset.data} has a validation part, which is held out; leave it out"
        )


def _refuse_image_options(options: Mapping[str, Any]) -> None:
    """Refuse options for images that label maps alone do not have.

    Raises:
        InvalidParameter: one is given.
    """
    given = ("binary", "instances", "channels", "individuals", "plain", "foreground")
    for name in (*given, "ignore_label"):
        if options[name] or type(options[name]) in (int, float):  # 0 is an id, and a share
            raise InvalidParameter(
                f"--{name.replace('_', '-')} and --randomize exclude each other: leave one out"
            )
    if options["workers"]:
        raise InvalidParameter(
            f"--workers {options['workers']}: no crops are prepared with --randomize, which draws "
            "images where the network trains; leave one out"
        )


def _print_how_to_resume(run: Path, command: str) -> None:
    from training.cluster.trials import TrialsFolder

    if any(run.rglob("checkpoint.pt")):
        said = f"stopped; the last complete epoch is kept; continue with: {command} --resume"
    elif TrialsFolder(run).record.exists():  # of a search that is not begun twice
        said = f"stopped before the end of the first epoch; continue with: {command} --resume"
    else:
        said = f"stopped before the end of the first epoch; start again with: {command}"
    print_line(console, said)
