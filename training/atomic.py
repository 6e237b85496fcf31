"""Files that are whole or not there."""

from __future__ import annotations

from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Replace a file in one step; its folder is made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
