"""The command ``caps-med``: the library's own subcommands, and those that the wings bring.

Nothing heavy is imported before a command runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape

from caps_med._version import __version__
from caps_med.allocator import keep_freed_memory
from caps_med.cli_weights import register as register_weights
from caps_med.errors import CapsMedError, InvalidParameter
from caps_med.plugins import add_plugins

if TYPE_CHECKING:
    from caps_med.images import Kind, MedicalImage
    from caps_med.inference import Model

app = typer.Typer(
    name="caps-med",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Medical image-to-image with capsule networks: segment, synthesize, see what each capsule "
    "sees, learn new data.",
)
models_app = typer.Typer(no_args_is_help=True, help="What models there are, and whether they hold.")
app.add_typer(models_app, name="models")
register_weights(app)
console, errors = Console(), Console(stderr=True)

ModelName = Annotated[str, typer.Option("--model", help="Model, or one version of it: name@3.")]
Models = Annotated[
    Path | None,
    typer.Option(envvar="CAPS_MED_MODELS", help="Model repository; built-ins are always there."),
]
Image = Annotated[
    Path,
    typer.Argument(help="NIfTI, NRRD, PNG, JPEG, TIFF, npy, npz, DICOM (file, folder or zip)."),
]
Labels = Annotated[Path, typer.Argument(help="Label map: NIfTI, NRRD, PNG, TIFF, npy or npz.")]
Out = Annotated[Path, typer.Option("--out", help="File to write; its suffix is the format.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same image.", min=0)]


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Show it.")] = False) -> None:
    if version:
        console.print(f"caps_med {__version__}")
        raise typer.Exit


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for the pictures.")] = Path("demo"),
    models: Models = None,
) -> None:
    """Segment a real brain slice, synthesize it anew, show its capsules.

    Example: caps-med demo --out demo
    """
    from caps_med.demo import run_demo

    run_demo(out, models)


@app.command()
def segment(
    image: Image,
    model: ModelName,
    out: Out,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Write one channel a class instead of labels.")
    ] = False,
    models: Models = None,
) -> None:
    """Segment an image; the label map has the image's geometry.

    Example: caps-med segment --model brain-t1-tissue t1.nii.gz --out tissue.nii.gz
    """
    _check_file(out, image)
    loaded = _load(model, models)
    classes = loaded.segmenter.network.out_channels
    read = loaded.read(image, "image")
    _check_holds(out, read, *(("image", classes) if probabilities else ("labels", 1)))
    with console.status(f"segmenting {escape(image.name)}"):
        result = loaded.segment(read)
    written = result.probabilities if probabilities else result
    written.save(out)
    for note in result.warnings:
        _say(f"note: {note}", errors)
    for name, volume in result.volumes.items():
        _say(f"{name}: {volume:.0f} {result.volume_unit}")
    _say(f"{loaded.bundle.reference} -> {out}")


@app.command()
def synthesize(
    labels: Labels,
    model: ModelName,
    out: Out,
    seed: Seed = 0,
    count: Annotated[int, typer.Option(help="Images, with seeds SEED, SEED+1, ...", min=1)] = 1,
    models: Models = None,
) -> None:
    """Synthesize images from a label map; with several, their seeds join the file names.

    Example: caps-med synthesize --model brain-t1-synthesis tissue.nii.gz --out t1.nii.gz --seed 7
    """
    from rich.progress import track

    seeds = range(seed, seed + count)
    paths = {each: out if count == 1 else seeded_path(out, each) for each in seeds}
    for path in paths.values():
        _check_file(path, labels)
    loaded = _load(model, models)
    channels = loaded.synthesizer.network.image_channels
    read = loaded.read(labels, "labels")
    _check_holds(out, read, "image", channels)
    for current, path in track(paths.items(), "synthesizing", disable=count == 1):
        loaded.synthesize(read, current).save(path)
        _say(f"{loaded.bundle.reference}, seed {current} -> {path}")


@app.command()
def interpolate(
    labels: Labels,
    model: ModelName,
    out: Out,
    seed: Seed = 0,
    to_seed: Annotated[int, typer.Option(help="The seed to arrive at.", min=0)] = 1,
    steps: Annotated[int, typer.Option(help="Images, both ends included.", min=2)] = 9,
    features: Annotated[
        bool, typer.Option("--features", help="Rows below: the last layer's capsules.")
    ] = False,
    models: Models = None,
) -> None:
    """Images on the way from one seed to another, side by side in one picture.

    Example: caps-med interpolate --model brain-t1-synthesis tissue.nii.gz --out strip.png

    With --features, below each image: how long the last layer's capsules are, and the three of
    their atoms that change most.
    """
    from caps_med.inference.strip import strip

    _check_picture(out, labels)
    loaded = _load(model, models)
    read = loaded.read(labels, "labels")
    images = loaded.interpolate(read, seed, to_seed, steps)
    below = loaded.interpolate_features(read, seed, to_seed, steps) if features else []
    strip(images, loaded.bundle.card.plane, below).save(out)
    _say(f"{loaded.bundle.reference}, seed {seed} to {to_seed} in {steps} images -> {out}")


@app.command()
def manipulate(
    image: Image,
    model: ModelName,
    out: Out,
    capsule: Annotated[int, typer.Option(help="Capsule type of the last layer.", min=0)] = 0,
    range: Annotated[str, typer.Option(help="Smallest and largest shift.")] = "-0.25,0.25",
    slice: Annotated[int | None, typer.Option(help="Slice of a volume; the middle one.")] = None,
    models: Models = None,
) -> None:
    """Move each atom of a class capsule: a row an atom, a column a shift, seven of them.

    Example: caps-med manipulate --model brain-t1-tissue t1.nii.gz --capsule 3 --out atoms.png
    """
    _check_picture(out, image)
    deltas = spread(range)
    loaded = _load(model, models)
    loaded.manipulator(image, slice).sheet(capsule, deltas).save(out)
    _say(f"{loaded.bundle.reference}, capsule {capsule} -> {out}")


@app.command()
def features(
    image: Annotated[Path, typer.Argument(help="An image; a label map for synthesis models.")],
    model: ModelName,
    out: Annotated[Path, typer.Option("--out", help="Folder, or FILE.npz for the arrays alone.")],
    layer: Annotated[str | None, typer.Option(help="This capsule layer alone.")] = None,
    slice: Annotated[int | None, typer.Option(help="Slice of a volume; the middle one.")] = None,
    seed: Seed = 0,
    models: Models = None,
) -> None:
    """What each capsule sees: arrays per layer, and a contact sheet of capsule lengths.

    Example: caps-med features --model brain-t1-tissue t1.nii.gz --out capsules
    """
    if out.suffix == ".npz":
        _check_file(out, image)
    elif out.suffix or out.is_file():
        raise InvalidParameter(f"--out {out}: name a .npz file, or a folder without a suffix")
    loaded = _load(model, models)
    found = loaded.features(image, layer, slice, seed)
    found.save(out)
    for name, capsules in found.layers.items():
        types, atoms, rows, columns = capsules.shape
        kinds = "capsule type" if types == 1 else "capsule types"
        _say(f"{name}: {types} {kinds} of {atoms} atoms, {rows} x {columns}")
    _say(f"{loaded.bundle.reference} -> {out}")


@models_app.command("list")
def list_models(models: Models = None) -> None:
    """Every model's latest version."""
    from rich.table import Table

    from caps_med.bundles import ModelRepository

    table = Table()
    for heading in ("model", "version", "task", "labels", "scores"):
        table.add_column(heading, no_wrap=heading == "model", overflow="fold")
    for bundle in ModelRepository(models).list():
        card = bundle.card
        scores = ", ".join(f"{name} {value:g}" for name, value in card.scores.items())
        labels = ", ".join(card.labels.values())
        table.add_row(bundle.name, str(bundle.version), card.task, escape(labels), escape(scores))
    console.print(table)


