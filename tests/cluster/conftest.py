"""Tests on a real Ray cluster, in a job of their own: `make test-cluster`."""

from __future__ import annotations

import os

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs Ray where it is not installed, and fail if it has to be there."""
    try:
        import ray  # noqa: F401 -- only whether it is there
    except ModuleNotFoundError:
        if os.environ.get("CAPS_MED_NEED_RAY"):
            raise
        skip = pytest.mark.skip(reason="needs Ray: pip install 'caps-med[scale]'")
        for item in items:
            if "tests/cluster" in item.path.as_posix():
                item.add_marker(skip)
