"""Patches of nuclei that are alone, touch, or are none, told apart by networks of equal size.

``python -m benchmarks.nucleus_patches --images DIR`` takes ``img2d.tif`` and ``mask2d.tif`` (512 x
512, from the Python package stardist, folder ``stardist/data/images``). The left half, in four
strips, is cut into patches by ``caps-med data patches`` to learn from, and the right half to be
scored on; no patch shares a pixel with the other half. There is but one image: a strip stands for
an image when patches are held out, and the right half says nothing about other microscopes.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.options import benchmark_parser
from benchmarks.processes import COMMAND, children_seconds

NETWORKS = ("efficient", "cnn")
MEASURES = ("accuracy", "balanced_accuracy", "auroc")
STRIPS, SIZE, BATCH = {"learned": 4, "scored": 1}, 32, 16
#: Nuclei look alike from all sides.
RECIPE = ("--set", "augmentation.rotation=180", "--set", "augmentation.flip=0.5")


def main() -> None:
    """Cut, train and evaluate; one line for each network and seed."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--work", type=Path, help="folder to keep; a temporary one by default")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=40)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        for part in ("learned", "scored"):
            print(part, cut(options.images, work, part), flush=True)
        for seed in options.seeds:
            for network in NETWORKS:
                print(network, seed, measured(work, network, seed, options.epochs), flush=True)


def cut(images: Path, work: Path, part: str) -> str:
    """Write the patches of one half; how many there are."""
    for kind, file in (("images", "img2d.tif"), ("labels", "mask2d.tif")):
        whole = np.asarray(Image.open(images / file))
        half = np.array_split(whole, 2, axis=1)[part == "scored"]
        folder = work / f"{part}-halves" / kind
        folder.mkdir(parents=True)
        for number, strip in enumerate(np.array_split(half, STRIPS[part])):
            Image.fromarray(strip).save(folder / f"{number}.tif")
    data = ("--data", work / f"{part}-halves", "--out", work / part, "--size", SIZE)
    said = run("data", "patches", *data).strip()
    if part == "scored":  # of one image: intervals are those of its patches
        list_file = work / part / "list.json"
        listed = json.loads(list_file.read_text())
        for entry in listed["images"]:
            del entry["patient"]
        list_file.write_text(json.dumps(listed))
    return said


def measured(work: Path, network: str, seed: int, epochs: int) -> str:
    """Train on one half, score on the other."""
    name, models = f"{network}-{seed}", ("--models", work / "models")
    before = children_seconds()
    run(
        "train", "classification", "--network", network, "--data", work / "learned", "--name", name,
        "--seed", seed, "--epochs", epochs, "--batch-size", BATCH, *RECIPE, *models,
        "--runs", work / "runs",
    )  # fmt: skip
    seconds = children_seconds() - before
    report = work / f"report-{name}"
    run("evaluate", "--model", name, "--data", work / "scored", "--out", report, *models)
    found = json.loads((report / "summary.json").read_text())["scores"][0]
    text = []
    for measure in MEASURES:
        value, interval = (found["measures"][measure][key] for key in ("value", "interval"))
        low, high = (f"{100 * edge:.1f}" for edge in interval)
        text.append(f"{measure} {100 * value:.1f} [{low}, {high}]")
    text += [
        f"{one['name']} {100 * one['measures']['sensitivity']['value']:.0f}"
        for one in found["classes"]
    ]
    return f"{', '.join(text)}; {seconds:.0f} s of one core"


def run(*arguments: object) -> str:
    """What a command of caps-med prints."""
    done = subprocess.run(
        [COMMAND, *map(str, arguments)], check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout


if __name__ == "__main__":
    main()
