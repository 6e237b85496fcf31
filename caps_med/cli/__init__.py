"""The command ``caps-med``.

Ctrl-C ends it with one line even while Python is still importing: before `main` is called, next to
nothing is imported. The commands are in `caps_med.cli.commands`.
"""

from __future__ import annotations

from caps_med.cli.interrupts import end_at_once, end_stopped, keep_interrupts

__all__ = ["main"]


def main() -> None:
    """Run the command line; Ctrl-C ends it with one line and exit status 130."""
    try:
        keep_interrupts()
        from caps_med.cli.commands import run

        run()
    except KeyboardInterrupt:
        end_stopped()
    finally:
        end_at_once()
