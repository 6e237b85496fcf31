"""A whole head with a rich label map, in several contrasts: ``python -m benchmarks.whole_head``.

    python -m benchmarks.whole_head --templates /usr/share/mricron/templates --out DIR

writes into DIR what the built-in `brain-synthesis` learned from, as ``images`` and ``labels``: the
Colin27 head (Holmes et al. 1998; Debian's package mricron-data) as it is and in other contrasts,
with the skull and without, and its classes under FreeSurfer's ids (`LABELS`).

Tissues of the brain are those of `benchmarks.colin27` (a mixture of intensities), deep structures,
brain stem and cerebellum follow the AAL atlas (Tzourio-Mazoyer et al. 2002), skull and soft tissue
intensity and depth. The other contrasts are no scans: intensities within the skull are mapped by a
curve through fluid, grey and white matter, so that what lies between two tissues in the image lies
between them in every contrast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import nibabel as nib
import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from benchmarks.colin27 import reference_tissue
from benchmarks.options import benchmark_parser
from caps_med.images import MedicalImage, match_labels, read_image

Volume = NDArray[np.float32]
Labels = NDArray[np.uint8]
Mask = NDArray[np.bool_]

#: FreeSurfer's id of each class (of the left half) -> its name.
LABELS = {
    0: "background",
    2: "cerebral white matter",
    3: "cerebral cortex",
    4: "ventricle",
    7: "cerebellar white matter",
    8: "cerebellar cortex",
    10: "thalamus",
    11: "caudate nucleus",
    12: "putamen",
    13: "pallidum",
    16: "brain stem",
    17: "hippocampus and amygdala",
    24: "cerebrospinal fluid",
    30: "dura mater and vessels",
    118: "skin",
    127: "soft tissue",
    129: "bone",
}
ID = {name: label for label, name in LABELS.items()}

#: Further ids of each class: of the right half, of smaller structures beside it, of the cortex by
#: gyrus, and the extra-cerebral ones of SynthSeg's label maps (Billot et al. 2023) from 500 on.
#: What these are is read off the maps: from the brain outwards come 24, 515, 507 and 511, and 514
#: lies between the hemispheres.
FURTHER: Mapping[str, Sequence[int]] = {
    "cerebral white matter": (25, 41, 57, 77, 78, 79, 85, *range(251, 256)),
    "cerebral cortex": (42, 80, 81, 82, *range(1000, 1036), *range(2000, 2036)),
    "ventricle": (5, 14, 15, 31, 43, 44, 63, 72),
    "cerebellar white matter": (46,),
    "cerebellar cortex": (47,),
    "thalamus": (9, 48, 49),
    "caudate nucleus": (26, 50, 58),
    "putamen": (51,),
    "pallidum": (52,),
    "brain stem": (28, 60),
    "hippocampus and amygdala": (18, 53, 54),
    "cerebrospinal fluid": (506,),
    "dura mater and vessels": (62, 136, 137, 163, 164, 514, 530),
    "skin": (511,),
    "soft tissue": (502, 507, 508, 509, 512),
    "bone": (515, 516),
}
#: Further id -> the class that it is read as.
ALIASES = {further: ID[name] for name, ids in FURTHER.items() for further in ids}

#: AAL names, as they begin, of each deep structure.
ATLAS: Mapping[str, tuple[str, ...]] = {
    "thalamus": ("Thalamus",),
    "caudate nucleus": ("Caudate",),
    "putamen": ("Putamen",),
    "pallidum": ("Pallidum",),
    "hippocampus and amygdala": ("Hippocampus", "Amygdala"),
}
CEREBELLUM = ("Cerebelum", "Vermis")

#: Intensities of fluid, grey and white matter, and the factor of what lies outside of the skull's
#: inner side, on a scale on which white matter of the image itself is 0.8.
CONTRASTS: Mapping[str, tuple[float, float, float, float]] = {
    "t2": (0.95, 0.55, 0.38, 0.6),
    "flair": (0.12, 0.66, 0.50, 0.7),
    "pd": (0.85, 0.80, 0.62, 0.9),
    "t1-weak": (0.30, 0.50, 0.60, 0.8),
    "t1-strong": (0.10, 0.45, 0.85, 1.0),
    "t2-strong": (1.00, 0.45, 0.25, 0.5),
    "inverted": (0.80, 0.45, 0.20, 0.5),
}
#: Skull-stripped images: the contrast, and whether the fluid around the brain is left.
STRIPPED: Mapping[str, tuple[str, bool]] = {
    "t1-brain": ("t1", True),
    "t2-brain": ("t2", True),
    "flair-brain": ("flair", False),
    "t1-bare": ("t1", False),
}
#: Of white matter in the image as it is.
WHITE = 0.8


#: Classes beyond the fluid around the brain.
OUTSIDE = [ID[name] for name in ("dura mater and vessels", "skin", "soft tissue", "bone")]
#: Voxels around an image in which it is continued by its border.
MARGIN = 8
_WITHIN = (slice(MARGIN, -MARGIN),) * 3


class Head(NamedTuple):
    """A head of 1 mm voxels, axes to right, front and top.

    Attributes:
        image: ``[X, Y, Z]``.
        brain: where the brain is, with the fluid in it.
        affine: of voxels to mm.
    """

    image: Volume
    brain: Mask
    affine: NDArray[np.float64]


def colin27(templates: Path) -> Head:
    """The average of 27 scans of one person."""
    whole = nib.Nifti1Image.from_filename(templates / "ch2.nii.gz")
    brain = nib.Nifti1Image.from_filename(templates / "ch2bet.nii.gz")
    image = np.asarray(whole.dataobj, np.float32)
    return Head(image, np.asarray(brain.dataobj) > 0, np.asarray(whole.affine, float))


def label_map(head: Head, templates: Path) -> Labels:
    """The classes of a T1 head, see the module's docstring."""
    names = _atlas_names(templates / "aal.nii.txt")
    atlas = np.asarray(nib.Nifti1Image.from_filename(templates / "aal.nii.gz").dataobj)

    def region(starts: tuple[str, ...], grow: int = 0) -> Mask:
        ids = [i for i, name in names.items() if name.startswith(starts)]
        found = np.isin(atlas, ids)
        return ndimage.binary_dilation(found, iterations=grow) if grow else found

    tissue = reference_tissue(np.where(head.brain, head.image, 0))
    fluid, grey, white = (tissue == i for i in (1, 2, 3))
    labels = np.zeros(head.image.shape, np.uint8)
    _around_the_brain(labels, head)
    labels[fluid] = ID["cerebrospinal fluid"]
    labels[grey], labels[white] = ID["cerebral cortex"], ID["cerebral white matter"]
    inner = ndimage.distance_transform_edt(head.brain) > 20
    labels[_connected(fluid & inner, 500)] = ID["ventricle"]
    cerebellum = region(CEREBELLUM, 4) & ~region(("Occipital", "Temporal", "Lingual", "Fusiform"))
    labels[cerebellum & grey] = ID["cerebellar cortex"]
    labels[cerebellum & white] = ID["cerebellar white matter"]
    labels[_brain_stem(head, cerebellum, atlas > 0) & (grey | white)] = ID["brain stem"]
    for name, starts in ATLAS.items():
        solid = ~fluid & ~(white & (name in ("caudate nucleus", "hippocampus and amygdala")))
        labels[region(starts) & solid] = ID[name]
    return labels


