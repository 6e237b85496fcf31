"""Writing files atomically."""

from __future__ import annotations

from pathlib import Path

from caps_med.drafts import draft_of


def write_text(path: Path, text: str) -> None:
    """Replace a file atomically; missing folders are created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with draft_of(path) as draft:
        draft.write_text(text, encoding="utf-8")
