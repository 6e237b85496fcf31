"""Writing files atomically."""

from __future__ import annotations

from pathlib import Path

from caps_med.drafts import write_whole


def write_text(path: Path, text: str) -> None:
    """Replace a file atomically; missing folders are created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text.encode())
