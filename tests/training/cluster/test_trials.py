"""What a search writes down of its trials, and which of them it publishes."""

from __future__ import annotations

from pathlib import Path

import pytest

from caps_med.errors import InvalidParameter
from caps_med.ray_connection import ClusterError
from training.cluster.trials import Trial, TrialsFolder
from training.cluster.tuning import best_of

DRAWN = [{"network": "convcaps", "crop": 64}, {"network": "ucaps", "crop": 48}]


def test_a_search_is_resumed_only_as_it_was_begun(tmp_path: Path) -> None:
    folder = TrialsFolder(tmp_path / "run")
    with pytest.raises(InvalidParameter, match="holds no search: start without --resume"):
        folder.start(DRAWN, resume=True)
    folder.start(DRAWN, resume=False)
    assert [trial.values for trial in folder.read()] == DRAWN
    folder.start(DRAWN, resume=True)
    with pytest.raises(InvalidParameter, match="already: add --resume to continue it"):
        folder.start(DRAWN, resume=False)
    with pytest.raises(InvalidParameter, match=r"2 trials.*the same --tune, --seed"):
        folder.start(DRAWN[:1], resume=True)


def test_the_best_is_one_that_was_trained_to_the_end() -> None:
    trials = [
        Trial(1, {}, "trained", 9, 0.7),
        Trial(2, {}, "stopped", 1, 0.9),
        Trial(3, {}, "trained", 9, 0.8),
        Trial(4, {}, "trained", 9, 0.8),
        Trial(5, {}, "failed", 2, 0.95, "the loss is nan"),
    ]
    assert best_of(trials).number == 3, "of equal ones the first"
    with pytest.raises(ClusterError, match="no trial was trained to the end: the loss is nan"):
        best_of([trials[4], trials[1]])
    assert trials[4].row["error"] == "the loss is nan"
