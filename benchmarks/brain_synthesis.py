"""A generator of whole heads, on label maps that it has not seen.

    python -m benchmarks.brain_synthesis --label-maps DIR --colin27 WHOLE_HEAD --out scores.json

DIR holds the training label maps of SynthSeg (Billot et al. 2023), WHOLE_HEAD is what ``python -m
benchmarks.whole_head`` has written. Slabs of heads are synthesized, each with other seeds. The same
is asked of Gaussians, one for each class (`training.randomization`), drawn from the same label maps
without deformation.

- Geometry kept: Dice of grey and white matter that `brain-tissue` finds inside the brain.
- Distances to real slices, those of Colin27 as it is and in seven contrasts (which the generator
  has learned from), of features, power spectra and intensities; beside them every other real slice
  against those between.
- Between slices 3 mm apart: correlation of intensities that classes do not explain.
- Grid, checkerboard and border in the middle of the brain, see `training.evaluation.metrics`.
- Of how many seeds grey matter is brighter than white matter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

import caps_med
from benchmarks.options import benchmark_parser
from benchmarks.whole_head import CONTRASTS, ID, LABELS, OUTSIDE, freesurfer_head, stripped
from caps_med.images import MedicalImage, SliceStack, label_palette, read_image
from caps_med.inference import Model
from training.evaluation.dice import mean_dice
from training.evaluation.metrics import ImageSet, distances
from training.evaluation.metrics.artefacts import border, grid, slice_correlation
from training.randomization import LabelMaps, RandomImages, Randomization
from training.randomization.scheme import LabelClass, LabelScheme

Volume = NDArray[np.float32]
Labels = NDArray[np.integer]

#: The model that judges geometry.
TISSUE = "brain-tissue"
#: Axial slices of a slab, around the middle of the brain, and edge of the part that is measured.
SLAB, EDGE = 48, 192
#: Of the middle, whose border lies within the brain.
INNER = 96
#: Grey and white matter of `benchmarks.whole_head`, by their ids in `brain-tissue`.
TISSUES = {
    2: ("cerebral cortex", "cerebellar cortex", "thalamus", "caudate nucleus", "putamen",
        "pallidum", "hippocampus and amygdala"),
    3: ("cerebral white matter", "cerebellar white matter", "brain stem"),
}  # fmt: skip
#: No deformation, and a resolution of 1 mm.
CALM = {
    "rotation": 0.0, "scaling": 0.0, "shear": 0.0, "shift": 0.0, "elastic": 0.0,
    "flip_columns": 0.0, "masked": 0.0, "bias": 0.3, "resolution": (1.0, 1.0),
}  # fmt: skip


def slab(classes: Labels) -> slice:
    """Which axial slices of ``[D, H, W]``: `SLAB`, a little above the middle of the brain."""
    inside = np.flatnonzero(brain_of(classes).any((1, 2)))
    start = int(inside[0] + 0.58 * len(inside)) - SLAB // 2
    return slice(start, start + SLAB)


class Measures:
    """What is found of the images of one source.

    Args:
        tissue: the segmentation model.
    """

    def __init__(self, tissue: Model) -> None:
        self._tissue = tissue
        self.images = ImageSet()
        self._found: dict[str, list[float]] = {}
        self._inverted: list[bool] = []

    def add(self, volume: Volume, labels: Labels, geometry: bool) -> None:
        """Measure a slab ``[D, H, W]`` in [0, 1] with its classes."""
        for plane in volume[::4]:
            self.images.add(plane[None])
            middle = _inner(plane)
            self._keep("grid, dB", grid(middle))
            self._keep("checkerboard, dB", grid(middle, pitch=2))
            self._keep("border", border(middle))
        self._keep("correlation 3 mm apart", slice_correlation(volume, labels, 1.0))
        grey, white = (volume[np.isin(labels, ids_of(t))].mean() for t in (2, 3))
        self._inverted.append(bool(grey > white))
        if geometry:
            self._geometry(volume, labels)

    def _geometry(self, volume: Volume, labels: Labels) -> None:
        array = np.ascontiguousarray(volume.transpose(2, 1, 0)[:, ::-1])
        answer = self._tissue.segment(read_image((array, np.eye(4)))).array[0]
        found = answer[:, ::-1].transpose(2, 1, 0)
        truth = tissues(labels)
        inside = found * (truth > 0)
        for tissue, name in ((2, "grey matter"), (3, "white matter")):
            self._keep(f"Dice of {name}", mean_dice(inside, truth, [tissue]))

    def _keep(self, name: str, value: float | None) -> None:
        if value is not None:
            self._found.setdefault(name, []).append(value)

    def shown(self) -> dict[str, float]:
        """Means; the share of images whose grey matter is brighter."""
        found = {name: round(float(np.mean(values)), 4) for name, values in self._found.items()}
        return {**found, "grey matter brighter": float(np.mean(self._inverted))}


def tissues(labels: Labels) -> NDArray[np.uint8]:
    """Classes of `benchmarks.whole_head` as the tissues of `brain-tissue`."""
    found = np.zeros(labels.shape, np.uint8)
    found[np.isin(labels, [ID["cerebrospinal fluid"], ID["ventricle"]])] = 1
    for tissue in TISSUES:
        found[np.isin(labels, ids_of(tissue))] = tissue
    return found


def ids_of(tissue: int) -> list[int]:
    """Ids of the classes that make a tissue of `brain-tissue`."""
    return [ID[name] for name in TISSUES[tissue]]


def _inner(plane: Volume) -> Volume:
    top, left = ((n - INNER) // 2 for n in plane.shape)
    return plane[top : top + INNER, left : left + INNER]


def brain_of(labels: Labels) -> Labels:
    """Where the brain is."""
    return np.asarray(~np.isin(labels, [0, *OUTSIDE]), int)


def _cropped(array: NDArray[Any], around: NDArray[Any]) -> NDArray[Any]:
    """``[D, H, W]`` cut to `EDGE` pixels around the middle of the brain."""
    rows, columns = (np.flatnonzero(around.any(axis)) for axis in ((0, 2), (0, 1)))
    top = min(max(0, int(rows.mean()) - EDGE // 2), array.shape[1] - EDGE)
    left = min(max(0, int(columns.mean()) - EDGE // 2), array.shape[2] - EDGE)
    return np.ascontiguousarray(array[:, top : top + EDGE, left : left + EDGE])


def classes_of(file: Path) -> Labels:
    """A label map of SynthSeg ``[D, H, W]`` with the ids of `LABELS`."""
    return SliceStack.from_image(freesurfer_head(file)).array[:, 0].astype(np.uint8)


def slabs(stacks: Sequence[Labels]) -> Iterator[Labels]:
    """Each head's slab."""
    for stack in stacks:
        part = stack[slab(stack)]
        yield _cropped(part, brain_of(part.astype(int)))


