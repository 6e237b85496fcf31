"""Slices of two heads with the plane and the structures that each shows.

    python -m benchmarks.brain_slices --templates /usr/share/mricron/templates --out brain-slices
    caps-med train classification --data brain-slices/list.json --name brain-slices ...
    caps-med evaluate --model brain-slices --data brain-slices/list.json --out report

Training slices are cut from the MNI152 template (nilearn), test slices from another head, Colin27
(``ch2bet.nii.gz`` of Debian's package mricron-data). A slice belongs to the class of its plane and
to that of every structure of which it shows at least `SHOWN` square millimetres, by the labels of
the AAL atlas (Tzourio-Mazoyer et al. 2002, ``aal.nii.gz`` of the same package), which was drawn on
Colin27 and is taken over to the template by their common coordinates. Neighbouring slices are
alike: blocks of ten millimetres are kept together when images are held out. The template is
symmetric: of its sagittal slices those that mirror another are left out.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import affine_transform

from benchmarks.options import benchmark_parser
from caps_med.images import MedicalImage, Plane, SliceStack, read_image, write_image

PLANES = get_args(Plane)
#: Structure -> beginnings of the atlas' own codes.
STRUCTURES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "frontal lobe": ("2",),
        "parietal lobe": ("6",),
        "temporal lobe": ("8",),
        "occipital lobe": ("5",),
        "insula": ("3",),
        "cingulate gyrus": ("40",),
        "hippocampus and amygdala": ("41", "42"),
        "basal ganglia": ("70",),
        "thalamus": ("71",),
        "cerebellum": ("9",),
    }
)
#: Square millimetres of a structure that a slice must show, and of all of them to be used.
SHOWN, USED = 100, 1500
#: Slices that are held out together.
BLOCK = 10


def main() -> None:
    """Write the pictures and their list."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--templates", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    write_slices(options.templates, options.out)


def write_slices(templates: Path, out: Path) -> None:
    """Write the pictures of both heads and ``list.json`` into the folder `out`."""
    atlas = read_image(templates / "aal.nii.gz")
    codes = _codes(templates / "aal.nii.txt")
    heads = {"train": _template(), "test": read_image(templates / "ch2bet.nii.gz")}
    entries = [
        entry
        for part, head in heads.items()
        for entry in _slices(part, head, _like(atlas, head), codes, out)
    ]
    classes = [*PLANES, *STRUCTURES]
    listed = {"classes": classes, "images": entries}
    (out / "list.json").write_text(json.dumps(listed, indent=1) + "\n")
    counts = {part: sum(e["part"] == part for e in entries) for part in heads}
    print(f"{counts}, classes {', '.join(classes)}")


def _slices(
    part: str, head: MedicalImage, atlas: MedicalImage, codes: Mapping[int, str], out: Path
) -> Iterator[dict[str, Any]]:
    """Write the slices of a head, and yield their entries of the list."""
    folder = out / part
    folder.mkdir(parents=True, exist_ok=True)
    level, written = 255 / np.percentile(head.array[head.array > 0], 99.5), set[bytes]()
    for plane in PLANES:
        grey, labels = (SliceStack.from_image(x, plane).array[:, 0] for x in (head, atlas))
        for number, (picture, ids) in enumerate(zip(grey, labels, strict=True)):
            shown = _shown(ids, codes)
            if sum(shown.values()) < USED:
                continue
            file = folder / f"{plane}-{number:03}.png"
            pixels = np.clip(picture * level, 0, 255).round().astype(np.uint8)
            if pixels.tobytes() in written:
                continue
            written.add(pixels.tobytes())
            write_image(MedicalImage(pixels[None], format="png"), file)
            yield {
                "image": f"{part}/{file.name}",
                "class": [plane, *(name for name, area in shown.items() if area >= SHOWN)],
                "patient": f"{part} {plane} {number // BLOCK}",
                "part": part,
            }


def _shown(ids: NDArray[Any], codes: Mapping[int, str]) -> dict[str, int]:
    """Square millimetres of each structure in a slice of atlas labels."""
    found = dict.fromkeys(STRUCTURES, 0)
    for label, count in zip(*np.unique(ids, return_counts=True), strict=True):
        for name, beginnings in STRUCTURES.items():
            if codes.get(int(label), "").startswith(beginnings):
                found[name] += int(count)
    return found


def _codes(table: Path) -> dict[int, str]:
    """Label -> code, from lines such as ``1 Precentral_L 2001``."""
    rows = [line.split() for line in table.read_text().splitlines()]
    return {int(row[0]): row[2] for row in rows if len(row) == 3}


def _template() -> MedicalImage:
    """The T1 template inside its brain mask."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from nilearn import datasets
    image = datasets.load_mni152_template(resolution=1)
    mask = datasets.load_mni152_brain_mask(resolution=1)
    brain = np.asarray(image.dataobj, np.float32) * (np.asarray(mask.dataobj) > 0)
    return MedicalImage(brain[None], image.affine, "nifti")


def _like(atlas: MedicalImage, head: MedicalImage) -> MedicalImage:
    """The atlas' labels at the voxels of `head`, by nearest neighbour."""
    assert atlas.affine is not None and head.affine is not None  # noqa: S101 - NIfTI
    there = np.linalg.inv(atlas.affine) @ head.affine
    moved = affine_transform(
        atlas.array[0], there[:3, :3], there[:3, 3], head.array.shape[1:], order=0
    )
    return MedicalImage(moved[None], head.affine, "nifti", kind="labels")


if __name__ == "__main__":
    main()
