"""A tissue model on an unseen head: Colin27, compared with an independent segmentation.

    python -m benchmarks.colin27 --image ch2bet.nii.gz --out colin27

``ch2bet.nii.gz`` is the skull-stripped Colin27 average from Debian's package mricron-data (Holmes
et al. 1998). The reference uses neither capsules nor the MNI152 template: a mixture of three
Gaussians on the intensities of the brain (scikit-learn), its posteriors smoothed over
neighbouring voxels ten times (a mean-field Potts model), as FSL's FAST does without its bias
field. It is a yardstick, not the ground truth: its fluid includes the partial volume of thin
sulci.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import convolve
from sklearn.mixture import GaussianMixture

import caps_med
from benchmarks.options import benchmark_parser
from caps_med.images import MedicalImage, SliceStack, read_image
from training.evaluation.dice import mean_dice

TISSUES = {1: "cerebrospinal fluid", 2: "grey matter", 3: "white matter"}
#: Strength of the neighbours' vote, and how often it is taken.
COUPLING, ROUNDS = 0.3, 10


def reference_tissue(volume: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Labels 0 to 3 of a skull-stripped T1 volume ``[X, Y, Z]``, by intensity and neighbours."""
    brain = volume > 0
    values = volume[brain][:, None]
    sample = np.random.default_rng(0).choice(len(values), 100_000, replace=False)
    mixture = GaussianMixture(3, random_state=0).fit(values[sample])
    order = np.argsort(mixture.means_[:, 0])
    deviation = np.sqrt(mixture.covariances_[order, 0, 0])
    distance = (values - mixture.means_[order, 0]) / deviation
    likely = -0.5 * distance**2 - np.log(deviation)
    cross = np.zeros((3, 3, 3))
    cross[[0, 2, 1, 1, 1, 1], [1, 1, 0, 2, 1, 1], [1, 1, 1, 1, 0, 2]] = 1
    field = np.zeros((3, *volume.shape), np.float32)
    logits = likely.T
    for _ in range(ROUNDS):
        shares = np.exp(logits - logits.max(0))
        field[:, brain] = shares / shares.sum(0)
        votes = np.stack([convolve(f, cross, mode="constant") for f in field])
        logits = likely.T + COUPLING * votes[:, brain]
    labels = np.zeros(volume.shape, np.uint8)
    labels[brain] = logits.argmax(0) + 1
    return labels


def dice(one: NDArray[np.generic], other: NDArray[np.generic]) -> dict[str, float]:
    """Dice of each tissue."""
    return {name: round(mean_dice(one, other, [label]), 4) for label, name in TISSUES.items()}


def pictures(image: MedicalImage, tissue: MedicalImage, out: Path) -> None:
    """One slice in each plane, with and without its tissues."""
    palette = tissue.palette
    assert palette is not None  # noqa: S101 - every segmentation has one
    rows = []
    for plane in ("axial", "coronal", "sagittal"):
        grey, ids = (SliceStack.from_image(x, plane).array[:, 0] for x in (image, tissue))
        middle = len(grey) // 2
        level = np.clip(grey[middle] / np.percentile(grey[grey > 0], 99.5), 0, 1) * 255
        left = np.repeat(level[..., None], 3, -1)
        right = np.where(ids[middle][..., None] > 0, palette[ids[middle]], left)
        rows.append(Image.fromarray(np.hstack([left, right]).astype(np.uint8)))
    sheet = Image.new("RGB", (max(r.width for r in rows), sum(r.height for r in rows)))
    for index, row in enumerate(rows):
        sheet.paste(row, (0, sum(r.height for r in rows[:index])))
    sheet.save(out / "planes.png")


def main() -> None:
    """Segment, score, draw."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--image", type=Path, required=True)
    parser.add_argument("--model", default="brain-t1-tissue")
    parser.add_argument("--models", type=Path)
    parser.add_argument("--out", type=Path, default=Path("colin27"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    image = read_image(options.image)
    tissue = caps_med.load_model(options.model, options.models).segment(image)
    tissue.save(options.out / "tissue.nii.gz")
    pictures(image, tissue, options.out)
    truth = reference_tissue(image.array[0].astype(np.float32))
    scores = dice(tissue.array[0], truth)
    (options.out / "scores.json").write_text(json.dumps(scores, indent=2) + "\n")
    print(json.dumps(scores, indent=2))


if __name__ == "__main__":
    main()
