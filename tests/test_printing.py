from __future__ import annotations

import io

from rich.console import Console

from caps_med.printing import Terminal, print_line


def test_a_line_is_printed_verbatim_and_unwrapped() -> None:
    console = Console(file=(printed := io.StringIO()), width=20)
    print_line(console, text := "report in models [old]/a[/b]/report.html")
    assert printed.getvalue() == f"{text}\n"


def test_what_would_command_the_terminal_is_shown() -> None:
    """As `\x1b]0;`, which sets the title of a window; styles of our own stay."""
    console = Terminal(
        file=(printed := io.StringIO()), force_terminal=True, color_system="standard"
    )
    print_line(console, "tensor a\x1b]0;owned\x9b2J\x7f\nb")
    console.print("\x1b[31mname", style="bold", highlight=False)
    lines = printed.getvalue().splitlines()
    assert lines[:2] == ["tensor a\\u001b]0;owned\\u009b2J\\u007f", "b"]
    assert lines[2] == "\x1b[1m\\u001b[31mname\x1b[0m"
