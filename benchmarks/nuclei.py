"""Train on half a fluorescence image of nuclei and segment the other half.

``python -m benchmarks.nuclei --images DIR`` takes ``img2d.tif`` and ``mask2d.tif`` (512 x 512, from
the Python package stardist, folder ``stardist/data/images``), writes the left half as a data set,
runs ``caps-med train segmentation --data ... --name nuclei --network segcaps``, segments the right
half with the model, and prints Dice and CPU minutes.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

import caps_med
from benchmarks.options import benchmark_parser
from benchmarks.processes import COMMAND, children_seconds
from training.evaluation.dice import mean_dice


def main() -> None:
    """Write the halves, train, segment, print."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--work", type=Path, help="folder to keep; a temporary one by default")
    options, more = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        measure(options.images, work, more)


def measure(images: Path, work: Path, more: list[str]) -> None:
    """Train on the left half, score on the right."""
    image = np.asarray(Image.open(images / "img2d.tif"))
    mask = (np.asarray(Image.open(images / "mask2d.tif")) > 0).astype(np.uint8)
    half = image.shape[1] // 2
    write(work / "left", image[:, :half], mask[:, :half])
    write(work / "right", image[:, half:], mask[:, half:])
    program = [COMMAND, "train", "segmentation", "--network", "segcaps"]
    places = ["--models", str(work / "models"), "--runs", str(work / "runs")]
    command = [*program, "--data", str(work / "left"), "--name", "nuclei", *places, *more]
    subprocess.run(command, check=True)
    minutes = children_seconds() / 60
    model = caps_med.load_model("nuclei", work / "models")
    found = model.segment(work / "right" / "images" / "half.tif").array[0] > 0
    score = mean_dice(found, mask[:, half:], [1])
    print(f"right half: Dice {score:.3f}; {minutes:.1f} CPU minutes")


def write(folder: Path, image: np.ndarray, mask: np.ndarray) -> None:
    """One labelled image as a data set."""
    for kind, array in (("images", image), ("labels", mask)):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        Image.fromarray(array).save(folder / kind / "half.tif")


if __name__ == "__main__":
    main()