def _atlas_names(file: Path) -> dict[int, str]:
    rows = (line.split() for line in file.read_text().splitlines() if line.strip())
    return {int(row[0]): row[1] for row in rows}


def _connected(mask: Mask, least: int) -> Mask:
    """Its components of at least so many voxels."""
    components, _ = ndimage.label(mask)
    large = np.bincount(components.ravel()) >= least
    large[0] = False
    return np.asarray(large[components])


def _brain_stem(head: Head, cerebellum: Mask, in_atlas: Mask) -> Mask:
    """What the atlas leaves out in the middle, in front of the cerebellum and below z = -8 mm."""
    x, y, z = np.moveaxis(
        np.moveaxis(np.indices(head.image.shape), 0, -1) @ head.affine[:3, :3].T
        + head.affine[:3, 3], -1, 0,
    )  # fmt: skip
    place = (abs(x) < 18) & (y < -8) & (y > -48) & (z < -8)
    stem = head.brain & place & ~in_atlas & ~cerebellum
    return _connected(ndimage.binary_opening(stem, iterations=2), 2000)


def _around_the_brain(labels: Labels, head: Head) -> None:
    """Fill in what surrounds the brain: fluid, dura mater, bone, soft tissue and skin."""
    level = np.percentile(head.image[head.brain], 90)  # about that of white matter
    bright = ndimage.gaussian_filter(head.image, 0.7) > 0.2 * level
    body = _filled(_closed(_connected(bright, 100_000)))
    outside = ndimage.distance_transform_edt(~head.brain)
    depth = ndimage.distance_transform_edt(np.pad(body, MARGIN, "edge"))[_WITHIN]
    inside = head.image > 0.45 * level
    labels[body] = ID["soft tissue"]
    dark = body & ~head.brain & (ndimage.median_filter(head.image, 3) < 0.38 * level)
    bone = ndimage.binary_closing(dark, iterations=3) & body & (depth > 3)
    labels[bone] = ID["bone"]
    shell = body & ~head.brain & (outside < 3)
    labels[shell & ~inside] = ID["cerebrospinal fluid"]
    labels[shell & inside] = ID["dura mater and vessels"]
    labels[body & (depth <= 3)] = ID["skin"]


