"""What a tissue segmenter learns from: Gaussians, or the generator `brain-synthesis`.

    python -m benchmarks.brain_images draw --label-maps DIR --out IMAGES
    caps-med train segmentation --data IMAGES/generator --name from-generator --models MODELS ...
    caps-med train segmentation --data IMAGES/gaussians --name from-gaussians --models MODELS ...
    python -m benchmarks.brain_images test --colin27 /usr/share/mricron/templates \
        --models MODELS --names from-generator from-gaussians --out scores.json

``draw`` makes two sets of images of the same slabs of the same label maps (SynthSeg's, Billot et
al. 2023), every second without what surrounds the brain: by the generator, and by one Gaussian for
each class (domain randomization without deformation). ``test`` asks what was learned from each
about Colin27, the head that the generator has learned from, and about the MNI152 template, as they
are and inverted, with the references of `benchmarks.brain_contrasts`.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np

import caps_med
from benchmarks.brain_contrasts import template
from benchmarks.brain_synthesis import (
    Labels,
    Volume,
    classes_of,
    drawn,
    gaussians,
    slabs,
    synthesized,
    tissues,
)
from benchmarks.colin27 import dice, reference_tissue
from benchmarks.options import benchmark_parser
from benchmarks.whole_head import stripped
from caps_med.images import MedicalImage, read_image

#: Name, image and reference ``[X, Y, Z]``.
Head = tuple[str, MedicalImage, Labels]
#: Heads that nothing is drawn from, as in `benchmarks.brain_tissue`.
HELD_OUT = (3, 9)


def main() -> None:
    """Draw, or test."""
    options = _options()
    if options.work == "draw":
        draw(options)
    else:
        test(options)


def draw(options: Namespace) -> None:
    """Write images and label maps of both kinds."""
    model = caps_med.load_model(options.model, options.models)
    files = sorted(options.label_maps.glob("*.nii.gz"))
    stacks = [classes_of(f) for i, f in enumerate(files) if i not in HELD_OUT]
    gauss = gaussians(stacks)
    for head, slab in enumerate(slabs(stacks)):
        for seed in range(options.seeds):
            name, number = f"head{head:02}-{seed}", 100 * head + seed
            labels = stripped(slab, fluid=seed % 4 == 1) if seed % 2 else slab
            _write(options.out / "generator", name, synthesized(model, labels, number), labels)
            image, classes = drawn(gauss, head, number)
            if seed % 2:
                classes = stripped(classes, fluid=seed % 4 == 1)
                image = np.where(classes > 0, image, 0)
            _write(options.out / "gaussians", name, image, classes)
        print(f"head {head}", flush=True)


def _write(folder: Path, name: str, image: Volume, labels: Labels) -> None:
    """A slab ``[D, H, W]`` as NIfTI, in 8 bits, and its tissues."""
    for kind, array in (("images", np.rint(255 * image)), ("labels", tissues(labels))):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        volume = array.astype(np.uint8).transpose(2, 1, 0)[:, ::-1]
        nib.Nifti1Image(volume, np.eye(4)).to_filename(folder / kind / f"{name}.nii.gz")


def heads(folder: Path) -> Iterator[Head]:
    """Name, image and reference of each head."""
    for name, file in (("Colin27", "ch2bet.nii.gz"), ("Colin27 with skull", "ch2.nii.gz")):
        bare = read_image(folder / "ch2bet.nii.gz").array[0].astype(np.float32)
        yield from _both(name, read_image(folder / file), reference_tissue(bare))
    yield from _both("MNI152", *template())


def _both(name: str, image: MedicalImage, truth: Labels) -> Iterator[Head]:
    yield name, image, truth
    yield f"{name}, inverted", inverted(image), truth


def inverted(image: MedicalImage) -> MedicalImage:
    """Bright and dark exchanged; what is black around a brain remains so."""
    top = float(image.array.max())
    around = image.array <= 0
    return image.with_array(np.where(around, 0, top - image.array).astype(np.float32))


def test(options: Namespace) -> None:
    """Dice inside the brain mask, as the networks answer."""
    found: dict[str, dict[str, Any]] = {}
    for name in options.names:
        model = caps_med.load_model(name, options.models)
        for head, image, truth in heads(options.colin27):
            labels = model.segment(image, refine="none").array[0] * (truth > 0)
            found.setdefault(name, {})[head] = dice(labels, truth)
            print(name, head, found[name][head], flush=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n")


def _options() -> Namespace:
    parser = benchmark_parser(__doc__)
    works = parser.add_subparsers(dest="work", required=True, parser_class=ArgumentParser)
    one = works.add_parser("draw")
    one.add_argument("--label-maps", type=Path, required=True)
    one.add_argument("--model", default="brain-synthesis")
    one.add_argument("--seeds", type=int, default=4, help="images of each head")
    other = works.add_parser("test")
    other.add_argument("--colin27", type=Path, required=True, help="folder of ch2*.nii.gz")
    other.add_argument("--names", nargs="+", required=True)
    for each in (one, other):
        each.add_argument("--models", type=Path)
        each.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