@models_app.command("show")
def show_model(name: Annotated[str, typer.Argument()], models: Models = None) -> None:
    """What a model is, knows and came from, and its capsule layers.

    Example: caps-med models show brain-t1-tissue
    """
    from rich.table import Table

    from caps_med.inference.passes import device_of
    from caps_med.routing import active_backend

    loaded = _load(name, models)
    card = loaded.bundle.card
    _say(f"{loaded.bundle.reference}: {card.description or card.task}")
    _say(f"labels: {', '.join(f'{i} {label}' for i, label in card.labels.items())}")
    for score, value in card.scores.items():
        _say(f"{score}: {value:g}")
    _say(f"preprocessing: {loaded.provenance.preprocessing}")
    _say(f"routing here: {active_backend(device_of(loaded.network))}")
    _say(f"made by: {card.provenance.command} (seed {card.provenance.seed})")
    _say(f"data: {card.provenance.data}")
    _say(f"licence: {card.license}; sha256 {loaded.provenance.weights_sha256}")
    table = Table("layer", "capsule types", "atoms", "stride")
    for info in loaded.layers:
        table.add_row(info.name, str(info.types), str(info.atoms), str(info.stride))
    console.print(table)


@models_app.command("verify")
def verify_model(name: Annotated[str, typer.Argument()], models: Models = None) -> None:
    """Check a model's checksum, and that its weights fit its network key by key.

    Example: caps-med models verify brain-t1-tissue
    """
    loaded = _load(name, models)
    _say(f"{loaded.bundle.reference}: whole, {loaded.provenance.weights_sha256}")