def _closed(mask: Mask) -> Mask:
    """Closed by 4 mm, as if the head went on beyond the image."""
    padded = np.pad(mask, MARGIN, "edge")
    return np.asarray(ndimage.binary_closing(padded, iterations=4)[_WITHIN])


def _filled(mask: Mask) -> Mask:
    """Without holes in any axial slice."""
    return np.stack([ndimage.binary_fill_holes(plane) for plane in np.moveaxis(mask, 2, 0)], 2)


def in_contrast(head: Head, labels: Labels, curve: tuple[float, float, float, float]) -> Volume:
    """The head in another contrast, 0 to 1; `curve` as in `CONTRASTS`."""
    image = np.asarray(head.image, np.float32)
    tissues = ("ventricle", "cerebral cortex", "cerebral white matter")
    own = [float(np.median(image[labels == ID[tissue]])) for tissue in tissues]
    mapped = np.interp(image, [0.0, *own, 1.5 * own[2]],
                       [0.5 * curve[0] if curve[0] < curve[2] else curve[0], *curve[:3],
                        max(0.02, curve[2] + 0.5 * (curve[2] - curve[1]))])  # fmt: skip
    within = ~np.isin(labels, [0, *OUTSIDE])
    within = ndimage.gaussian_filter(within.astype(np.float32), 0.8)
    around = np.clip(WHITE * curve[3] * image / own[2], 0, 1)
    return np.asarray(np.clip(within * mapped + (1 - within) * around, 0, 1), np.float32)


def looks(head: Head, labels: Labels) -> dict[str, Volume]:
    """The head as it is (``t1``) and in every other contrast, 0 to 1."""
    white = float(np.median(head.image[labels == ID["cerebral white matter"]]))
    as_it_is = np.clip(WHITE * head.image / white, 0, 1).astype(np.float32)
    return {"t1": as_it_is} | {k: in_contrast(head, labels, c) for k, c in CONTRASTS.items()}


def freesurfer_head(file: Path) -> MedicalImage:
    """A label map with FreeSurfer's or SynthSeg's ids, each of them as its class of `LABELS`."""
    return match_labels(read_image(file, kind="labels"), LABELS, aliases=ALIASES)


def stripped(labels: NDArray[np.integer], fluid: bool) -> Labels:
    """Without what lies outside of the brain; `fluid` keeps that around it."""
    taken = [*OUTSIDE, *([] if fluid else [ID["cerebrospinal fluid"]])]
    return np.where(np.isin(labels, taken), 0, labels).astype(np.uint8)


def write(array: Labels, affine: NDArray[np.float64], folder: Path, name: str) -> None:
    """As NIfTI."""
    folder.mkdir(parents=True, exist_ok=True)
    nib.Nifti1Image(array, affine).to_filename(folder / f"{name}.nii.gz")


def main() -> None:
    """Write images and label maps."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--templates", type=Path, required=True, help="of mricron-data")
    parser.add_argument("--out", type=Path, default=Path("whole-head"))
    options = parser.parse_args()
    head = colin27(options.templates)
    labels = label_map(head, options.templates)
    images = looks(head, labels)
    shown = {name: (image, labels) for name, image in images.items()}
    for name, (look, fluid) in STRIPPED.items():
        inner = stripped(labels, fluid)
        shown[name] = np.where(inner > 0, images[look], 0), inner
    for name, (image, ids) in shown.items():
        write(np.rint(255 * image).astype(np.uint8), head.affine, options.out / "images", name)
        write(ids, head.affine, options.out / "labels", name)
    print({LABELS[i]: int(n) for i, n in enumerate(np.bincount(labels.ravel())) if n})


if __name__ == "__main__":
    main()
