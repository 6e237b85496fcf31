"""A tissue model on Colin27 with and without its skull, inverted, and under a gamma.

    python -m benchmarks.brain_contrasts --colin27 /usr/share/mricron/templates --out scores.json

Colin27 (Holmes et al. 1998; Debian's package mricron-data, 1 mm) is read with its skull
(``ch2.nii.gz``) and without (``ch2bet.nii.gz``). Every sixth axial slice is segmented, normalized
with the whole volume, and compared with the reference of ``benchmarks.colin27``: over the whole
slice, and inside the brain mask.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import caps_med
from benchmarks.colin27 import dice, reference_tissue
from benchmarks.options import benchmark_parser
from caps_med.images import MedicalImage, SliceStack, read_image
from caps_med.inference import Model
from caps_med.networks import predicted_classes

#: The lowest slice that is scored.
FIRST = 20
Slices = NDArray[np.integer]


def axial(image: MedicalImage, every: int) -> Slices:
    """Some slices of a volume, ``[D, H, W]``."""
    return SliceStack.from_image(image).array[FIRST::every, 0]


def segmented(model: Model, image: MedicalImage, every: int) -> Slices:
    """Label ids of the same slices."""
    slices = model.segmenter.prepare(image).slices[FIRST::every]
    classes: Slices = predicted_classes(model.segmenter.lengths(slices)).numpy()[:, 0]
    return classes


def main() -> None:
    """Score a model."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--colin27", type=Path, required=True, help="folder of ch2*.nii.gz")
    parser.add_argument("--model", default="brain-tissue")
    parser.add_argument("--models", type=Path)
    parser.add_argument("--every", type=int, default=6, help="axial slices that are scored")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    model, every = caps_med.load_model(options.model, options.models), options.every
    bare, whole = (read_image(options.colin27 / f) for f in ("ch2bet.nii.gz", "ch2.nii.gz"))
    reference = reference_tissue(bare.array[0].astype(np.float32))
    truth = axial(bare.with_array(reference[None]), every)
    brain = axial(bare, every) > 0
    cases = {
        "without skull": bare,
        "with skull": whole,
        "without skull, inverted": bare.with_array(np.where(bare.array > 0, 256.0 - bare.array, 0)),
        "with skull, inverted": whole.with_array(255.0 - whole.array),
    }
    found: dict[str, object] = {}
    answers = {}
    for name, image in cases.items():
        answers[name] = segmented(model, image, every)
        found[name] = {
            "dice": dice(answers[name], truth),
            "dice in the brain mask": dice(answers[name] * brain, truth),
        }
    before = answers["with skull"]
    for gamma in (0.8, 1.25):
        after = segmented(model, whole.with_array((whole.array / 255.0) ** gamma), every)
        shown = (before > 0) | (after > 0)
        found[f"labels that stay at gamma {gamma}"] = float((before == after)[shown].mean())
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
