"""The options that several commands take, each declared once, and how commands print."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from rich.console import Console

if TYPE_CHECKING:
    from caps_med.bundles import Bundle

console, errors = Console(), Console(stderr=True)

Images: TypeAlias = Annotated[
    list[Path],
    typer.Argument(
        help="NIfTI, NRRD, PNG, JPEG, TIFF, BMP, npy, npz, DICOM (file, folder or zip); several "
        "files are the channels of one image, in the model's order, or the slices of a DICOM "
        "series."
    ),
]
Labels: TypeAlias = Annotated[
    Path, typer.Argument(help="Label map: NIfTI, NRRD, PNG, TIFF, BMP, npy or npz.")
]
Out: TypeAlias = Annotated[
    Path, typer.Option("--out", "-o", help="File to write; its suffix sets the format.")
]
Overwrite: TypeAlias = Annotated[
    bool, typer.Option("--overwrite", help="Replace files that are already there.")
]
ModelName: TypeAlias = Annotated[
    str, typer.Option("--model", help="Model, or one version of it: name@3.")
]
Models: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        envvar="CAPS_MED_MODELS",
        help="Model repository; the built-in models are always available.",
    ),
]
Seed: TypeAlias = Annotated[int, typer.Option(help="The same seed gives the same image.", min=0)]
InputDescription: TypeAlias = Annotated[
    str | None,
    typer.Option(help="What the model takes, in words: 'T1-weighted MRI, skull-stripped'."),
]
License: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--license", "--licence", help="Licence of the weights, as SPDX: Apache-2.0, CC-BY-4.0."
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON instead.")]
SliceIndex: TypeAlias = Annotated[
    int | None, typer.Option("--slice", help="Slice of a volume; by default the middle one.")
]
SeriesUID: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--series",
        metavar="UID",
        help="Series Instance UID, of a folder or zip that holds several DICOM series.",
    ),
]
VolumeIndex: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--volume",
        min=0,
        help="Of a DICOM series with several volumes (echoes, time points), of a 4-D NIfTI, of a "
        "cine or a stack of pictures: which one, from 0.",
    ),
]


def say(text: str, to: Console = console) -> None:
    """Print one line verbatim: brackets in names are no markup, and paths are not wrapped."""
    to.print(text, markup=False, highlight=False, soft_wrap=True)


def say_json(document: object) -> None:
    """Print a document as indented JSON, as it is."""
    say(json.dumps(document, indent=2, ensure_ascii=False))


def say_warnings(warnings: Iterable[str]) -> None:
    """What is doubtful about an input or its answer."""
    for warning in warnings:
        say(f"note: {warning}", errors)


def say_input(bundle: Bundle) -> None:
    """What the model takes, if that is stated: of other images its answer means nothing."""
    if takes := bundle.card.input_description:
        say(
            f"note: {bundle.reference} takes {takes}; of others its answer means nothing",
            errors,
        )
