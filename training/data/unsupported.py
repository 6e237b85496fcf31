"""What is said of a folder or file that no layout fits."""

from __future__ import annotations

from pathlib import Path

from caps_med.wording import listed

#: The layout of such a data set.
UNSUPPORTED = "unsupported layout"
_SHOWN = 8


def unsupported(path: Path, *supported: str, hint: str = "") -> str:
    """The error for an unsupported folder: what it contains, and the layouts that are supported.

    Args:
        supported: for each kind of data a heading and its layouts, one a line.
        hint: what the user probably meant; a sentence.
    """
    first = f"{path}: the layout is not supported. Found: {_content(path)}."
    return "\n".join([f"{first} {hint}".rstrip(), *supported])


def what_and_fix(error: str) -> tuple[str, str]:
    """An error of a layout as a finding has it: what is amiss, and the lines that help, if any."""
    what, _, fix = error.partition("\n")
    return what.removesuffix("."), fix


def _content(path: Path) -> str:
    if path.is_file():
        return "a file that is not a .json or .csv list"
    names = sorted(p.name + "/" * p.is_dir() for p in path.iterdir() if p.name[0] != ".")
    return listed(names, _SHOWN) or "nothing"
