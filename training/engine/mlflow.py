"""A training run in MLflow, where one is asked for; never a reason for the training to fail."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from caps_med.extras import has_extra, install_command
from training.engine.run_folder import Recipe, RunFolder

#: MLflow's own variable; without it nothing is tracked, for its default would write a database
#: into whatever folder the training was started in.
VARIABLE = "MLFLOW_TRACKING_URI"
EXPERIMENT = "caps_med"
#: Characters of a recipe's value that MLflow takes.
_LONGEST = 250


class Tracking:
    """One MLflow run: the recipe, and the scores of each epoch; a resumed training goes on in it.

    What goes wrong, a server that does not answer above all, is said once and ends the tracking.

    Args:
        folder: of the run; the MLflow run's id is kept there.
        recipe: logged as parameters.
        say: tells the user a line.
    """

    def __init__(self, folder: RunFolder, recipe: Recipe, say: Callable[[str], None]) -> None:
        self._say, self._run = say, ""
        self._client: Any = None
        if not os.environ.get(VARIABLE):
            return
        if not has_extra("mlflow"):
            say(f"{VARIABLE} is set and MLflow is missing: {install_command('mlflow')}")
            return
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # else minutes an epoch
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # all goes there alone
        self._guard(lambda: self._begin(folder.path, recipe))

    def epoch(self, number: int, scores: Mapping[str, float]) -> None:
        """The scores of an epoch, by name."""

        def log(client: Any) -> None:  # noqa: ANN401 - an optional package's class
            for name, value in scores.items():
                client.log_metric(self._run, name.replace(" ", "_"), value, step=number)

        self._with_client(log)

    def end(self, error: type[BaseException] | None) -> None:
        """The training ended, was stopped, or failed."""
        stopped = error is not None and issubclass(error, KeyboardInterrupt)
        status = "FINISHED" if error is None else "KILLED" if stopped else "FAILED"
        self._with_client(lambda client: client.set_terminated(self._run, status))

    def _begin(self, folder: Path, recipe: Recipe) -> None:
        from mlflow import MlflowClient

        client, kept = MlflowClient(), folder / "mlflow-run"
        if kept.is_file():
            self._run = kept.read_text()
            client.update_run(self._run, "RUNNING")
        else:
            found = client.get_experiment_by_name(EXPERIMENT)
            number = client.create_experiment(EXPERIMENT) if found is None else found.experiment_id
            self._run = client.create_run(number, run_name=folder.name).info.run_id
            for name, value in recipe.model_dump(mode="json").items():
                client.log_param(self._run, name, str(value)[:_LONGEST])
            kept.write_text(self._run)
        self._client = client

    def _with_client(self, work: Callable[[Any], None]) -> None:
        if self._client is not None:
            self._guard(lambda: work(self._client))

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # MLflow, its stores and servers raise any type
            self._client = None
            reason = str(error).strip().splitlines() or [type(error).__name__]
            self._say(f"MLflow: {reason[0][:_LONGEST]}: the training goes on without it")
