"""Waiting for what other threads and processes do."""

from __future__ import annotations

from benchmarks.waiting import PATIENCE, until

__all__ = ["PATIENCE", "until"]
