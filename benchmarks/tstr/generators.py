"""The generators, trained by the project's own training, each in its own process.

``python -m benchmarks.tstr.generators --work DIR --name NAME --count 8 --set KEY=VALUE ...`` trains
one and publishes it into ``DIR/models``; `trained` runs this if the model does not exist.
"""

from __future__ import annotations

import json
import resource
import shlex
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict

from benchmarks.options import benchmark_parser
from benchmarks.tstr.data import REAL, SCALE, real_samples, source
from benchmarks.tstr.locks import locked
from caps_med.bundles import ModelRepository
from caps_med.inference import Model
from training.engine.run_folder import RunFolder
from training.tasks.overrides import build_recipe, read_overrides
from training.tasks.publish import publish
from training.tasks.registry import TASKS
from training.tasks.synthesis.recipe import VALIDATED

#: Seconds between two lines of a run's log beyond which the run was not going.
_PAUSE = 120


class Cost(BaseModel):
    """What a training took.

    Attributes:
        minutes: of the clock, pauses between a kill and a resume left out.
        peak_mb: largest resident memory of the process, everything included.
    """

    model_config = ConfigDict(frozen=True)

    minutes: float
    peak_mb: float


def trained(name: str, work: Path, count: int, settings: Sequence[str], threads: int) -> Model:
    """The model of that name in ``work/models``, trained now if it is not there yet."""
    repository = ModelRepository(work / "models")
    command = [sys.executable, "-m", "benchmarks.tstr.generators", "--work", str(work),
               "--name", name, "--count", str(count), "--threads", str(threads),
               *(part for setting in settings for part in ("--set", setting))]  # fmt: skip
    with locked(work / name):
        if name not in repository.names():
            subprocess.run(command, check=True)
    return Model(repository.find(name), device="cpu")


def cost_of(name: str, work: Path) -> Cost | None:
    """What its training took; None of a model that came from elsewhere."""
    file = _folder(work, name).path / "cost.json"
    return Cost.model_validate_json(file.read_text()) if file.is_file() else None


def main() -> None:
    """Train one generator, or go on with it."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--set", dest="settings", action="append", default=[])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    repository = ModelRepository(options.work / "models")
    repository.check_name(options.name)
    task, folder = TASKS["synthesis"], _folder(options.work, options.name)
    planned = {"data": "axons", "seed": 0, "crop": 128, "batch_size": 4, "fibres": False,
               "augmentation": {"flip_rows": 0.5}, "validated": VALIDATED,
               "preparation": {"normalization": SCALE.model_dump()}}  # fmt: skip
    samples = source(real_samples(REAL, options.count))
    recipe = build_recipe(task.recipe, [planned, read_overrides(None, options.settings)])
    recipe = recipe.completed(samples)
    network, _ = task.train(samples, recipe, folder, folder.checkpoint.exists())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    cost = Cost(minutes=round(_minutes(folder), 1), peak_mb=round(peak))
    (folder.path / "cost.json").write_text(cost.model_dump_json())
    command = shlex.join(["python", "-m", "benchmarks.tstr.generators", *sys.argv[1:]])
    publish(repository, options.name, [(network, samples)], recipe, command)


def _folder(work: Path, name: str) -> RunFolder:
    return RunFolder(work / "runs" / name)


def _minutes(folder: RunFolder) -> float:
    lines = (folder.path / "progress.jsonl").read_text().splitlines()
    times: list[float] = [json.loads(line)["time"] for line in lines]
    gaps = (after - before for before, after in pairwise(times))
    return sum(gap for gap in gaps if 0 < gap < _PAUSE) / 60


if __name__ == "__main__":
    main()