def spread(text: str) -> list[float]:
    """``-0.25,0.25`` -> seven numbers from the one to the other."""
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError as error:
        raise InvalidParameter(f"--range {text}: two numbers, as -0.25,0.25") from error
    return [low + (high - low) * step / 6 for step in range(7)]


def seeded_path(path: Path, seed: int) -> Path:
    """``image.nii.gz`` -> ``image-seed7.nii.gz``."""
    stem, *suffixes = path.name.split(".")
    return path.with_name(".".join([f"{stem}-seed{seed}", *suffixes]))


def _say(text: str, to: Console = console) -> None:
    """One line as it is: a name may hold brackets, and a path must not be broken."""
    to.print(text, markup=False, highlight=False, soft_wrap=True)


def _check_file(out: Path, source: Path) -> None:
    """Refuse, before any work, a file that could not be written after it, or that is the input."""
    from caps_med.images import codec_of_path

    codec_of_path(out)
    if not out.parent.is_dir():
        raise InvalidParameter(f"--out {out}: there is no folder {out.parent}; create it first")
    if out.exists() and source.exists() and out.samefile(source):
        raise InvalidParameter(f"--out {out}: that is the input, which would be lost; name another")


def _check_picture(out: Path, source: Path) -> None:
    """`_check_file` for an answer that is a picture whatever the input is."""
    import numpy as np

    from caps_med.images import MedicalImage

    _check_file(out, source)
    _check_holds(out, MedicalImage(np.zeros((1, 1, 1), np.uint8)), "image", 1)


def _check_holds(out: Path, source: MedicalImage, kind: Kind, channels: int) -> None:
    """Refuse, before any work, a format that cannot hold such an answer."""
    from caps_med.images import check_writable, codec_of_path

    check_writable(source, kind, channels, codec_of_path(out).name)


def _load(name: str, models: Path | None) -> Model:
    from caps_med import load_model

    return load_model(name, models)


def main() -> None:
    """Run the command line: a caller's mistake is one line and exit status 2, no traceback."""
    os.environ.setdefault("PYTHONWARNINGS", "ignore::DeprecationWarning")
    # Threads of torch that spin while they wait take the core of the one they wait for: on a busy
    # machine, or under a container's CPU quota, seen to take 20 s for what takes 0.4 s. Read when
    # torch is imported, which comes later.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    keep_freed_memory()
    add_plugins(app)
    try:
        app()
    except CapsMedError as error:
        _fail(error.code, str(error))
    except OSError as error:
        _fail("file", f"{error.filename}: {error.strerror}" if error.filename else str(error))


def _fail(code: str, message: str) -> NoReturn:
    errors.print(f"[red]{code}[/red]: {escape(message)}", highlight=False, soft_wrap=True)
    sys.exit(2)
