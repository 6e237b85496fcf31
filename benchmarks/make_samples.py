"""Cut the sample slice that ``caps-med demo`` shows: one axial slice of the MNI152 template.

    python -m benchmarks.make_samples

The slice is one of those held out from the training of the built-in models.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caps_med import samples
from caps_med.images import MedicalImage, write_image
from training.datasets.mni152 import template_volumes
from training.datasets.source import HELD_OUT

#: Height of the slice in voxels from the template's lowest; held out: its rank is 2 modulo 5.
HEIGHT = 82


def main() -> None:
    """Write ``t1.nii.gz`` and ``tissue.nii.gz`` into ``caps_med/samples``."""
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


def _upright(plane: NDArray[Any]) -> NDArray[Any]:
    """A displayed plane ``[H, W]`` (to posterior, to left) as ``[1, X, Y, 1]`` RAS+."""
    return np.ascontiguousarray(plane[::-1, ::-1].T)[None, ..., None]


if __name__ == "__main__":
    main()
