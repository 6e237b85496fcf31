"""One training in several processes, on one node or several, started by Ray Train.

Each process runs the same command; Ray Train has made them a process group. When one is lost, all
start again and continue from the run's own checkpoint.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caps_med.errors import CapsMedError, InvalidParameter
from caps_med.ray_connection import connected
from training.atomic import write_text

#: Attempts after a process or node was lost.
RETRIES = 3
_REFUSED = "refused.json"


@dataclass(frozen=True)
class Processes:
    """How many processes there are, and what each takes of the cluster."""

    count: int
    cpus: float = 1.0
    gpus: float = 0.0


class Refused(CapsMedError):
    """The command ended with an error of caps_med in one of the processes.

    Attributes:
        reason: the code of that error.
    """

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


def run_command(
    arguments: Sequence[str], checkpoint: Path, home: Path, processes: Processes, address: str
) -> None:
    """Run ``caps-med ARGUMENTS`` in several processes, from the folder `home`, until it has ended.

    Args:
        checkpoint: of the run; where it exists, ``--resume`` is added.
        address: see `connected`.

    Raises:
        MissingExtra, ClusterError: see `connected`.
        Refused: the command ended with an error.
        RuntimeError: processes were lost more often than `RETRIES`.
    """
    config = {"arguments": list(arguments), "checkpoint": str(checkpoint), "home": str(home)}
    refused = home / _REFUSED
    refused.unlink(missing_ok=True)
    with connected(address, "training in several processes", echo=True):
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchTrainer

        resources = {"CPU": processes.cpus, **({"GPU": processes.gpus} if processes.gpus else {})}
        trainer = TorchTrainer(
            _command,
            train_loop_config=config,
            scaling_config=ScalingConfig(
                num_workers=processes.count,
                use_gpu=processes.gpus > 0,
                resources_per_worker=resources,
            ),
            run_config=RunConfig(
                name="ray-train",
                storage_path=str(home),
                failure_config=FailureConfig(max_failures=RETRIES),
            ),
        )
        try:
            trainer.fit()
        except Exception as error:
            if not refused.exists():
                raise RuntimeError(f"the training processes failed: {error}") from error
    if refused.exists():
        raise Refused(**json.loads(refused.read_text(encoding="utf-8")))


def run_here(arguments: Sequence[str], recorded: Sequence[str]) -> None:
    """Run ``caps-med ARGUMENTS`` in this process.

    Args:
        recorded: the arguments that the bundle records.

    Raises:
        CapsMedError: the command ended with it; for an argument that it does not take,
            InvalidParameter.
    """
    from caps_med.cli.commands import app
    from caps_med.plugins import add_plugins

    sys.argv = ["caps-med", *recorded]
    add_plugins(app)
    try:
        app(args=list(arguments), standalone_mode=False)
    except Exception as error:
        message = getattr(error, "format_message", None)  # of typer, in older versions of click
        if message is None:
            raise
        raise InvalidParameter(message()) from error


def _command(config: dict[str, Any]) -> None:
    """In each process."""
    os.chdir(config["home"])
    if Path(_REFUSED).exists():
        return  # another attempt would end the same way
    resume = ["--resume"] if Path(config["checkpoint"]).exists() else []
    try:
        run_here([*config["arguments"], *resume], config["arguments"])
    except CapsMedError as error:
        # at once: another process may be ended while it writes the same
        write_text(Path(_REFUSED), json.dumps({"message": str(error), "reason": error.code}))
        raise
