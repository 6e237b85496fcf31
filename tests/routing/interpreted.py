"""Triton with its interpreter, in a process that has imported it without."""

from __future__ import annotations

import sys


def import_triton_again() -> None:
    """It reads ``TRITON_INTERPRET`` when it is imported, as `torch._dynamo` does; its native part
    stays.
    """
    names = [name for name in sys.modules if f"{name}.".startswith("triton.")]
    for name in names:
        if not name.startswith("triton._C"):
            del sys.modules[name]
