"""``caps-med segment``: from an image to a label map."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

import caps_med
from caps_med.cli import batch
from caps_med.cli.batch import Files, Format, Inputs, Jobs, OutPath, Resume
from caps_med.cli.options import (
    AsJson,
    ModelName,
    Models,
    Overwrite,
    console,
    errors,
    say,
    say_input,
    say_json,
)
from caps_med.cli.output import check_file, check_format, check_free
from caps_med.cli.progress import progress_bar

if TYPE_CHECKING:
    from rich.table import Table

    from caps_med.images import MedicalImage
    from caps_med.inference import MapName, Segmentation


def segment(
    model: ModelName,
    out: OutPath,
    files: Files = None,
    inputs: Inputs = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Write one channel per class, not labels.")
    ] = False,
    refine: Annotated[
        str | None,
        typer.Option(
            help="em: tell the labels apart by the image's own intensities, with the network's "
            "probabilities as prior."
        ),
    ] = None,
    confidence: Annotated[
        bool,
        typer.Option(
            "--confidence", help="Also write the probability of each position's label beside OUT."
        ),
    ] = False,
    entropy: Annotated[
        bool,
        typer.Option(
            "--entropy", help="Also write the entropy of the classes: 0 sure, 1 undecided."
        ),
    ] = False,
    disagreement: Annotated[
        bool,
        typer.Option(
            "--disagreement",
            help="Segment mirror images and with each network of an ensemble, too; also write "
            "where they disagree.",
        ),
    ] = False,
    label_file: Annotated[
        Path | None,
        typer.Option(help="Also write names and colours of the labels here, for ITK-SNAP."),
    ] = None,
    format: Format = None,
    jobs: Jobs = 1,
    resume: Resume = False,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    models: Models = None,
) -> None:
    """Segment an image into a label map of the same geometry, or all images of a folder.

    --confidence, --entropy and --disagreement write OUT_confidence and so on, of volumes as
    .nii.gz, of pictures as .png, whose 255 stands for 1.
    With --input, cases.csv and cases.json in --out have the measures of each image; a file that
    cannot be segmented is listed at the end and sets the exit status to 1.

    Examples:
      caps-med segment --model brain-t1-tissue t1.nii.gz --out tissue.nii.gz
      caps-med segment --model my-tumours flair.nii.gz t1.nii.gz --out tumour.nii.gz
      caps-med segment --model brain-t1-tissue -i scans -o tissues --jobs 4
    """
    from caps_med.inference import MAP_NAMES
    from caps_med.inference.refinement import known_refinement

    method = known_refinement(refine)
    asked = {"confidence": confidence, "entropy": entropy, "disagreement": disagreement}
    maps = tuple(name for name in MAP_NAMES if asked[name])
    if label_file is not None:
        _write_label_file(label_file, model, models, overwrite)
    if inputs:
        from caps_med.batch import SegmentFiles

        action = SegmentFiles(
            model, models, format=format, probabilities=probabilities, refine=method, maps=maps
        )
        batch.run(action, inputs, files, out, jobs=jobs, resume=resume, overwrite=overwrite,
                  as_json=as_json)  # fmt: skip
        return
    images = batch.check_single(files, format=format, jobs=jobs > 1, resume=resume)
    check_file(out, images, overwrite)
    loaded = caps_med.load_model(model, models)
    classes = loaded.segmenter.network.out_channels
    source = loaded.read(images, "image")
    check_format(out, source, *(("image", classes) if probabilities else ("labels", 1)))
    beside = {name: _beside(out, name, source) for name in maps}
    check_free(beside.values(), overwrite)
    with progress_bar(f"segmenting {images[0].name}") as progress:
        result = loaded.segment(source, progress=progress, refine=method, disagreement=disagreement)
    written = result.probabilities if probabilities else result
    written.save(out)
    for name, path in beside.items():
        result.map_of(name).save(path)
    say_input(loaded.bundle)
    for note in result.warnings:
        say(f"note: {note}", errors)
    if as_json:
        say_json(result.numbers())
        return
    console.print(measures_table(result))
    say(_uncertainty_line(result))
    say(f"{loaded.bundle.reference} -> {', '.join(str(path) for path in (out, *beside.values()))}")


def _beside(out: Path, name: MapName, source: MedicalImage) -> Path:
    """The file of a map: ``tissue_entropy.nii.gz`` for ``tissue.nii.gz``."""
    from caps_med.batch.actions import map_suffix
    from caps_med.batch.cases import split_suffix

    return out.with_name(f"{split_suffix(out.name)[0]}_{name}{map_suffix(source)}")


def _uncertainty_line(result: Segmentation) -> str:
    titles = {
        "entropy": "mean entropy", "flips": "disagreement of flips",
        "members": "of the ensemble's networks",
    }  # fmt: skip
    found = result.uncertainty.items()
    return ", ".join(f"{titles[name]} {value:.3f}" for name, value in found if value is not None)


def _write_label_file(path: Path, model: str, models: Path | None, overwrite: bool) -> None:
    from caps_med.bundles import ModelRepository
    from caps_med.images import write_label_description

    check_free([path], overwrite)
    card = ModelRepository(models).find(model).card
    write_label_description(path, card.labels, card.palette)


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