def synthesized(model: Model, labels: Labels, seed: int) -> Volume:
    """The generator's image of a slab."""
    array = np.ascontiguousarray(labels.transpose(2, 1, 0)[:, ::-1])
    image = model.synthesize(read_image((array, np.eye(4)), kind="labels"), seed=seed)
    volume = image.array[0].astype(np.float32)[:, ::-1].transpose(2, 1, 0)
    return np.ascontiguousarray(volume)


def gaussians(stacks: Sequence[Labels]) -> RandomImages:
    """What draws slabs of the same label maps, undeformed, with a Gaussian for each class."""
    classes = {i: LabelClass(name=name, ids=(i,)) for i, name in LABELS.items() if i}
    scheme = LabelScheme(labels=classes)
    maps = LabelMaps.from_arrays(stacks, [(1.0, 1.0, 1.0)] * len(stacks), scheme)
    return RandomImages(maps, Randomization.model_validate(CALM), (SLAB, EDGE, EDGE))


def drawn(images: RandomImages, head: int, seed: int) -> tuple[Volume, Labels]:
    """One slab of a head and its classes; the seed draws contrast, noise and bias field."""
    generator = torch.Generator().manual_seed(seed)
    image, labels = images(generator, 1, torch.tensor([head]))
    volume = image[0, 0].numpy()
    low, high = np.percentile(volume, (0.5, 99.5))
    ids = np.array(sorted(LABELS))[labels[0, 0].numpy()]
    return np.clip((volume - low) / (high - low), 0, 1), ids


