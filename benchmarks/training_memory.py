"""Peak memory of training while the data set grows from 50 to 500 volumes.

``python -m benchmarks.training_memory`` writes volumes of 96 x 96 x 96 voxels, runs the same short
``caps-med train segmentation`` on 50 and on 500 of them, and prints the peak resident memory of
each command, from the check of the data to publishing. In memory the larger set would take 1.8 GB;
the target is a difference below 300 MB.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

import nibabel
import numpy as np

from benchmarks.options import benchmark_parser
from benchmarks.processes import COMMAND

EDGE = 96
RESULTS = Path(__file__).parent / "results" / "training-memory.json"


def main() -> None:
    """Measure, print, save."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--counts", type=int, nargs="+", default=[50, 500])
    options = parser.parse_args()
    peaks = {}
    with tempfile.TemporaryDirectory() as folder:
        for count in options.counts:
            data = write_volumes(Path(folder) / "data", count)
            peaks[count] = peak_megabytes(data, Path(folder) / f"work-{count}")
            print(f"{count} volumes: peak {peaks[count]:.0f} MB", flush=True)
    difference = max(peaks.values()) - min(peaks.values())
    print(f"difference {difference:.0f} MB (at most 300)")
    RESULTS.write_text(json.dumps({"volume": [EDGE] * 3, "peak_mb": peaks}, indent=1) + "\n")


def write_volumes(root: Path, count: int) -> Path:
    """Add volumes until there are `count`: a bright ball in noise, labelled."""
    grid = np.stack(np.meshgrid(*[np.arange(EDGE)] * 3, indexing="ij")).astype(np.float32)
    for kind in ("images", "labels"):
        (root / kind).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        path = root / "images" / f"v{number:03}.nii"
        if path.exists():
            continue
        rng = np.random.default_rng(number)
        middle = rng.uniform(0.4, 0.6, (3, 1, 1, 1)) * EDGE
        ball = ((grid - middle) ** 2).sum(0) < (EDGE / 5) ** 2
        image = (ball * 60 + rng.normal(100, 10, ball.shape)).astype(np.int16)
        nibabel.save(nibabel.Nifti1Image(image, np.eye(4)), path)
        nibabel.save(
            nibabel.Nifti1Image(ball.astype(np.uint8), np.eye(4)), root / "labels" / path.name
        )
    return root


def peak_megabytes(data: Path, work: Path) -> float:
    """Peak resident memory of one training command."""
    program = [COMMAND, "train", "segmentation"]
    places = ["--models", str(work / "models"), "--runs", str(work / "runs")]
    short = ["--epochs", "1", "--steps", "3", "--batch-size", "2", "--crop", "64", "--atoms", "4"]
    command = [*program, "--data", str(data), "--name", "balls", "--dims", "2d", *places, *short]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return usage.ru_maxrss / 1024


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    main()
