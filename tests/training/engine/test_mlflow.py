"""A run in MLflow, read back with its own client; without one; and with a server that is dead."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from training.engine.mlflow import EXPERIMENT, VARIABLE
from training.engine.progress import Watch
from training.engine.run_folder import RunFolder
from training.tasks.segmentation import SegmentationRecipe

mlflow = pytest.importorskip("mlflow")
RECIPE = SegmentationRecipe(data="phantoms", epochs=2, steps=3, learning_rate=0.01, seed=0)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    address = (tmp_path / "store").as_uri()
    monkeypatch.setenv(VARIABLE, address)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return address


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    folder = RunFolder(tmp_path / "runs" / "mine")
    folder.open(RECIPE, resume=False)
    return folder


def watched(folder: RunFolder, epochs: range) -> str:
    """Watch some epochs; what was said."""
    said = io.StringIO()
    with Watch(folder, RECIPE, console=Console(file=said, width=400)) as watch:
        for epoch in epochs:
            watch.step(3 * epoch, 0.5)
            watch.epoch({"epoch": epoch, "loss": 0.5, "score": 0.1 * epoch, "dice grey": 0.7})
    return said.getvalue()


def test_recipe_and_scores_are_there_and_a_resumed_run_goes_on(
    store: str, folder: RunFolder
) -> None:
    assert "MLflow" not in watched(folder, range(1, 2))
    watched(folder, range(2, 3))
    client = mlflow.MlflowClient(store)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("mine", "FINISHED")
    assert run.data.params["epochs"] == "2"
    assert run.data.metrics["dice_grey"] == 0.7
    history = client.get_metric_history(run.info.run_id, "score")
    assert [(point.step, point.value) for point in history] == [(1, 0.1), (2, 0.2)]


@pytest.mark.parametrize(
    ("error", "status"), [(KeyboardInterrupt, "KILLED"), (ValueError, "FAILED")]
)
def test_how_a_run_ended(
    store: str, folder: RunFolder, error: type[BaseException], status: str
) -> None:
    with pytest.raises(error), Watch(folder, RECIPE, console=Console(file=io.StringIO())):
        raise error
    client = mlflow.MlflowClient(store)
    (run,) = client.search_runs([client.get_experiment_by_name(EXPERIMENT).experiment_id])
    assert run.info.status == status


def test_a_dead_server_is_said_once_and_stops_nothing(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    said = watched(folder, range(1, 3))
    assert said.count("the training goes on without it") == 1
    assert "epoch 2/2" in said


def test_nothing_is_tracked_unasked(
    folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    watched(folder, range(1, 2))
    assert [file.name for file in tmp_path.iterdir()] == ["runs"]
    assert not (folder.path / "mlflow-run").exists()
