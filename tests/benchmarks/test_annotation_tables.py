"""Tables of the annotation benchmark."""

from __future__ import annotations

import pytest

from benchmarks.annotation import tables
from benchmarks.annotation.annotator import Point


def points(rounds: int, dice: float) -> list[Point]:
    """Before any round, and after each."""
    return [
        Point(corrected=3 * k, dice=(dice + k / 100, dice), changed=0.1 if k else None)
        for k in range(rounds + 1)
    ]


def test_projects_of_a_stopped_command_with_more_rounds_are_shown_to_those_that_all_have(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """There was no table, as no project of one strategy had the last of the rounds."""
    found = {"uncertainty/0": points(4, 0.8), "diversity/0": points(2, 0.7)}
    monkeypatch.setattr(tables, "kept", lambda: {**found, "random/0": points(2, 0.6)})
    tables.show()
    shown = capsys.readouterr().out
    assert "shown are the 2 that all have" in shown
    assert "| Dice after | 0 | 3 | 6 |" in shown and "12" not in shown.split("Dice after")[1][:20]
    assert "uncertainty minus random: 0.200" in shown


def test_no_results_yet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tables, "kept", dict)
    tables.show()
    assert capsys.readouterr().out.startswith("There are no results yet")
