"""The cases, by theme; a module here registers its cases when it is imported."""

from __future__ import annotations

import pkgutil
from importlib import import_module


def load_cases() -> None:
    """Import every module of this package, so that `benchmarks.siege.case.CASES` is complete."""
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
