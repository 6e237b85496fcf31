"""``caps-med synthesize``: from a label map to images."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import caps_med
from caps_med.cli import batch
from caps_med.cli.batch import Format, Inputs, Jobs, OnCluster, OutPath, Resume
from caps_med.cli.options import (
    ModelName,
    Models,
    Overwrite,
    Seed,
    SeriesUID,
    VolumeIndex,
    say,
    say_input,
    say_warnings,
)
from caps_med.cli.output import check_file, check_format, seeded_path
from caps_med.cli.progress import progress_bar
from caps_med.errors import InvalidParameter


def synthesize(
    model: ModelName,
    out: OutPath,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="LABELS",
            help="Label map in NIfTI, NRRD, MetaImage, PNG, BMP, TIFF, npy or npz. With --input: "
            "more inputs.",
        ),
    ] = None,
    inputs: Inputs = None,
    seed: Seed = 0,
    count: Annotated[
        int, typer.Option(help="Number of images, with the seeds SEED, SEED+1, ...", min=1)
    ] = 1,
    series: SeriesUID = None,
    volume: VolumeIndex = None,
    format: Format = None,
    jobs: Jobs = None,
    cluster: OnCluster = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    models: Models = None,
) -> None:
    """Synthesize images from a label map, or from all label maps of a folder.

    With --count, the seed is added to each file name: t1-seed7.nii.gz, t1-seed8.nii.gz, ...

    Examples:
      caps-med synthesize --model brain-t1-synthesis tissue.nii.gz --out t1.nii.gz --seed 7
      caps-med synthesize --model brain-synthesis aseg.nii.gz --out head.nii.gz --count 8
      caps-med synthesize --model brain-t1-synthesis -i tissues -o synthetic --count 5
    """
    if inputs:
        from caps_med.batch import SynthesizeFiles

        batch.check_batch(series)
        action = SynthesizeFiles(
            model, models, format=format, seed=seed, count=count, volume=volume
        )
        batch.run(action, inputs, files, out, jobs=jobs, cluster=cluster, resume=resume,
                  overwrite=overwrite)  # fmt: skip
        return
    [labels, *others] = batch.check_single(
        files, format=format, jobs=(jobs or 1) > 1, cluster=cluster, resume=resume
    )
    if others:
        raise InvalidParameter(
            f"{len(others) + 1} label maps given: give several as --input, with a folder as --out"
        )
    seeds = range(seed, seed + count)
    file = Path(out)
    paths = {each: file if count == 1 else seeded_path(file, each) for each in seeds}
    for path in paths.values():
        check_file(path, [labels], overwrite)
    loaded = caps_med.load_model(model, models)
    channels = loaded.synthesizer.network.image_channels
    source = loaded.read(labels, "labels", index=volume, series=series)
    check_format(file, source, "image", channels)
    for current, path in paths.items():
        with progress_bar(f"synthesizing {path.name}") as progress:
            image = loaded.synthesize(source, current, progress=progress)
        image.save(path)
        say(f"{loaded.bundle.reference}, seed {current} -> {path}")
    say_input(loaded.bundle)
    say_warnings(image.warnings)
