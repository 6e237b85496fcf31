"""Images side by side in one picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from caps_med.images import MedicalImage, SliceStack, to_uint8
from caps_med.images.channels import COLOURS
from caps_med.images.slices import Plane
from caps_med.inference.features import Features

Pixels = NDArray[np.floating]

#: Atoms in a strip: those that vary most from image to image.
ATOMS = 3


def strip(
    images: Sequence[MedicalImage], plane: Plane, features: Sequence[Features] = ()
) -> MedicalImage:
    """Images of one size side by side, as an 8-bit picture `[C, H, N W]`.

    Args:
        images: `[C, *S]` in [0, 1]; of volumes the middle slice in `plane` is shown.
        plane: of the slices.
        features: one layer of each image, shown in rows below: the length of the longest capsule
            type (black 0, white 1), then `ATOMS` of its atoms, grey at 0, with one scale per row.
    """
    shown = [SliceStack.from_image(image, plane).array for image in images]
    row = [one[len(one) // 2] for one in shown]
    channels, *size = row[0].shape
    below = [
        [
            np.repeat(_enlarged(value, size)[None], COLOURS if channels == COLOURS else 1, 0)
            for value in values
        ]
        for values in (_capsule_rows(features) if features else ())
    ]
    return tiled([*rows_of(row), *below])


def _capsule_rows(features: Sequence[Features]) -> Iterator[NDArray[np.float32]]:
    """Rows `[N, H, W]` in [0, 1], see `strip`."""
    [capsules] = (np.stack(x) for x in zip(*(f.layers.values() for f in features), strict=True))
    lengths = np.linalg.norm(capsules, axis=2)  # [N, J, H, W]
    longest = int(lengths.mean((0, 2, 3)).argmax())
    yield np.asarray(lengths[:, longest])
    atoms = capsules[:, longest].swapaxes(0, 1)  # [A, N, H, W]
    for atom in atoms[np.argsort(-atoms.std(1).mean((1, 2)), kind="stable")[:ATOMS]]:
        yield 0.5 + 0.5 * atom / max(float(np.abs(atom).max()), 1e-6)


def _enlarged(value: NDArray[np.float32], size: Sequence[int]) -> NDArray[np.float32]:
    """Resampled to `size` by nearest neighbour."""
    rows, columns = (np.arange(n) * m // n for n, m in zip(size, value.shape, strict=True))
    return np.asarray(value[rows][:, columns])


def rows_of(pictures: Sequence[Pixels]) -> list[list[Pixels]]:
    """Pictures `[C, H, W]` as a row; of channels that are no colours one row each."""
    if len(pictures[0]) in (1, COLOURS):
        return [list(pictures)]
    return [[picture[c : c + 1] for picture in pictures] for c in range(len(pictures[0]))]


def tiled(rows: Sequence[Sequence[Pixels]]) -> MedicalImage:
    """Rows of pictures `[C, H, W]` of one size in [0, 1], as an 8-bit picture without gaps."""
    whole = np.concatenate([np.concatenate(row, axis=2) for row in rows], axis=1)
    return MedicalImage(to_uint8(whole), format="png")
