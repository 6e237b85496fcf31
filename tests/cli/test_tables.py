from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text

from caps_med.cli.tables import print_table

HEADINGS = ("model, class", "Dice", "95 % Hausdorff distance", "missed")
SCORE = "0.811 ± 0.043 [0.772, 0.850]"
ROWS = [
    ("brain-t1-tissue@4, cerebrospinal fluid", SCORE, SCORE, "0"),
    ("a [bold]name[/bold] in brackets", "", SCORE, "12"),
]


def printed(width: int, title: str = "2 cases") -> str:
    stream = io.StringIO()
    print_table(Console(file=stream, width=width), HEADINGS, ROWS, title, right=("missed",))
    return stream.getvalue()


@pytest.mark.parametrize("width", [30, 40, 60, 64, 70, 80, 100, 200])
def test_no_word_is_broken_and_no_line_is_too_wide(width: int) -> None:
    text = printed(width)
    words = text.replace("│", " ").replace("┃", " ").split()
    for row in ROWS:
        for cell in row:
            assert set(cell.split()) <= set(words), (cell, text)
    lines = text.splitlines()
    wide = [line for line in lines if len(line) > width and line not in [row[0] for row in ROWS]]
    assert wide == [], text


def test_a_table_where_there_is_room_else_lines() -> None:
    assert "┃ missed ┃" in printed(80)
    assert printed(40).splitlines() == [
        "2 cases",
        "brain-t1-tissue@4, cerebrospinal fluid",
        "  Dice: 0.811 ± 0.043 [0.772, 0.850]",
        "  95 % Hausdorff distance: 0.811 ± 0.043",
        "    [0.772, 0.850]",
        "  missed: 0",
        "a [bold]name[/bold] in brackets",
        "  95 % Hausdorff distance: 0.811 ± 0.043",
        "    [0.772, 0.850]",
        "  missed: 12",
    ]


def test_a_word_longer_than_the_line_is_left_to_the_terminal() -> None:
    stream = io.StringIO()
    path = "a/very/long/path/of/a/file/that/somebody/has.nii.gz"
    console = Console(file=stream, width=40)
    print_table(
        console, ("code", "file", "what"), [(Text("unpaired", "red"), path, "no label map")]
    )
    assert path in stream.getvalue()
