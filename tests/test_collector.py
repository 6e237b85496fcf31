"""The garbage collector rests while a program starts, and not longer."""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from caps_med.collector import RARELY, collect_rarely_at_start


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    threshold, callbacks = gc.get_threshold(), list(gc.callbacks)
    yield
    gc.set_threshold(*threshold)
    gc.callbacks[:] = callbacks
    atexit.unregister(gc.freeze)


def test_it_collects_as_usual_once_imports_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    usual, callbacks = gc.get_threshold(), list(gc.callbacks)
    collect_rarely_at_start()
    assert gc.get_threshold()[0] == RARELY
    monkeypatch.setitem(sys.modules, "just_imported", ModuleType("just_imported"))
    gc.collect()
    assert gc.get_threshold()[0] == RARELY
    gc.collect()
    assert gc.get_threshold() == usual
    assert gc.callbacks == callbacks
