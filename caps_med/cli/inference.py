"""The commands that run a model: `segment`, `synthesize`, `classify`, and those on capsules."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import caps_med
from caps_med.cli import archived, batch
from caps_med.cli.classify import classify
from caps_med.cli.options import (
    Images,
    Labels,
    ModelName,
    Models,
    Out,
    Overwrite,
    Seed,
    SeriesUID,
    SliceIndex,
    VolumeIndex,
    say,
    say_input,
    say_warnings,
)
from caps_med.cli.output import check_file, check_free, check_no_input, check_picture
from caps_med.cli.progress import progress_bar
from caps_med.cli.segment import segment
from caps_med.cli.synthesize import synthesize
from caps_med.errors import InvalidParameter
from caps_med.wording import counted


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    for command in (segment, synthesize, classify, features):
        app.command(cls=batch.BatchCommand)(command)
    for other in (interpolate, manipulate):
        app.command()(other)


def interpolate(
    labels: Labels,
    model: ModelName,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help="Picture file with the images side by side, or a folder with one file per image.",
        ),
    ],
    seed: Seed = 0,
    to_seed: Annotated[int, typer.Option(help="Random seed of the last image.", min=0)] = 1,
    steps: Annotated[
        int, typer.Option(help="Number of images, including the first and the last.", min=2)
    ] = 9,
    features: Annotated[
        bool, typer.Option("--features", help="Add rows that show the capsules of the last layer.")
    ] = False,
    slice: SliceIndex = None,
    series: SeriesUID = None,
    volume: VolumeIndex = None,
    overwrite: Overwrite = False,
    models: Models = None,
) -> None:
    """Interpolate between two seeds: images side by side in one picture, or one file per image.

    The picture shows one slice of a volume, the middle one or --slice, and only that slice is
    computed. A folder receives the whole volumes or, with --slice, that slice of each.

    With --features, the picture shows below each image the lengths of the last layer's capsules
    and the three of their atoms that change most.

    Examples:
      caps-med interpolate --model brain-t1-synthesis tissue.nii.gz --out strip.png --slice 90
      caps-med interpolate --model brain-t1-synthesis tissue.nii.gz --out volumes --steps 5
    """
    from caps_med.images import CODECS, chosen_slice, one_slice, slice_count, writable_format
    from caps_med.inference.strip import captioned_strip, strip

    picture = bool(out.suffix)
    if picture:
        check_picture(out, [labels], overwrite)
    elif features:
        raise InvalidParameter(
            "--features: only for a picture, not a folder; give --out a file such as strip.png"
        )
    loaded = caps_med.load_model(model, models)
    source = loaded.read(labels, "labels", index=volume, series=series)
    plane = loaded.bundle.card.plane
    slices = slice_count(source, plane)
    if picture or slice is not None:
        slice = chosen_slice(slices, slice)
    shown = source if slice is None else one_slice(source, slice, plane)
    channels = loaded.synthesizer.network.image_channels
    suffix = CODECS[writable_format(shown, "image", channels)].suffixes[0]
    files = [out / f"image{step:02d}{suffix}" for step in range(steps)]
    for file in [] if picture else files:
        check_no_input(file, [labels])
    check_free([] if picture else files, overwrite)
    with progress_bar(f"interpolating {labels.name}") as progress:
        images = loaded.interpolate(source, seed, to_seed, steps, slice, progress=progress)
        below = loaded.interpolate_features(source, seed, to_seed, steps, slice) if features else []
    if picture:
        drawn = captioned_strip(images, plane, below) if below else strip(images, plane)
        drawn.save(out)
    else:
        out.mkdir(parents=True, exist_ok=True)
        for image, file in zip(images, files, strict=True):
            image.save(file)
    part = "" if slice is None or slices == 1 else f", slice {slice} of 0 to {slices - 1}"
    say(f"{loaded.bundle.reference}, seed {seed} to {to_seed} in {steps} images{part} -> {out}")
    say_input(loaded.bundle)
    say_warnings(images[0].warnings)


def manipulate(
    images: Images,
    model: ModelName,
    out: Out,
    capsule: Annotated[
        str | None,
        typer.Option(
            help="Class whose capsule is shifted, by the name or id of its label. By default the "
            "first class, or the predicted class of a classification model."
        ),
    ] = None,
    range: Annotated[
        str, typer.Option(help="Smallest and largest shift, separated by a comma.")
    ] = "-0.25,0.25",
    steps: Annotated[
        int,
        typer.Option(
            help="Number of shifts, including the smallest and the largest.", min=2, max=33
        ),
    ] = 7,
    differences: Annotated[
        bool, typer.Option("--differences", help="Show the changes instead of the changed images.")
    ] = False,
    slice: SliceIndex = None,
    series: SeriesUID = None,
    volume: VolumeIndex = None,
    overwrite: Overwrite = False,
    models: Models = None,
) -> None:
    """Show what each atom of a class capsule does: one row per atom, one column per shift.

    Examples:
      caps-med manipulate --model brain-t1-tissue t1.nii.gz --capsule 'white matter' -o atoms.png
      caps-med manipulate --model digits digit.png --steps 11 --out atoms.png
    """
    check_picture(out, images, overwrite)
    deltas = spread(range, steps)
    loaded = caps_med.load_model(model, models)
    source = loaded.read(images, "image", index=volume, series=series)
    manipulator = loaded.manipulator(source, slice)
    index = manipulator.chosen(capsule)
    manipulator.sheet(index, deltas, differences).save(out)
    name = list(manipulator.labels.values())[index]
    say(f"{loaded.bundle.reference}, capsule {index} ({name}) -> {out}")
    say_input(loaded.bundle)
    say_warnings(manipulator.warnings)


def features(
    model: ModelName,
    out: Annotated[
        str,
        typer.Option(
            "--out",
            "-o",
            metavar="PATH",
            help="Output folder, or FILE.npz for the arrays only. With --input: a folder or s3:// "
            "location.",
        ),
    ],
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="IMAGES",
            help="Image, or label map for a synthesis model; several files are the channels of "
            "one image. With --input: more inputs.",
        ),
    ] = None,
    inputs: batch.Inputs = None,
    archive: archived.From = None,
    layer: Annotated[
        str | None, typer.Option(help="Name of a single capsule layer; by default all layers.")
    ] = None,
    slice: SliceIndex = None,
    seed: Seed = 0,
    series: SeriesUID = None,
    volume: VolumeIndex = None,
    jobs: batch.Jobs = None,
    cluster: batch.OnCluster = None,
    resume: batch.Resume = False,
    overwrite: Overwrite = False,
    models: Models = None,
) -> None:
    """Show what each capsule sees: one array per layer, and a contact sheet of capsule lengths.

    Examples:
      caps-med features --model brain-t1-tissue t1.nii.gz --out capsules
      caps-med features --model brain-t1-tissue -i scans -o capsules --jobs 2
    """
    if inputs:
        from caps_med.batch import FeatureFiles

        if archive:
            raise InvalidParameter("--input and --from cannot be combined: leave one out")
        batch.check_batch(series)
        action = FeatureFiles(model, models, layer=layer, slice=slice, seed=seed, volume=volume)
        batch.run(action, inputs, files, out, jobs=jobs, cluster=cluster, resume=resume,
                  overwrite=overwrite)  # fmt: skip
        return
    given = archived.check_one(files, archive, jobs=(jobs or 1) > 1, cluster=cluster, resume=resume)
    target = Path(out)
    from caps_med.inference.features import FOLDER_FILES

    if target.suffix == ".npz":
        check_file(target, archived.files_of(given), overwrite)
    elif target.suffix or target.is_file():
        raise InvalidParameter(
            f"--out {out}: must be a .npz file, or a folder whose name has no suffix"
        )
    else:
        written = [target / name for name in FOLDER_FILES]
        for file in written:
            check_no_input(file, archived.files_of(given))
        check_free(written, overwrite)
    loaded = caps_med.load_model(model, models)
    if isinstance(given, list):
        image = loaded.read(given, loaded.reads, index=volume, series=series)
    else:
        image = archived.read(loaded, given, series, volume)
    with progress_bar(f"computing the capsules of {archived.name_of(given)}") as progress:
        found = loaded.features(image, layer, slice, seed, progress=progress)
    found.save(target)
    for name, capsules in found.layers.items():
        types, atoms, rows, columns = capsules.shape
        kinds, poses = counted(types, "capsule type"), counted(atoms, "atom")
        say(f"{name}: {kinds} of {poses}, {rows} x {columns}")
    say(f"{loaded.bundle.reference} -> {out}")
    say_input(loaded.bundle)
    say_warnings(found.warnings)


def spread(text: str, count: int) -> list[float]:
    """``-0.25,0.25`` -> evenly spaced numbers from the first to the second."""
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError as error:
        raise InvalidParameter(
            f"--range {text}: must be two numbers, such as -0.25,0.25"
        ) from error
    return [low + (high - low) * step / (count - 1) for step in range(count)]
