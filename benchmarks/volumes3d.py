"""A 3-D SegCaps trained on crops of one half of a head segments the whole head.

``python -m benchmarks.volumes3d`` writes the left and the right half of the MNI152 template with
its tissue labels as two volumes, runs ``caps-med train segmentation --dims 3d`` (the right half
is held out), segments the whole template with ``caps-med segment``, checks shape and affine, and
prints Dice on the half that was not trained on.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path

import nibabel
import numpy as np

from benchmarks.options import benchmark_parser
from benchmarks.processes import COMMAND
from training.data.mni152 import template_volumes
from training.evaluation.dice import mean_dice


def main() -> None:
    """Write, train, segment, print."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--work", type=Path, help="folder to keep; else a temporary one")
    options, more = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as temporary:
        measure(options.work or Path(temporary), more)


def measure(work: Path, more: list[str]) -> None:
    """Train on the left half, segment the whole."""
    image, tissue = template_volumes()
    volume = image.transpose(2, 1, 0)  # [D, H, W] in display order: from slice, row, column
    label = tissue.argmax(0).astype(np.uint8).transpose(2, 1, 0)
    affine = np.diag([-1.0, -1.0, 1.0, 1.0])
    half = volume.shape[0] // 2
    for name, part in (("a-left", slice(0, half)), ("b-right", slice(half, None))):
        for kind, array in (("images", volume), ("labels", label)):
            (work / "data" / kind).mkdir(parents=True, exist_ok=True)
            file = work / "data" / kind / f"{name}.nii.gz"
            nibabel.save(nibabel.Nifti1Image(array[part], affine), file)
    nibabel.save(nibabel.Nifti1Image(volume, affine), work / "whole.nii.gz")
    places = ["--models", str(work / "models")]
    training = [COMMAND, "train", "segmentation", "--data", str(work / "data"), "--name", "head",
                "--network", "segcaps", "--dims", "3d", "--runs", str(work / "runs"), *places,
                *more]  # fmt: skip
    subprocess.run(training, check=True)
    start = time.perf_counter()
    whole, out = str(work / "whole.nii.gz"), work / "tissue.nii.gz"
    segment = [COMMAND, "segment", "--model", "head", whole, "--out", str(out), "--overwrite",
               *places]  # fmt: skip
    subprocess.run(segment, check=True)
    spent = time.perf_counter() - start
    found = nibabel.load(out)
    np.testing.assert_equal(found.shape, volume.shape)
    np.testing.assert_array_equal(found.affine, affine)
    answer = np.asarray(found.dataobj)[half:]
    names = ("fluid", "grey matter", "white matter")
    scores = ", ".join(
        f"{name} {mean_dice(answer, label[half:], [k]):.3f}" for k, name in enumerate(names, 1)
    )
    print(f"{volume.shape} in {spent:.0f} s, same shape and affine; unseen half: Dice {scores}")


if __name__ == "__main__":
    main()
