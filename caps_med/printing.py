"""Plain lines on a terminal, whatever file names hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def print_line(console: Console, text: str) -> None:
    """Print text verbatim: brackets are not markup, and paths are not wrapped."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
