"""Ctrl-C: one line, exit status 130, and no Ctrl-C is lost.

Imported before everything else, so it imports next to nothing itself.
"""

from __future__ import annotations

import signal
import sys

TYPE_CHECKING = False  # typing itself takes as long to import as all the rest before `main`
if TYPE_CHECKING:
    from sys import UnraisableHookArgs
    from typing import NoReturn

#: Exit status of a command that Ctrl-C has ended, as shells have it: 128 and the signal's number.
INTERRUPTED = 130
#: Seconds after which a lost Ctrl-C comes again.
_AGAIN = 0.01


def end_stopped() -> NoReturn:
    """Say that Ctrl-C has ended the command, and end it."""
    print("stopped; no file is half written", file=sys.stderr)
    sys.exit(INTERRUPTED)


def keep_interrupts() -> None:
    """Raise a KeyboardInterrupt again if it came where Python drops exceptions.

    This happens in callbacks of the garbage collector, which `caps_med.collector` has while a
    command starts, in those of weak references, and in ``__del__``.
    """
    usual = sys.unraisablehook

    def hook(dropped: UnraisableHookArgs) -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            signal.signal(signal.SIGALRM, _press)  # once this callback is over
            signal.setitimer(signal.ITIMER_REAL, _AGAIN)
        else:
            usual(dropped)

    sys.unraisablehook = hook


def end_at_once() -> None:
    """From now on Ctrl-C ends the process silently: only Python's own shutdown is left."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _press(*_: object) -> None:
    signal.raise_signal(signal.SIGINT)
