"""The commands that run a model: segment, synthesize, interpolate, manipulate, features."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer
from rich.markup import escape

import caps_med
from caps_med.cli.options import ModelName, Models, Seed, SliceIndex, console, errors, say
from caps_med.cli.output import check_file, check_format, check_picture, seeded_path
from caps_med.errors import InvalidParameter
from caps_med.wording import counted

Image: TypeAlias = Annotated[
    Path,
    typer.Argument(help="NIfTI, NRRD, PNG, JPEG, TIFF, npy, npz, DICOM (file, folder or zip)."),
]
Labels: TypeAlias = Annotated[
    Path, typer.Argument(help="Label map: NIfTI, NRRD, PNG, TIFF, npy or npz.")
]
Out: TypeAlias = Annotated[Path, typer.Option(help="File to write; its suffix sets the format.")]


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    for command in (segment, synthesize, interpolate, manipulate, features):
        app.command()(command)


def segment(
    image: Image,
    model: ModelName,
    out: Out,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Write one channel per class, not labels.")
    ] = False,
    models: Models = None,
) -> None:
    """Segment an image into a label map of the same geometry.

    Example: caps-med segment --model brain-t1-tissue t1.nii.gz --out tissue.nii.gz
    """
    check_file(out, image)
    loaded = caps_med.load_model(model, models)
    classes = loaded.segmenter.network.out_channels
    source = loaded.read(image, "image")
    check_format(out, source, *(("image", classes) if probabilities else ("labels", 1)))
    with console.status(f"segmenting {escape(image.name)}"):
        result = loaded.segment(source)
    written = result.probabilities if probabilities else result
    written.save(out)
    for note in result.warnings:
        say(f"note: {note}", errors)
    for name, volume in result.volumes.items():
        say(f"{name}: {volume:.0f} {result.volume_unit}")
    say(f"{loaded.bundle.reference} -> {out}")


def synthesize(
    labels: Labels,
    model: ModelName,
    out: Out,
    seed: Seed = 0,
    count: Annotated[int, typer.Option(help="Images, with seeds SEED, SEED+1, ...", min=1)] = 1,
    models: Models = None,
) -> None:
    """Synthesize images from a label map.

    Example: caps-med synthesize --model brain-t1-synthesis tissue.nii.gz --out t1.nii.gz --seed 7

    With --count, each file name has its seed added: t1-seed7.nii.gz, t1-seed8.nii.gz, ...
    """
    from rich.progress import track

    seeds = range(seed, seed + count)
    paths = {each: out if count == 1 else seeded_path(out, each) for each in seeds}
    for path in paths.values():
        check_file(path, labels)
    loaded = caps_med.load_model(model, models)
    channels = loaded.synthesizer.network.image_channels
    source = loaded.read(labels, "labels")
    check_format(out, source, "image", channels)
    for current, path in track(paths.items(), "synthesizing", disable=count == 1):
        loaded.synthesize(source, current).save(path)
        say(f"{loaded.bundle.reference}, seed {current} -> {path}")


def interpolate(
    labels: Labels,
    model: ModelName,
    out: Out,
    seed: Seed = 0,
    to_seed: Annotated[int, typer.Option(help="Seed of the last image.", min=0)] = 1,
    steps: Annotated[int, typer.Option(help="Images, first and last included.", min=2)] = 9,
    features: Annotated[
        bool, typer.Option("--features", help="Add rows with the last layer's capsules.")
    ] = False,
    models: Models = None,
) -> None:
    """Interpolate from one seed to another: images side by side in one picture.

    Example: caps-med interpolate --model brain-t1-synthesis tissue.nii.gz --out strip.png

    With --features, each image has below it the lengths of the last layer's capsules, and the
    three of their atoms that change most.
    """
    from caps_med.inference.strip import strip

    check_picture(out, labels)
    loaded = caps_med.load_model(model, models)
    source = loaded.read(labels, "labels")
    images = loaded.interpolate(source, seed, to_seed, steps)
    below = loaded.interpolate_features(source, seed, to_seed, steps) if features else []
    strip(images, loaded.bundle.card.plane, below).save(out)
    say(f"{loaded.bundle.reference}, seed {seed} to {to_seed} in {steps} images -> {out}")


def manipulate(
    image: Image,
    model: ModelName,
    out: Out,
    capsule: Annotated[int, typer.Option(help="Capsule type of the last layer.", min=0)] = 0,
    range: Annotated[str, typer.Option(help="Smallest and largest shift.")] = "-0.25,0.25",
    slice: SliceIndex = None,
    models: Models = None,
) -> None:
    """Shift each atom of a class capsule: one row per atom, one column per shift.

    Example: caps-med manipulate --model brain-t1-tissue t1.nii.gz --capsule 3 --out atoms.png
    """
    check_picture(out, image)
    deltas = spread(range)
    loaded = caps_med.load_model(model, models)
    loaded.manipulator(image, slice).sheet(capsule, deltas).save(out)
    say(f"{loaded.bundle.reference}, capsule {capsule} -> {out}")


def features(
    image: Annotated[Path, typer.Argument(help="Image, or label map for a synthesis model.")],
    model: ModelName,
    out: Annotated[Path, typer.Option("--out", help="Folder, or FILE.npz for the arrays only.")],
    layer: Annotated[str | None, typer.Option(help="Only this capsule layer.")] = None,
    slice: SliceIndex = None,
    seed: Seed = 0,
    models: Models = None,
) -> None:
    """Show what each capsule sees: arrays per layer and a contact sheet of capsule lengths.

    Example: caps-med features --model brain-t1-tissue t1.nii.gz --out capsules
    """
    if out.suffix == ".npz":
        check_file(out, image)
    elif out.suffix or out.is_file():
        raise InvalidParameter(f"--out {out}: name a .npz file, or a folder without a suffix")
    loaded = caps_med.load_model(model, models)
    found = loaded.features(image, layer, slice, seed)
    found.save(out)
    for name, capsules in found.layers.items():
        types, atoms, rows, columns = capsules.shape
        kinds, poses = counted(types, "capsule type"), counted(atoms, "atom")
        say(f"{name}: {kinds} of {poses}, {rows} x {columns}")
    say(f"{loaded.bundle.reference} -> {out}")


def spread(text: str) -> list[float]:
    """``-0.25,0.25`` -> seven evenly spaced numbers from the first to the second."""
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError as error:
        raise InvalidParameter(f"--range {text}: give two numbers, as -0.25,0.25") from error
    return [low + (high - low) * step / 6 for step in range(7)]
