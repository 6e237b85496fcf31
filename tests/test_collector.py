"""The garbage collector rests while a program starts, and not longer."""

from __future__ import annotations

import atexit
import gc
import subprocess
import sys
import weakref
from collections.abc import Iterator
from types import ModuleType

import pytest

from caps_med.collector import (
    RARELY,
    _collect_nothing,
    _Start,
    collect_rarely_at_start,
    set_aside_for_good,
)


@pytest.fixture(autouse=True)
def _as_usual() -> Iterator[None]:
    """No start is going on, such as that of a command that an earlier test ran."""
    _end_starts()
    yield
    _end_starts()


def _end_starts() -> None:
    gc.set_threshold(700, 10, 10)
    gc.callbacks[:] = [one for one in gc.callbacks if not isinstance(one, _Start)]
    atexit.unregister(_collect_nothing)
    gc.unfreeze()


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


def test_what_is_imported_is_not_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each collection of the start finds it set aside; ``gc.collect`` still frees all garbage."""
    collect_rarely_at_start()
    monkeypatch.setitem(sys.modules, "just_imported", ModuleType("just_imported"))
    imported: list[list[int]] = [[] for _ in range(100)]
    assert gc.is_tracked(imported)
    gc.collect(0)
    assert gc.get_freeze_count() > len(imported)
    circle = _circle()
    monkeypatch.setitem(sys.modules, "another", ModuleType("another"))
    gc.collect(1)
    assert circle() is not None
    monkeypatch.setitem(sys.modules, "a_third", ModuleType("a_third"))
    gc.collect()
    assert circle() is None
    monkeypatch.setitem(sys.modules, "a_fourth", ModuleType("a_fourth"))
    gc.collect(0)
    gc.collect(0)
    assert gc.get_freeze_count() == 0  # the start is over


def test_what_a_service_has_made_at_its_start_is_not_looked_through_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    usual = gc.get_threshold()
    collect_rarely_at_start()
    before = _circle()
    set_aside_for_good()
    assert before() is None
    assert gc.get_threshold() == usual and not any(isinstance(c, _Start) for c in gc.callbacks)
    set_aside, after = gc.get_freeze_count(), _circle()
    assert set_aside > 10_000
    monkeypatch.setitem(sys.modules, "imported_later", ModuleType("imported_later"))
    gc.collect()
    assert after() is None and gc.get_freeze_count() >= set_aside - 100


class _Itself:
    """Refers to itself."""

    def __init__(self) -> None:
        self.itself = self


def _circle() -> weakref.ref[_Itself]:
    return weakref.ref(_Itself())


def test_the_end_collects_nothing() -> None:
    """Neither what was imported nor garbage: the memory goes with the process."""
    code = (
        "import gc\nfrom caps_med.collector import collect_rarely_at_start\n"
        "collect_rarely_at_start()\n"
        "class Circle:\n"
        "    def __init__(self):\n        self.itself = self\n"
        "    def __del__(self):\n        print('freed')\n"
        "Circle()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (ended.stdout, ended.stderr) == ("", "")