def real(folder: Path) -> Iterator[tuple[str, Volume, Labels]]:
    """The slab of Colin27 in each contrast."""
    for file in (folder / "images" / f"{look}.nii.gz" for look in ("t1", *CONTRASTS)):
        labels = read_image(folder / "labels" / file.name, kind="labels")
        classes = SliceStack.from_image(labels).array[:, 0].astype(np.uint8)
        image = SliceStack.from_image(read_image(file)).array[:, 0].astype(np.float32) / 255
        where = slab(classes)
        around = brain_of(classes.astype(int))
        padded = [np.pad(x[where], ((0, 0), (0, 0), (8, 8))) for x in (image, classes, around)]
        volume, part = (_cropped(x, padded[2]) for x in padded[:2])
        yield file.name.removesuffix(".nii.gz"), volume, part


def picture(model: Model, stacks: Sequence[Labels], file: Path, seeds: int = 6) -> None:
    """Rows of one label map each, without skull every second, and an image of each seed."""
    rows = []
    for number, slab_labels in enumerate(slabs(stacks)):
        plane = slab_labels[3 * SLAB // 4]
        plane = stripped(plane, fluid=True) if number % 2 else plane
        ids = MedicalImage(plane[None].astype(np.uint8), kind="labels", format="png")
        made = [model.synthesize(ids, seed=seed + seeds * number) for seed in range(seeds)]
        grey = [np.rint(255 * image.array[0]).astype(np.uint8) for image in made]
        colours = label_palette()[np.searchsorted(sorted(LABELS), plane)]
        rows.append(np.hstack([colours, *(np.repeat(g[..., None], 3, -1) for g in grey)]))
    Image.fromarray(np.vstack(rows).astype(np.uint8)).save(file, optimize=True)


def main() -> None:
    """Measure, write, print."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--label-maps", type=Path, required=True)
    parser.add_argument("--colin27", type=Path, required=True)
    parser.add_argument("--model", default="brain-synthesis")
    parser.add_argument("--models", type=Path)
    parser.add_argument("--seeds", type=int, default=3, help="images of each head")
    parser.add_argument("--every", type=int, default=3, help="which of the heads: every third")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--picture", type=Path, help="a sheet of images of two heads")
    options = parser.parse_args()
    model, tissue = caps_med.load_model(options.model, options.models), caps_med.load_model(TISSUE)
    found = {name: Measures(tissue) for name in ("real", "generator", "gaussians")}
    halves = ImageSet(), ImageSet()
    for name, volume, labels in real(options.colin27):
        found["real"].add(volume, labels, name == "t1")
        for number, plane in enumerate(volume[::4]):
            halves[number % 2].add(plane[None])
    files = sorted(options.label_maps.glob("*.nii.gz"))[:: options.every]
    stacks = [classes_of(file) for file in files]
    gauss = gaussians(stacks)
    for head, labels in enumerate(slabs(stacks)):
        for seed in range(options.seeds):
            found["generator"].add(synthesized(model, labels, 100 * head + seed), labels, True)
            found["gaussians"].add(*drawn(gauss, head, 100 * head + seed), True)
    scores: dict[str, Any] = {name: each.shown() for name, each in found.items()}
    scores["real"]["distances"] = asdict(distances(*halves))
    for name in ("generator", "gaussians"):
        scores[name]["distances"] = asdict(distances(found[name].images, found["real"].images))
    if options.picture:
        picture(model, stacks[:2], options.picture)
    options.out.write_text(json.dumps(scores, indent=1) + "\n")
    print(json.dumps(scores, indent=1))


if __name__ == "__main__":
    main()
