"""What a search writes down of its trials, and which of them it publishes."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from caps_med.errors import InvalidParameter
from caps_med.ray_connection import ClusterError
from tests.training.data.pairs import LAYOUTS, draw_pairs
from tests.training.tasks.test_pipeline import request
from training.cluster.member import Member
from training.cluster.trials import Trial, TrialsFolder
from training.cluster.tuning import _outcome, _print, best_of, tune
from training.tasks.pipeline import prepare, train

DRAWN = [{"network": "convcaps", "crop": 64}, {"network": "ucaps", "crop": 48}]


def test_a_search_is_resumed_only_as_it_was_begun(tmp_path: Path) -> None:
    folder = TrialsFolder(tmp_path / "run")
    with pytest.raises(InvalidParameter, match="holds no search: start without --resume"):
        folder.start(DRAWN, resume=True)
    folder.start(DRAWN, resume=False)
    assert [trial.values for trial in folder.read()] == DRAWN
    folder.start(DRAWN, resume=True)
    with pytest.raises(InvalidParameter, match="add --resume to continue it"):
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
    with pytest.raises(InvalidParameter, match="already holds a search"):
        tune(request(data, tmp_path), 2, "local", quiet)
    with pytest.raises(InvalidParameter, match="the data have changed since the run began"):
        tune(replace(request(data, tmp_path), resume=True), 2, "local", quiet)


def test_a_search_of_nothing_is_refused(discs: Path, tmp_path: Path) -> None:
    """As with the recipe file of a run, which has all values."""
    given = {"network": "ucaps", "learning_rate": 1e-3, "loss": "dice", "crop": 64}
    wanted = request(discs, tmp_path, overrides=given)
    with pytest.raises(InvalidParameter, match=r"--tune 4: network, .* are all given"):
        tune(wanted, 4, "local", Console(quiet=True))
    assert not wanted.folder.path.exists()


@pytest.mark.parametrize("resume", [False, True])
def test_no_other_training_takes_the_folder_of_a_search(tmp_path: Path, resume: bool) -> None:
    (tmp_path / "data").mkdir()
    data = LAYOUTS["images and labels"](tmp_path / "data", draw_pairs())
    begun, quiet = request(data, tmp_path), Console(quiet=True)
    prepare(begun, quiet, plan_again=True)
    TrialsFolder(begun.folder.path).start(DRAWN, resume=False)
    planned = begun.folder.planned.read_bytes()
    other = replace(begun, overrides={**begun.overrides, "crop": 64}, resume=resume)
    with pytest.raises(InvalidParameter, match="holds a search for the recipe: add --tune and"):
        train(other, quiet)
    assert begun.folder.planned.read_bytes() == planned


def test_the_best_is_one_that_was_trained_to_the_end() -> None:
    trials = [
        Trial(1, {}, "trained", 9, 0.7),
        Trial(2, {}, "stopped", 1, 0.9),
        Trial(3, {}, "trained", 9, 0.8),
        Trial(4, {}, "trained", 9, 0.8),
        Trial(5, {}, "failed", 2, 0.95, "the loss is nan"),
    ]
    assert best_of(trials).number == 3, "of equal ones the first"
    with pytest.raises(ClusterError, match="no trial was completed: the loss is nan"):
        best_of([trials[4], trials[1]])
    assert trials[4].row["error"] == "the loss is nan"


def test_the_traceback_of_a_failed_trial_is_kept_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> tuple[object, float]:
        raise KeyError("pose")

    folder = TrialsFolder(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    tasks = {"broken": SimpleNamespace(train=broken)}
    monkeypatch.setattr("training.cluster.member.TASKS", tasks)
    nothing: Any = None
    member = Member("broken", nothing, nothing, Path("run") / "trial-01", tmp_path)
    with pytest.raises(KeyError) as raised:
        member.train()
    assert "in broken\n    raise KeyError" in folder.run(1).trace.read_text()
    result = SimpleNamespace(metrics={"epoch": 2}, error=SimpleNamespace(cause=raised.value))
    trial = _outcome(Trial(1, DRAWN[0]), result)
    assert (trial.state, trial.error) == ("failed", "KeyError: 'pose'")
    console = Console(record=True, width=300)
    _print([trial], folder, console)
    assert f"traceback is in {folder.run(1).trace}" in console.export_text()
    tasks["broken"] = SimpleNamespace(train=lambda *_: (None, 0.5))
    assert member.train() == 0.5 and not folder.run(1).trace.exists()
