"""Ctrl-C: one line, exit status 130, and none is lost."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, NoReturn

from caps_med.cli.options import errors, say

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

#: Exit status of a command that Ctrl-C has ended, as shells have it: 128 and the signal's number.
INTERRUPTED = 130
#: Seconds after which a lost Ctrl-C comes again.
_AGAIN = 0.01


def end_stopped() -> NoReturn:
    """Say that Ctrl-C has ended the command, and end it."""
    say("stopped; no file is half written", errors)
    sys.exit(INTERRUPTED)


def keep_interrupts() -> None:
    """Raise a KeyboardInterrupt again that came where Python drops exceptions.

    Those are callbacks of the garbage collector, which `caps_med.collector` has while a command
    starts, of weak references, and ``__del__``.
    """
    usual = sys.unraisablehook

    def hook(dropped: UnraisableHookArgs) -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            signal.signal(signal.SIGALRM, _press)  # once this callback is over
            signal.setitimer(signal.ITIMER_REAL, _AGAIN)
        else:
            usual(dropped)

    sys.unraisablehook = hook


def _press(*_: object) -> None:
    signal.raise_signal(signal.SIGINT)
