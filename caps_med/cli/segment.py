"""``caps-med segment``: from an image to a label map."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

import caps_med
from caps_med.cli.options import (
    Images,
    ModelName,
    Models,
    Out,
    Overwrite,
    console,
    errors,
    say,
    say_input,
)
from caps_med.cli.output import check_file, check_format
from caps_med.cli.progress import progress_bar

if TYPE_CHECKING:
    from rich.table import Table

    from caps_med.inference import Segmentation


def segment(
    images: Images,
    model: ModelName,
    out: Out,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Write one channel per class, not labels.")
    ] = False,
    overwrite: Overwrite = False,
    json_: Annotated[
        bool, typer.Option("--json", help="Print the measures of each label as JSON.")
    ] = False,
    models: Models = None,
) -> None:
    """Segment an image into a label map of the same geometry.

    Examples:
      caps-med segment --model brain-t1-tissue t1.nii.gz --out tissue.nii.gz
      caps-med segment --model my-tumours flair.nii.gz t1.nii.gz --out tumour.nii.gz
    """
    check_file(out, images, overwrite)
    loaded = caps_med.load_model(model, models)
    classes = loaded.segmenter.network.out_channels
    source = loaded.read(images, "image")
    check_format(out, source, *(("image", classes) if probabilities else ("labels", 1)))
    with progress_bar(f"segmenting {images[0].name}") as progress:
        result = loaded.segment(source, progress=progress)
    written = result.probabilities if probabilities else result
    written.save(out)
    say_input(loaded)
    for note in result.warnings:
        say(f"note: {note}", errors)
    if json_:
        say(json.dumps(result.numbers(), indent=2))
        return
    console.print(measures_table(result))
    say(f"{loaded.bundle.reference} -> {out}")


def measures_table(result: Segmentation) -> Table:
    """A row for each label that is not the background."""
    from rich.table import Table

    size = "area (pixels)" if result.volume_unit == "pixels" else "volume (mm3)"
    table = Table("label")
    for heading in (size, "of the image", "objects", "confidence"):
        table.add_column(heading, justify="right")
    for one in result.measures:
        confidence = "" if one.confidence is None else f"{one.confidence:.3f}"
        numbers = (f"{one.volume:.0f}", f"{one.fraction:.2%}", f"{one.objects}", confidence)
        table.add_row(escape(one.name), *numbers)
    return table
