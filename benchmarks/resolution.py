"""Volumes of one head at several resolutions: what a coarse image makes of thin structures.

``python -m benchmarks.resolution --image ch2bet.nii.gz`` (Colin27 without its skull, of Debian's
package mricron-data) averages blocks of voxels, segments each of the images by ``brain-t1-tissue``
and prints the volumes from labels and from probabilities, and how much of the fluid lies in voxels
that are partly outside of the brain.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from skimage.measure import block_reduce

import caps_med
from caps_med.images import MedicalImage, read_image
from caps_med.inference import Segmentation

#: Voxels of 1 mm that become one, along x, y and z.
BLOCKS = ((1, 1, 1), (1, 1, 2), (1, 1, 4), (2, 2, 1), (2, 2, 2), (2, 2, 4), (3, 3, 3))
FLUID = 1


def main() -> None:
    """Segment the image at each resolution, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--image", type=Path, required=True, help="skull-stripped head, 1 mm")
    image = read_image(parser.parse_args().image)
    model = caps_med.load_model("brain-t1-tissue")
    for block in BLOCKS:
        result = model.segment(averaged(image, block))
        labels = [volume / 1000 for volume in result.volumes.values()]
        soft = [volume / 1000 for volume in soft_volumes(result)]
        inside = block_reduce((image.array[0] > 0).astype(float), block, np.mean)
        mixed = (result.array[0] == FLUID) & (inside < 1)
        outside = float(mixed.sum()) * result.voxel_volume / 1000
        print(
            f"{' x '.join(map(str, block))} mm: labels {_cm3(labels)}, probabilities "
            f"{_cm3(soft)}, fluid partly outside the brain {outside:.0f} cm3"
        )


def averaged(image: MedicalImage, block: tuple[int, int, int]) -> MedicalImage:
    """The mean of blocks of voxels, as a scanner with larger voxels would measure it."""
    array = block_reduce(image.array[0].astype(np.float32), block, np.mean)
    affine = image.affine.copy()
    affine[:3, 3] += affine[:3, :3] @ ((np.array(block) - 1) / 2)
    affine[:3, :3] *= block
    return MedicalImage(array[None], affine, format="nifti")


def soft_volumes(result: Segmentation) -> NDArray[np.float64]:
    """Sums of the probabilities of each foreground label, scaled to a sum of 1 in each voxel."""
    lengths = result.probabilities.array
    shares: NDArray[np.float64] = (lengths / lengths.sum(0)).reshape(len(lengths), -1).sum(1)
    return shares[1:] * result.voxel_volume


def _cm3(volumes: list[float]) -> str:
    return " / ".join(f"{volume:.0f}" for volume in volumes) + " cm3"


if __name__ == "__main__":
    main()
