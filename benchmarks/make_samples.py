"""Make the samples: an axial slice of the MNI152 template, another head, axons, a digit, a boot.

    python -m benchmarks.make_samples [--colin27 ch2bet.nii.gz] [--pictures DIR] [--label-maps DIR]

The slice is one of those held out from the training of the built-in models. ``ch2bet.nii.gz`` is
the skull-stripped Colin27 average of Debian's package mricron-data; without it its samples stay.
DIR holds the data of `benchmarks.classification`; without it the digit and the clothing stay.
The labels of a head are a slice of one of SynthSeg's training label maps (``--label-maps``).
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.classification.data import folder_of
from benchmarks.options import benchmark_parser
from benchmarks.whole_head import ALIASES
from caps_med import samples
from caps_med.images import MedicalImage, SliceStack, read_image, write_image
from training.data.classified import open_classified
from training.data.mni152 import template_volumes
from training.data.samples import HELD_OUT
from training.labelmaps.phantoms import axon_phantom

#: Height of the slice in voxels from the template's lowest; held out: its rank is 2 modulo 5.
HEIGHT = 82
#: Of Colin27 every second voxel in the plane and every fourth slice; its picture is this slice.
STEP = (2, 2, 4)
PICTURE = 92
#: Of SynthSeg's label maps, the id of the left thalamus, and the first that is not FreeSurfer's.
HEAD, THALAMUS, EXTRA_CEREBRAL = "training_seg_04.nii.gz", 10, 500
#: Data of `benchmarks.classification`, the number of a test image, and where it goes.
PICTURES = (("mnist10k", 920, samples.DIGIT), ("fashion", 0, samples.CLOTHING))


def main() -> None:
    """Write the samples into ``caps_med/samples``."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--colin27", type=Path)
    parser.add_argument("--pictures", type=Path)
    parser.add_argument("--label-maps", type=Path)
    options = parser.parse_args()
    if options.colin27:
        _colin27(read_image(options.colin27))
    if options.pictures:
        _pictures(options.pictures)
    if options.label_maps:
        _head(read_image(options.label_maps / HEAD, kind="labels"))
    _mni152()
    _axons()


def _pictures(data: Path) -> None:
    """One test image of each benchmark of classification."""
    with tempfile.TemporaryDirectory() as work:
        for name, number, file in PICTURES:
            dataset = open_classified(folder_of(name, data, Path(work)))
            image = dataset.read(dataset.of("test")[number])
            write_image(MedicalImage(image.array, format="png"), file)


def _head(ids: MedicalImage) -> None:
    """The axial slice through the middle of the thalamus, cut to the head; ids from 500 on are
    those of `brain-synthesis`.
    """
    stack = SliceStack.from_image(ids)
    middle = int(np.flatnonzero((stack.array == THALAMUS).any((1, 2, 3))).mean())
    plane = stack.array[middle, 0].astype(int)
    for further, own in ALIASES.items():
        if further >= EXTRA_CEREBRAL:
            plane[plane == further] = own
    rows, columns = (np.flatnonzero(plane.any(axis)) for axis in (1, 0))
    plane = plane[rows[0] - 4 : rows[-1] + 5, columns[0] - 4 : columns[-1] + 5]
    pixels = _upright(plane.astype(np.uint8))
    write_image(MedicalImage(pixels, np.eye(4), "nifti", kind="labels"), samples.HEAD_LABELS)


def _axons() -> None:
    """A phantom whose geometry and look no built-in model has seen (they learn from seed 100)."""
    image, label = axon_phantom(seed=900, case=0)
    pixels = np.rint(image * 255).astype(np.uint8)
    write_image(MedicalImage(pixels, format="png"), samples.AXONS)
    write_image(MedicalImage(label, format="png"), samples.AXON_LABELS)


def _mni152() -> None:
    volumes = template_volumes()
    slices = np.flatnonzero(volumes.tissue[1:].any(axis=(0, 2, 3)))
    rank = int(np.searchsorted(slices, HEIGHT))
    if rank % HELD_OUT != HELD_OUT // 2:
        raise SystemExit(f"slice {HEIGHT} was trained on: choose a rank of 2 modulo {HELD_OUT}")
    folder = Path(samples.__file__).parent
    affine = np.eye(4)
    affine[:3, 3] = -98, -134, -72 + HEIGHT
    pixels = _upright(np.rint(volumes.image[HEIGHT] * 1000).astype(np.int16))
    labels = _upright(volumes.tissue[:, HEIGHT].argmax(0).astype(np.uint8))
    write_image(MedicalImage(pixels, affine, "nifti"), folder / "t1.nii.gz")
    write_image(MedicalImage(labels, affine, "nifti", kind="labels"), folder / "tissue.nii.gz")


def _colin27(head: MedicalImage) -> None:
    picture = SliceStack.from_image(head).array[PICTURE].astype(np.uint8)
    write_image(MedicalImage(picture, format="png"), samples.COLIN27_SLICE)
    smaller: NDArray[np.float64] = head.array.astype(np.float64)
    for axis, step in enumerate(STEP, start=1):
        count = smaller.shape[axis] // step * step
        starts = np.arange(0, count, step)
        smaller = np.add.reduceat(smaller.take(np.arange(count), axis), starts, axis) / step
    affine = head.affine @ np.diag([*STEP, 1.0])
    affine[:3, 3] = (head.affine @ [*((np.array(STEP) - 1) / 2), 1])[:3]
    levels = np.rint(smaller).astype(np.uint8)
    write_image(MedicalImage(levels, affine, "nifti"), samples.COLIN27)


def _upright(plane: NDArray[Any]) -> NDArray[Any]:
    """A displayed plane ``[H, W]`` (to posterior, to left) as ``[1, X, Y, 1]`` RAS+."""
    return np.ascontiguousarray(plane[::-1, ::-1].T)[None, ..., None]


if __name__ == "__main__":
    main()
