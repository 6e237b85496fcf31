"""A training run in MLflow, if one is requested; its failure never fails the training."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from typing import Any

from ignite.engine import Engine, Events

from caps_med.extras import has_extra, install_command
from training.engine.recipe import Recipe
from training.engine.run_folder import RunFolder

#: MLflow's own variable; without it nothing is tracked, since MLflow would by default write a
#: database into the current folder.
VARIABLE = "MLFLOW_TRACKING_URI"
EXPERIMENT = "caps_med"
#: Characters of a recipe's value that every MLflow server accepts.
_MAX_LENGTH = 250
#: What a name may not have: names of classes are in those of scores.
_NOT_IN_NAMES = re.compile(r"[^\w.-]")


class MLflowTracker:
    """One MLflow run: the recipe, and the scores of each epoch; a resumed training continues it.

    Not MONAI's MLFlowHandler: it lets an unreachable server end the training, refuses file stores,
    and starts a second run after a finished one. Here the first error, whichever it is, is printed
    and ends the tracking.

    Args:
        folder: of the run; keeps the id of the MLflow run.
        recipe: logged as parameters.
        notify: prints a line.
    """

    def __init__(self, folder: RunFolder, recipe: Recipe, notify: Callable[[str], None]) -> None:
        self._notify, self._run, self._active = notify, "", False
        self._client: Any = None
        if not os.environ.get(VARIABLE):
            return
        if not has_extra("mlflow"):
            notify(f"{VARIABLE} is set but MLflow is missing: {install_command('mlflow')}")
            return
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # else minutes per epoch
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        self._active = True
        self._guard(lambda: self._start(folder, recipe))

    def attach(self, trainer: Engine) -> None:
        """Log the trainer's metrics after every epoch."""
        trainer.add_event_handler(
            Events.EPOCH_COMPLETED, lambda: self._guard(lambda: self._log(trainer))
        )

    def end(self, error: type[BaseException] | None) -> None:
        """Record that the training finished, was stopped, or failed."""
        stopped = error is not None and issubclass(error, KeyboardInterrupt)
        status = "FINISHED" if error is None else "KILLED" if stopped else "FAILED"
        self._guard(lambda: self._client.set_terminated(self._run, status))

    def _start(self, folder: RunFolder, recipe: Recipe) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self._client = client = MlflowClient()
        id_file = folder.path / "mlflow-run"
        if id_file.is_file():
            self._run = id_file.read_text(encoding="utf-8")
            client.update_run(self._run, "RUNNING")
            return
        found = client.get_experiment_by_name(EXPERIMENT)
        experiment = found.experiment_id if found else client.create_experiment(EXPERIMENT)
        self._run = client.create_run(experiment, run_name=folder.path.name).info.run_id
        values = recipe.model_dump(mode="json").items()
        client.log_batch(self._run, params=[Param(k, str(v)[:_MAX_LENGTH]) for k, v in values])
        id_file.write_text(self._run, encoding="utf-8")

    def _log(self, trainer: Engine) -> None:
        from mlflow.entities import Metric

        now, epoch = int(1000 * time.time()), trainer.state.epoch
        metrics = [
            Metric(_NOT_IN_NAMES.sub("_", name), value, now, epoch)
            for name, value in trainer.state.metrics.items()
        ]
        self._client.log_batch(self._run, metrics=metrics)

    def _guard(self, work: Callable[[], None]) -> None:
        if not self._active:
            return
        try:
            work()
        except Exception as error:  # MLflow, its stores and servers raise any type
            self._active = False
            reason = str(error).strip().splitlines() or [type(error).__name__]
            self._notify(f"MLflow: {reason[0][:_MAX_LENGTH]}: the training continues without it")
