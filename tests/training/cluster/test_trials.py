"""What a search writes down of its trials, and which of them it publishes."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from caps_med.errors import InvalidParameter
from caps_med.ray_connection import ClusterError
from tests.training.data.pairs import LAYOUTS, draw_pairs
from tests.training.tasks.test_pipeline import request
from training.cluster.trials import Trial, TrialsFolder
from training.cluster.tuning import best_of, tune
from training.tasks.pipeline import prepare

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


def test_a_search_is_not_resumed_with_other_data(tmp_path: Path) -> None:
    """Every fifth case is held out: with one more case, others are."""
    (tmp_path / "data").mkdir()
    data = LAYOUTS["images and labels"](tmp_path / "data", draw_pairs())
    begun, quiet = request(data, tmp_path), Console(quiet=True)
    prepare(begun, quiet, plan_again=True)
    TrialsFolder(begun.folder.path).start(DRAWN, resume=False)
    resumed = replace(begun, resume=True)
    with pytest.raises(InvalidParameter, match=r"was started with another search \(2 trials\)"):
        tune(resumed, 3, "local", quiet)
    for part in ("images", "labels"):
        first = min((data / part).iterdir())
        shutil.copy(first, first.with_name(f"added{first.suffix}"))
    with pytest.raises(InvalidParameter, match="holds a search already"):
        tune(request(data, tmp_path), 2, "local", quiet)
    with pytest.raises(InvalidParameter, match="the data have changed since the run began"):
        tune(replace(request(data, tmp_path), resume=True), 2, "local", quiet)


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
