"""Plain lines on a terminal, whatever file names and files contain."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Console
from rich.segment import Segment

if TYPE_CHECKING:
    from rich.console import ConsoleOptions, RenderableType

#: Control characters, which a terminal obeys, as JSON has them; not tab and newline.
_SHOWN = {
    code: f"\\u{code:04x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in (9, 10)
}


class Terminal(Console):
    """A console whose texts cannot control the terminal: control characters are made visible.

    Names of files, tensors and classes come from others, and an escape sequence in them could
    change what a terminal shows or does (CWE-150).
    """

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """The segments of a printed object; rich's own control segments are kept."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else text.translate(_SHOWN), style, control)


def print_line(console: Console, text: str) -> None:
    """Print text verbatim: brackets are not markup, and paths are not wrapped."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
