"""Options shared by several commands, each declared once, and how commands print."""

from __future__ import annotations

import codecs
import io
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer
from rich.console import Console

from caps_med.printing import Terminal, print_line

if TYPE_CHECKING:
    from caps_med.bundles import Bundle

console, errors = Terminal(), Terminal(stderr=True)
#: The way in which characters are printed that the encoding of the output does not have.
_ESCAPED = "caps_med.escaped"
#: Python's character for a byte 0 of a file name that is no text; others follow.
_BYTES = 0xDC00

Images: TypeAlias = Annotated[
    list[Path],
    typer.Argument(
        help="Image in NIfTI, NRRD, MetaImage, PNG, JPEG, TIFF, BMP, npy, npz or DICOM (a file, "
        "or the folder or zip of a series). Several files are the channels of one image, in "
        "the model's order, or the slices of a DICOM series."
    ),
]
Labels: TypeAlias = Annotated[
    Path, typer.Argument(help="Label map in NIfTI, NRRD, MetaImage, PNG, TIFF, BMP, npy or npz.")
]
Out: TypeAlias = Annotated[
    Path, typer.Option("--out", "-o", help="Output file; its suffix determines the format.")
]
Overwrite: TypeAlias = Annotated[
    bool, typer.Option("--overwrite", help="Overwrite existing files.")
]
ModelName: TypeAlias = Annotated[
    str,
    typer.Option(
        "--model",
        help="Name of the model, as `caps-med models list` shows it, or of one version: NAME@3.",
    ),
]
Models: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        envvar="CAPS_MED_MODELS",
        help="Folder of the model repository; the built-in models are always available.",
    ),
]
Seed: TypeAlias = Annotated[
    int, typer.Option(help="Random seed; the same seed gives the same image.", min=0)
]
InputDescription: TypeAlias = Annotated[
    str | None,
    typer.Option(help="Images that the model is for, in words: 'T1-weighted MRI, skull-stripped'."),
]
License: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--license",
        "--licence",
        help="Licence of the weights, as an SPDX identifier such as Apache-2.0 or CC-BY-4.0.",
    ),
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
SliceIndex: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--slice", help="Index of the slice of a volume, from 0; by default the middle one."
    ),
]
SeriesUID: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--series",
        metavar="UID",
        help="Series Instance UID of the series to read, if a folder or zip contains several "
        "DICOM series.",
    ),
]
VolumeIndex: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--volume",
        min=0,
        help="Index, from 0, of the volume to read from a DICOM series with several (echoes, time "
        "points) or from a 4-D NIfTI, or of the picture to read from a cine or a stack.",
    ),
]


def print_what_the_terminal_lacks() -> None:
    """Print characters that the output's encoding lacks (LC_ALL=C) with JSON escapes.

    Bytes of file names that are not text are printed unchanged. Otherwise a command would end at
    the first such character.
    """
    codecs.register_error(_ESCAPED, _escaped)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_ESCAPED)


def _escaped(error: UnicodeError) -> tuple[bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return b"".join(map(_printed, error.object[error.start : error.end])), error.end


def _printed(character: str) -> bytes:
    byte = ord(character) - _BYTES
    if 0x80 <= byte <= 0xFF:
        return bytes([byte])
    return json.dumps(character)[1:-1].encode()


def is_given(context: typer.Context, name: str) -> bool:
    """Whether a parameter was given on the command line rather than left at its default."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def say(text: str, to: Console = console) -> None:
    """Print one line verbatim, see `print_line`."""
    print_line(to, text)


def say_json(document: object) -> None:
    """Print a document verbatim as indented JSON."""
    say(json.dumps(document, indent=2, ensure_ascii=False))


def say_warnings(warnings: Iterable[str]) -> None:
    """Print the warnings about an input or its answer."""
    for warning in warnings:
        say(f"note: {warning}", errors)


def say_input(bundle: Bundle) -> None:
    """Print the model's input, if stated: for other images its answer is meaningless."""
    if takes := bundle.card.input_description:
        say(
            f"note: {bundle.reference} is for {takes}; its answer to any other input means nothing",
            errors,
        )
