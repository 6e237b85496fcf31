"""A run in MLflow, read back by its own client; without MLflow; with an unreachable server."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from ignite.engine import Engine, Events
from rich.console import Console

from training.engine.mlflow import EXPERIMENT, VARIABLE
from training.engine.progress import ProgressReporter
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


def reported(folder: RunFolder, epochs: range) -> str:
    """Run some epochs; what was printed."""
    trainer = Engine(lambda *_: {"loss": torch.tensor(0.5)})
    trainer.load_state_dict({"epoch": epochs[0] - 1, "epoch_length": 3, "max_epochs": epochs[-1]})

    @trainer.on(Events.EPOCH_COMPLETED)  # type: ignore[untyped-decorator]
    def validate(engine: Engine) -> None:
        scores = {"loss": 0.5, "score": 0.1 * engine.state.epoch, "dice grey": 0.7,
                  "dice tumour (core) + rim/": 0.6}  # fmt: skip
        engine.state.metrics.update(scores)

    printed = io.StringIO()
    with ProgressReporter(folder, RECIPE, console=Console(file=printed, width=400)) as reporter:
        reporter.attach(trainer)
        trainer.run([0] * 3)
    return printed.getvalue()


def test_recipe_and_scores_are_logged_and_a_resumed_run_continues(
    store: str, folder: RunFolder
) -> None:
    assert "MLflow" not in reported(folder, range(1, 2))
    reported(folder, range(2, 3))
    client = mlflow.MlflowClient(store)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("mine", "FINISHED")
    assert run.data.params["epochs"] == "2"
    assert run.data.metrics["dice_grey"] == 0.7
    assert run.data.metrics["dice_tumour__core____rim_"] == 0.6, "MLflow refuses ( ) + /"
    history = client.get_metric_history(run.info.run_id, "score")
    assert [(point.step, point.value) for point in history] == [(1, 0.1), (2, 0.2)]


@pytest.mark.parametrize(
    ("error", "status"), [(KeyboardInterrupt, "KILLED"), (ValueError, "FAILED")]
)
def test_how_a_run_ended(
    store: str, folder: RunFolder, error: type[BaseException], status: str
) -> None:
    with (
        pytest.raises(error),
        ProgressReporter(folder, RECIPE, console=Console(file=io.StringIO())),
    ):
        raise error
    client = mlflow.MlflowClient(store)
    (run,) = client.search_runs([client.get_experiment_by_name(EXPERIMENT).experiment_id])
    assert run.info.status == status


def test_an_unreachable_server_is_reported_once_and_stops_nothing(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    printed = reported(folder, range(1, 3))
    assert printed.count("the training continues without it") == 1
    assert "epoch 2/2" in printed


def test_nothing_is_tracked_unless_requested(
    folder: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    reported(folder, range(1, 2))
    assert [file.name for file in tmp_path.iterdir()] == ["runs"]
    assert not (folder.path / "mlflow-run").exists()
