"""What the user typed."""

from __future__ import annotations

import shlex
import sys


def command_line(without: str = "") -> str:
    """The command as it can be typed again, one flag left out."""
    return shlex.join(["caps-med", *(a for a in sys.argv[1:] if a != without)])
