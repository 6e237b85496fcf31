"""Options, checks and output that the commands share."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console

from caps_med.errors import InvalidParameter
from caps_med.printing import print_line
from caps_med.wording import shell_command

if TYPE_CHECKING:
    from training.data.interpretation import Interpretation

T = TypeVar("T")

Data = Annotated[
    Path, typer.Option(help="Folder of labelled images, or a .json or .csv list of them.")
]
Models = Annotated[
    Path | None,
    typer.Option(
        envvar="CAPS_MED_MODELS",
        help="Folder of the model repository; the built-in models are always available.",
    ),
]
Tolerance = Annotated[
    float,
    typer.Option(
        help="How far the shapes of new label maps may differ from those of the originals.", min=0
    ),
]
SymmetriesOption = Annotated[
    str,
    typer.Option(
        help="Whether label maps are mirrored: auto (as the originals allow), none or all."
    ),
]


Binary = Annotated[
    bool, typer.Option("--binary", help="Treat every label id above 0 as foreground.")
]
Instances = Annotated[
    str | None,
    typer.Option(
        help="How label maps with one id per object are learned: as binary (foreground), as "
        "borders (foreground, and borders between touching objects) or as classes (one class "
        "per id)."
    ),
]
Labels = Annotated[
    list[str] | None,
    typer.Option(help="Names of the labels, such as 1=nucleus,2=membrane. May be repeated."),
]
Code = Annotated[
    list[str] | None,
    typer.Option(
        help="Code of a label in DICOM SEG files, where it does not follow from its name: "
        "1=5366008,SCT,Hippocampus,left. May be repeated."
    ),
]
Channels = Annotated[
    str, typer.Option(help="Names of the image channels, in order, such as FLAIR,T1.")
]
IgnoreLabel = Annotated[
    int | None,
    typer.Option(
        help="Id of unlabelled voxels in the label maps, which segmentation neither learns nor "
        "scores. By default the label that the data call ignore, as in nnU-Net.",
        min=0,
    ),
]


def interpretation_of(
    binary: bool,
    instances: str | None,
    labels: Sequence[str] | None,
    channels: str,
    ignored: int | None = None,
) -> Interpretation:
    """The options above as one.

    Raises:
        InvalidParameter: a value is not one of those allowed, or two exclude each other.
    """
    from training.data.interpretation import Interpretation

    if binary and instances not in (None, "binary"):
        raise InvalidParameter(
            f"--binary and --instances {instances} cannot be combined: leave one out"
        )
    return Interpretation.parse("binary" if binary else instances, labels or (), channels, ignored)


def command_line(without: str = "") -> str:
    """The command as it was typed, without one flag."""
    return shell_command(["caps-med", *(a for a in sys.argv[1:] if a != without)])


def check_out_folder(out: Path, data: Path) -> None:
    """Refuse an output folder that cannot be written, before the work, or that lies in the data.

    Raises:
        InvalidParameter: `out` lies inside the folder `data`, or is that of the list `data`, or is
            or lies below a file, or below a folder that must not be written.
    """
    if data.is_dir() and out.resolve().is_relative_to(data.resolve()):
        raise InvalidParameter(
            f"--out {out}: lies inside the data, which are never changed; name a folder outside "
            f"{data}"
        )
    listed = data.is_file() and data.suffix.lower() in (".csv", ".json")
    if listed and out.resolve() == data.resolve().parent:
        raise InvalidParameter(
            f"--out {out}: holds the list of the data, {data.name}, which a file of the result may "
            "replace; name another folder"
        )
    _check_writable(out)


def check_new_folder(out: Path) -> None:
    """Refuse an output folder that has content or cannot be written, before the work.

    Raises:
        InvalidParameter: it is a folder with content, or as of `check_out_folder`.
    """
    _check_writable(out)
    if out.exists() and any(out.iterdir()):
        raise InvalidParameter(f"--out {out}: the folder is not empty; name another folder")


def _check_writable(out: Path) -> None:
    existing = next(path for path in (out, *out.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise InvalidParameter(f"--out {out}: {existing} is a file; name a folder")
    if not os.access(existing, os.W_OK):
        raise InvalidParameter(f"--out {out}: {existing} cannot be written; name another folder")


def progress_bar(
    items: Iterable[T], what: str, total: int | None = None
) -> Generator[T, None, None]:
    """Iterate with a bar as of `new_bars`: how many are done, and the time left."""
    from caps_med.cli.progress import new_bars

    with new_bars() as bars:
        yield from bars.track(items, total, description=what)


def print_notes(console: Console, notes: Iterable[str]) -> None:
    """Print what a reader should know before believing the numbers."""
    for note in notes:
        print_line(console, f"note: {note}")
