"""Start-up: processor time of short commands and of the service until it is ready, beside
``python -c "import torch, monai"`` in the same rounds.

``python -m benchmarks.startup [--rounds N]`` prints the table: the median over the rounds, and the
ratio to the import in the same round. The first round, which reads files from the disk and may
compile kernels, is not counted. ``--cold`` adds the first slice on a fresh machine: kernels are
compiled into an empty folder each time.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from benchmarks.options import benchmark_parser
from benchmarks.processes import children_seconds
from benchmarks.serving import serving
from caps_med import MedicalImage, samples

#: What the others are compared with.
PEER = "import torch, monai"
_MAIN = "from caps_med.cli import main; main()"


def main() -> None:
    """Measure, and print the table."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count (default: 5)")
    parser.add_argument("--cold", action="store_true", help="a segmentation that compiles, too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        jobs = _jobs(Path(folder), options.cold)
        rounds = [_measured(jobs) for _ in range(options.rounds + 1)][1:]
    print("| | processor time (s) | over the import |\n|---|---|---|")
    for name in jobs:
        seconds = statistics.median(one[name] for one in rounds)
        over = statistics.median(one[name] / one[PEER] for one in rounds)
        print(f"| {name} | {seconds:.2f} | {over:.2f} |")


def _jobs(folder: Path, cold: bool) -> dict[str, Callable[[], None]]:
    data = folder / "data"
    _write_pictures(data)
    model = ("--model", "brain-t1-tissue")
    segment = ("segment", *model, samples.T1, "--out", folder / "labels.nii.gz", "--overwrite")
    jobs: dict[str, Callable[[], None]] = {
        PEER: lambda: _python(PEER),
        "import torch": lambda: _python("import torch"),
        "import caps_med": lambda: _python("import caps_med"),
        "caps-med --help": lambda: _command("--help"),
        "caps-med train --help": lambda: _command("train", "--help"),
        "caps-med models list": lambda: _command("models", "list"),
        "caps-med models show": lambda: _command("models", "show", "brain-t1-tissue"),
        "caps-med data check, 12 pictures": lambda: _command("data", "check", data),
        "caps-med segment, one slice": lambda: _command(*segment),
        "caps-med serve until ready": lambda: _serve(folder / "models"),
    }
    if cold:
        jobs["caps-med segment, kernels compiled"] = lambda: _with_empty_cache(segment)
    return jobs


def _measured(jobs: Mapping[str, Callable[[], None]]) -> dict[str, float]:
    """Processor time of each job's processes, in seconds."""
    seconds = {}
    for name, run in jobs.items():
        before = children_seconds()
        run()
        seconds[name] = children_seconds() - before
    return seconds


def _python(code: str, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
    command = [sys.executable, "-c", code, *arguments]
    subprocess.run(command, env=environment, capture_output=True, check=True)


def _command(*arguments: str | Path, environment: Mapping[str, str] | None = None) -> None:
    _python(_MAIN, *map(str, arguments), environment=environment)


def _with_empty_cache(arguments: tuple[str | Path, ...]) -> None:
    with tempfile.TemporaryDirectory() as cache:
        _command(*arguments, environment={**os.environ, "NUMBA_CACHE_DIR": cache})


def _serve(models: Path) -> None:
    models.mkdir(exist_ok=True)
    with serving(models, models.parent / "serve.log", {}):
        pass


def _write_pictures(folder: Path, count: int = 12, edge: int = 128) -> None:
    noise = np.random.default_rng(0)
    for kind, values in (("images", 255), ("labels", 2)):
        (folder / kind).mkdir(parents=True)
        for number in range(count):
            array = noise.integers(0, values, (1, edge, edge), np.uint8)
            MedicalImage(array).save(folder / kind / f"{number}.png")


if __name__ == "__main__":
    main()
