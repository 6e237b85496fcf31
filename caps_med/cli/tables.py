"""Tables that are readable at any width: no word is broken."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

Cell: TypeAlias = "str | Text"

#: Borders and padding of a table of no columns, and of each column.
_FRAME, _COLUMN = 1, 3
_INDENT = "  "


def print_table(
    console: Console,
    headings: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    title: str = "",
    right: Sequence[str] = (),
) -> None:
    """Print a table if its longest words fit side by side, otherwise a block of lines per row.

    Args:
        console: where to print.
        headings: of the columns; the first column names a block.
        rows: cells, shown verbatim: brackets are not markup.
        title: above the table.
        right: headings of number columns, which are right-aligned.
    """
    cells = [[Text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    columns = list(zip(*([Text(heading) for heading in headings], *cells), strict=True))
    least = [max(_longest_word(cell) for cell in column) for column in columns]
    free = console.width - _FRAME - sum(width + _COLUMN for width in least)
    if free < 0:
        _print_blocks(console, headings, cells, title)
        return
    most = [max(cell.cell_len for cell in column) for column in columns]
    _print_columns(console, headings, cells, title, _widened(least, most, free), right)


def _longest_word(cell: Text) -> int:
    return max((Text(word).cell_len for word in cell.plain.split()), default=0)


def _widened(least: Sequence[int], most: Sequence[int], free: int) -> list[int]:
    """Widths between `least` and `most`, `free` more in total: the most reduced one grows first.

    rich shrinks columns regardless of the words in them.
    """
    widths = list(least)
    for _ in range(free):
        lacking = [wanted - width for wanted, width in zip(most, widths, strict=True)]
        if max(lacking) <= 0:
            break
        widths[lacking.index(max(lacking))] += 1
    return widths


def _print_columns(
    console: Console,
    headings: Sequence[str],
    rows: Sequence[Sequence[Text]],
    title: str,
    widths: Sequence[int],
    right: Sequence[str],
) -> None:
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", show_header=any(headings))
    for heading, width in zip(headings, widths, strict=True):
        table.add_column(heading, width=width, justify="right" if heading in right else "left")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _print_blocks(
    console: Console, headings: Sequence[str], rows: Sequence[Sequence[Text]], title: str
) -> None:
    if title:
        console.print(Text(title, "italic"))
    for first, *others in rows:
        console.print(first, soft_wrap=True)
        for heading, cell in zip(headings[1:], others, strict=True):
            if cell.plain:
                line = f"{heading}: {cell.plain}" if heading else cell.plain
                console.print(Text(_wrapped(line, console.width)), soft_wrap=True)


def _wrapped(line: str, width: int) -> str:
    """Lines of whole words; a longer word stays on a line of its own, for the terminal to wrap."""
    return textwrap.fill(
        line,
        width,
        initial_indent=_INDENT,
        subsequent_indent=_INDENT * 2,
        break_long_words=False,
        break_on_hyphens=False,
    )
