"""A tissue model on real heads: with and without skull, inverted, under a gamma, refined or not.

    python -m benchmarks.brain_contrasts --colin27 /usr/share/mricron/templates --out scores.json

Colin27 (Holmes et al. 1998; Debian's package mricron-data, 1 mm) is read with its skull
(``ch2.nii.gz``) and without (``ch2bet.nii.gz``); its reference is that of ``benchmarks.colin27``, a
mixture of intensities. The MNI152 template (Fonov et al. 2009) has a reference of another kind: the
tissue probability maps that come with it, averages over many heads, each classified by itself;
every fifth of its slices is held out from the training of ``brain-t1-tissue``.
Every volume is segmented as a whole, as the network answers, refined by ``em``, and with what the
model's card says of the largest components (its answer by default); labels are
compared over the whole volume and inside the brain mask. With ``--label-maps`` the same is asked of
the twelve volumes drawn from held-out label maps, as in ``benchmarks.brain_tissue``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from nilearn import datasets
from numpy.typing import NDArray

import caps_med
from benchmarks.brain_tissue import SCHEME, VOLUMES, held_out_volumes, load_maps
from benchmarks.colin27 import TISSUES, dice, reference_tissue
from benchmarks.options import benchmark_parser
from caps_med.images import MedicalImage, read_image
from caps_med.inference import Model
from caps_med.inference.refinement import refined
from training.data.mni152 import load_mni152
from training.randomization import Randomization, scheme_of

GAMMAS = (0.8, 1.25)
Labels = NDArray[np.integer]


def answers(model: Model, image: MedicalImage) -> dict[str, Labels]:
    """Label ids ``[X, Y, Z]`` of the network, refined by ``em``, and of the largest components."""
    plain = model.segment(image, refine="none")
    return {
        "network": plain.array[0],
        "refined": refined(image, plain).array[0],
        "largest components": model.refined(image, plain).array[0],
    }


def scores(found: dict[str, Labels], truth: Labels) -> dict[str, Any]:
    """Dice of each tissue by each answer, over the whole volume and inside the brain mask."""
    return {
        name: {
            "dice": dice(labels, truth),
            "dice in the brain mask": dice(labels * (truth > 0), truth),
        }
        for name, labels in found.items()
    }


def template() -> tuple[MedicalImage, Labels]:
    """MNI152 at 1 mm without its skull, and the most probable tissue inside its brain mask."""
    grey, white = (
        np.asarray(load(resolution=1).get_fdata(dtype=np.float32))
        for load in (datasets.load_mni152_gm_template, datasets.load_mni152_wm_template)
    )
    brain = np.asarray(datasets.load_mni152_brain_mask(resolution=1).dataobj) > 0
    truth = np.where(brain, 1 + np.stack([1 - grey - white, grey, white]).argmax(0), 0)
    image = datasets.load_mni152_template(resolution=1)
    assert isinstance(image, nib.Nifti1Image)  # noqa: S101 - nilearn names no type
    return read_image(image), truth


def drawn(folder: Path) -> Iterator[tuple[MedicalImage, Labels]]:
    """Volumes of 1 mm drawn from held-out label maps, and their labels."""
    maps = load_maps(folder, scheme_of(SCHEME), True, "cpu")
    for slices, labels in held_out_volumes(maps, Randomization(), VOLUMES):
        # slices are [D, H, W] with rows from front to back, volumes [X, Y, Z] to the front
        volume, truth = (x.transpose(2, 1, 0)[:, ::-1] for x in (slices, labels.numpy()))
        yield read_image((np.ascontiguousarray(volume), np.eye(4))), np.ascontiguousarray(truth)


def mean_scores(model: Model, folder: Path) -> dict[str, Any]:
    """Mean Dice of each tissue by each answer over the volumes drawn, with and without skull."""
    each = [
        {name: dice(labels, truth) for name, labels in answers(model, image).items()}
        for image, truth in drawn(folder)
    ]
    return {
        f"skull {skull}": {
            name: {
                tissue: round(float(np.mean([one[name][tissue] for one in part])), 4)
                for tissue in TISSUES.values()
            }
            for name in part[0]
        }
        for skull, part in (("on", each[::2]), ("off", each[1::2]))
    }


def contrasts(bare: MedicalImage, whole: MedicalImage) -> Iterator[tuple[str, MedicalImage]]:
    """The images of Colin27 that are scored, by what is done to them."""
    yield "without skull", bare
    yield "with skull", whole
    inverted = np.where(bare.array > 0, 256.0 - bare.array, 0)
    yield "without skull, inverted", bare.with_array(inverted)
    yield "with skull, inverted", whole.with_array(255.0 - whole.array)


def main() -> None:
    """Score a model."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--colin27", type=Path, help="folder of ch2*.nii.gz")
    parser.add_argument("--label-maps", type=Path, help="folder of SynthSeg's label maps")
    parser.add_argument("--model", default="brain-tissue")
    parser.add_argument("--models", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    model = caps_med.load_model(options.model, options.models)
    found: dict[str, Any] = {}
    if options.colin27:
        found |= colin27(model, options.colin27)
        image, truth = template()
        shown = answers(model, image)
        found["MNI152"] = scores(shown, truth)
        held_out = [int(group.removeprefix("slice ")) for group in load_mni152().held_out]
        found["MNI152, every fifth slice"] = scores(
            {name: labels[..., held_out] for name, labels in shown.items()}, truth[..., held_out]
        )
    if options.label_maps:
        found["held-out label maps"] = mean_scores(model, options.label_maps)
    options.out.write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found, indent=1))


def colin27(model: Model, folder: Path) -> dict[str, Any]:
    """Scores by what is done to Colin27, and the share of the labels that a gamma leaves."""
    bare, whole = (read_image(folder / f) for f in ("ch2bet.nii.gz", "ch2.nii.gz"))
    truth: Labels = reference_tissue(bare.array[0].astype(np.float32))
    shown = {name: answers(model, image) for name, image in contrasts(bare, whole)}
    found: dict[str, Any] = {name: scores(labels, truth) for name, labels in shown.items()}
    for skull, image in (("with skull", whole), ("without skull", bare)):
        for gamma in GAMMAS:
            bright = answers(model, image.with_array((image.array / 255.0) ** gamma))
            found[f"{skull}: labels that stay at gamma {gamma}"] = {
                name: _same(shown[skull][name], labels) for name, labels in bright.items()
            }
    return found


def _same(before: Labels, after: Labels) -> float:
    """Share of the labels that stay, of what has one before or after."""
    shown = (before > 0) | (after > 0)
    return float((before == after)[shown].mean())


if __name__ == "__main__":
    main()
