"""Writing files atomically."""

from __future__ import annotations

from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Replace a file atomically; missing folders are created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
