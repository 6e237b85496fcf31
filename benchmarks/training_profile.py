"""Where a training's processor time goes: ``python -m benchmarks.training_profile``.

Trains a segmentation network, or with ``--task synthesis`` a generator, for a few dozen steps on
axon phantoms, and on each folder that ``--data`` names, and prints the share of each stage: reading
and checking the data, transforms, forward pass, discriminator, loss, backward pass, optimizer,
validation, pictures, checkpoints, publishing. What a stage calls counts for the inner one alone.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from monai.inferers import SimpleInferer
from rich.console import Console

from benchmarks.options import benchmark_parser
from benchmarks.processes import COMMAND
from caps_med.losses import CapsuleSegmentationLoss
from training.data import open_dataset
from training.engine.progress import ProgressReporter
from training.engine.run_folder import RunFolder
from training.engine.sampling import DrawnDataset
from training.tasks import pipeline, segmentation
from training.tasks.overrides import read_overrides
from training.tasks.synthesis import train as synthesis
from training.tasks.synthesis.adversary import Adversary
from training.tasks.synthesis.losses import GeneratorLoss
from training.tasks.synthesis.step import SynthesisStep

#: Stage -> the functions that are it: an owner and the name of an attribute.
STAGES: Mapping[str, tuple[tuple[Any, str], ...]] = {
    "data": ((pipeline, "_check"), (pipeline, "_recipe")),
    "transforms": ((DrawnDataset, "__getitem__"),),
    "forward": ((SimpleInferer, "__call__"), (SynthesisStep, "_generated")),
    "discriminator": ((Adversary, "update"), (Adversary, "generator_loss")),
    "loss": (
        (CapsuleSegmentationLoss, "forward"), (GeneratorLoss, "__call__"),
        (SynthesisStep, "_regularization"),
    ),
    "backward": ((torch.Tensor, "backward"),),
    "optimizer": ((torch.optim.Adam, "step"),),
    "validation": ((segmentation, "dice_scores"), (synthesis, "synthesis_scores")),
    "pictures": ((ProgressReporter, "_save_picture"),),
    "checkpoints": ((RunFolder, "save"),),
    "publishing": ((pipeline, "publish"), (pipeline, "_report")),
}  # fmt: skip
#: Task -> the network that is trained if none is named.
NETWORKS = {"segmentation": "segcaps", "synthesis": "capspix2pix"}
#: What is in no stage: the loop, logs, imports.
REST = "rest"


class Stopwatch:
    """Processor seconds by stage; an inner stage's are not the outer one's.

    Attributes:
        seconds: stage -> seconds of this process, all threads together.
    """

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._running, self._since = [REST], time.process_time()

    def _switch(self) -> None:
        now = time.process_time()
        self.seconds[self._running[-1]] += now - self._since  # type: ignore[assignment]
        self._since = now

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """A block that belongs to a stage."""
        self._switch()
        self._running.append(name)
        try:
            yield
        finally:
            self._switch()
            self._running.pop()

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose calls belong to a stage."""

        @wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401
            with self.stage(name):
                return function(*arguments, **named)

        return call


def profile(work: Callable[[], object]) -> dict[str, float]:
    """The share of each stage in the processor time of some training."""
    watch = Stopwatch()
    with ExitStack() as patches:
        for stage, functions in STAGES.items():
            for owner, name in functions:
                timed = watch.timed(stage, getattr(owner, name))
                patches.enter_context(patch.object(owner, name, timed))
        with watch.stage(REST):
            work()
    total = sum(watch.seconds.values())
    return {stage: watch.seconds[stage] / total for stage in (*STAGES, REST)}


def trained(task: str, data: Path, work: Path, overrides: Mapping[str, Any]) -> None:
    """Train on a folder, and discard the model."""
    request = pipeline.TrainRequest(
        task, open_dataset(data), "profiled", overrides,
        models=work / "models", runs=work / "runs",
    )  # fmt: skip
    pipeline.train(request, Console(quiet=True))


def draw_phantoms(folder: Path, count: int) -> Path:
    """Labelled images of axons."""
    program = [COMMAND, "data", "phantoms"]
    asked = ["--kind", "axons", "--count", str(count), "--out", str(folder)]
    subprocess.run([*program, *asked], check=True, capture_output=True)
    return folder


def main() -> None:
    """Train, and print a table."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--data", type=Path, action="append", default=[], help="labelled images")
    parser.add_argument("--phantoms", type=int, default=8, help="images of axons; 0 for none")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--task", default="segmentation", choices=list(NETWORKS))
    parser.add_argument("--network", help="segcaps, or capspix2pix, unless it is named")
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="NAME=VALUE")
    options = parser.parse_args()
    network = options.network or NETWORKS[options.task]
    overrides = {
        **read_overrides(None, options.settings),
        "seed": 0,
        "epochs": options.epochs,
        "steps": options.steps,
        "network": network,
    }
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        sets = {folder.name: folder for folder in options.data}
        if options.phantoms:
            sets["axons"] = draw_phantoms(Path(temporary) / "axons", options.phantoms)
        for name, folder in sets.items():
            work = Path(temporary) / f"work-{name}"
            start = time.process_time()
            shares = profile(partial(trained, options.task, folder, work, overrides))
            print(f"{name}, {network}: {time.process_time() - start:.0f} s of processor")
            print("   ", "  ".join(f"{stage} {share:.1%}" for stage, share in shares.items()))


if __name__ == "__main__":
    main()
