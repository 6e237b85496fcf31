from __future__ import annotations

import io

from rich.console import Console

from caps_med.printing import print_line


def test_a_line_is_printed_verbatim_and_unwrapped() -> None:
    console = Console(file=(printed := io.StringIO()), width=20)
    print_line(console, text := "report in models [old]/a[/b]/report.html")
    assert printed.getvalue() == f"{text}\n"
