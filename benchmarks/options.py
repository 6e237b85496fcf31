"""Command lines of the benchmarks."""

from __future__ import annotations

import argparse


def benchmark_parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser whose ``--help`` shows a module's docstring with its line breaks."""
    return argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
