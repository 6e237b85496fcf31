"""``caps-med synthesize``: from a label map to images."""

from __future__ import annotations

from typing import Annotated

import typer

import caps_med
from caps_med.cli.options import (
    Labels,
    ModelName,
    Models,
    Out,
    Overwrite,
    Seed,
    say,
    say_input,
)
from caps_med.cli.output import check_file, check_format, seeded_path
from caps_med.cli.progress import progress_bar


def synthesize(
    labels: Labels,
    model: ModelName,
    out: Out,
    seed: Seed = 0,
    count: Annotated[int, typer.Option(help="Images, with seeds SEED, SEED+1, ...", min=1)] = 1,
    overwrite: Overwrite = False,
    models: Models = None,
) -> None:
    """Synthesize images from a label map.

    Example: caps-med synthesize --model brain-t1-synthesis tissue.nii.gz --out t1.nii.gz --seed 7

    With --count, each file name has its seed added: t1-seed7.nii.gz, t1-seed8.nii.gz, ...
    """
    seeds = range(seed, seed + count)
    paths = {each: out if count == 1 else seeded_path(out, each) for each in seeds}
    for path in paths.values():
        check_file(path, [labels], overwrite)
    loaded = caps_med.load_model(model, models)
    channels = loaded.synthesizer.network.image_channels
    source = loaded.read(labels, "labels")
    check_format(out, source, "image", channels)
    for current, path in paths.items():
        with progress_bar(f"synthesizing {path.name}") as progress:
            loaded.synthesize(source, current, progress=progress).save(path)
        say(f"{loaded.bundle.reference}, seed {current} -> {path}")
    say_input(loaded)
