"""The stages of a training profile share its processor time among them."""

from __future__ import annotations

import itertools
import time

import pytest

from benchmarks.training_profile import REST, STAGES, Stopwatch


def test_a_stage_within_another_has_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(time, "process_time", lambda: next(ticks))
    watch = Stopwatch()
    inner = watch.timed("transforms", lambda: "crop")
    with watch.stage("validation"):
        assert inner() == "crop"
    assert watch.seconds == {REST: 1, "validation": 2, "transforms": 1}


def test_every_stage_is_a_function_of_the_training() -> None:
    for functions in STAGES.values():
        for owner, name in functions:
            assert callable(getattr(owner, name))
