"""Options, checks and output that the commands share."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console

from caps_med.cli.options import errors
from caps_med.errors import InvalidParameter
from caps_med.printing import print_line

if TYPE_CHECKING:
    from training.data.interpretation import Interpretation

T = TypeVar("T")

Data = Annotated[Path, typer.Option(help="Folder of labelled images, or .json or .csv list.")]
Models = Annotated[
    Path | None,
    typer.Option(envvar="CAPS_MED_MODELS", help="Model repository; built-ins are always there."),
]
Tolerance = Annotated[
    float, typer.Option(help="How far new shapes may lie beyond the originals'.", min=0)
]
SymmetriesOption = Annotated[
    str, typer.Option(help="What is mirrored: auto (as the originals allow), none or all.")
]


Binary = Annotated[bool, typer.Option("--binary", help="Any label id above 0 is foreground.")]
Instances = Annotated[
    str | None,
    typer.Option(
        help="What ids of instances, one for each object, are learned as: binary; borders "
        "(foreground, and borders between touching objects); classes (as they are)."
    ),
]
Labels = Annotated[
    list[str] | None, typer.Option(help="Names of labels: 1=nucleus,2=membrane. May be repeated.")
]
Code = Annotated[
    list[str] | None,
    typer.Option(
        help="What a label stands for in a DICOM SEG, where its name does not tell: "
        "1=5366008,SCT,Hippocampus,left. May be repeated."
    ),
]
Channels = Annotated[str, typer.Option(help="Names of the image channels, in order: FLAIR,T1.")]


def interpretation_of(
    binary: bool, instances: str | None, labels: Sequence[str] | None, channels: str
) -> Interpretation:
    """The options above as one.

    Raises:
        InvalidParameter: a value is not one of those allowed, or two exclude each other.
    """
    from training.data.interpretation import Interpretation

    if binary and instances not in (None, "binary"):
        raise InvalidParameter(f"--binary and --instances {instances} exclude each other")
    return Interpretation.parse("binary" if binary else instances, labels or (), channels)


def command_line(without: str = "") -> str:
    """The command as it was typed, without one flag."""
    return shlex.join(["caps-med", *(a for a in sys.argv[1:] if a != without)])


def require_outside(out: Path, data: Path) -> None:
    """Refuse an output folder inside the data.

    Raises:
        InvalidParameter: `out` lies inside the folder `data`.
    """
    if data.is_dir() and out.resolve().is_relative_to(data.resolve()):
        raise InvalidParameter(f"--out {out}: lies inside the data, which are never changed")


def progress_bar(items: Iterable[T], what: str, total: float | None = None) -> Iterable[T]:
    """Iterate with a progress bar on standard error that disappears at the end."""
    from rich.progress import track

    return track(items, what, total=total, transient=True, console=errors)


def print_notes(console: Console, notes: Iterable[str]) -> None:
    """Print what a reader should know before believing the numbers."""
    for note in notes:
        print_line(console, f"note: {note}")
