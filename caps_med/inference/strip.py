"""Images side by side in one picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from caps_med.images import MedicalImage, SliceStack, to_uint8
from caps_med.images.channels import COLOURS
from caps_med.images.slices import Plane
from caps_med.inference.captions import as_rgb, captioned
from caps_med.inference.colorbars import BAR_WIDTH, ColorBar
from caps_med.inference.features import Features

if TYPE_CHECKING:
    from caps_med.inference.synthesizer import SyntheticImage

Pixels = NDArray[np.floating]

#: Atoms in a strip: those that vary most from image to image.
ATOMS = 3
_GREYS = ColorBar(
    "0, of an atom minus the value named",
    "1, of an atom plus it",
    "capsule length or atom, without unit",
    np.linspace(0, 255, BAR_WIDTH).astype(np.uint8)[None, :, None].repeat(3, 2),
)


def strip(
    images: Sequence[MedicalImage], plane: Plane, features: Sequence[Features] = ()
) -> MedicalImage:
    """Images of one size side by side, as an 8-bit picture `[C, H, N W]`.

    Args:
        images: `[C, *S]` in [0, 1]; for volumes the middle slice in `plane` is shown.
        plane: plane of the slices.
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
        for _, values in (_capsule_rows(features) if features else ())
    ]
    return tiled([*rows_of(row), *below])


def captioned_strip(
    images: Sequence[SyntheticImage], plane: Plane, features: Sequence[Features]
) -> MedicalImage:
    """`strip` with captions: seeds and positions above, capsules and atoms on the left."""
    shown = [SliceStack.from_image(image, plane).array for image in images]
    pictures = rows_of([one[len(one) // 2] for one in shown])
    names = ["image" if len(pictures) == 1 else f"image, channel {c}" for c in range(len(pictures))]
    rows = [[as_rgb(picture) for picture in row] for row in pictures]
    for name, values in _capsule_rows(features):
        names.append(name)
        rows.append([as_rgb(_enlarged(value, rows[0][0].shape[:2])[None]) for value in values])
    first = images[0].provenance
    columns = [f"{image.provenance.position or 0:.2f}" for image in images]
    columns[0], columns[-1] = f"seed {first.seed}", f"seed {first.to_seed}"
    [layer] = features[0].layers
    title = f"{first.model}@{first.version}: images between two seeds, and capsules of {layer}"
    return captioned(rows, names, columns, title, _GREYS)


def _capsule_rows(features: Sequence[Features]) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Names and rows `[N, H, W]` in [0, 1], see `strip`."""
    [capsules] = (np.stack(x) for x in zip(*(f.layers.values() for f in features), strict=True))
    lengths = np.linalg.norm(capsules, axis=2)  # [N, J, H, W]
    longest = int(lengths.mean((0, 2, 3)).argmax())
    yield f"capsule {longest}, length", np.asarray(lengths[:, longest])
    atoms = capsules[:, longest].swapaxes(0, 1)  # [A, N, H, W]
    for number in np.argsort(-atoms.std(1).mean((1, 2)), kind="stable")[:ATOMS]:
        largest = max(float(np.abs(atoms[number]).max()), 1e-6)
        yield f"its atom {number}, ±{largest:.2g}", 0.5 + 0.5 * atoms[number] / largest


def _enlarged(value: NDArray[np.float32], size: Sequence[int]) -> NDArray[np.float32]:
    """Resampled to `size` by nearest neighbour."""
    rows, columns = (np.arange(n) * m // n for n, m in zip(size, value.shape, strict=True))
    return np.asarray(value[rows][:, columns])


def rows_of(pictures: Sequence[Pixels]) -> list[list[Pixels]]:
    """Pictures `[C, H, W]` as a row; one row per channel if these are not colours."""
    if len(pictures[0]) in (1, COLOURS):
        return [list(pictures)]
    return [[picture[c : c + 1] for picture in pictures] for c in range(len(pictures[0]))]


def tiled(rows: Sequence[Sequence[Pixels]]) -> MedicalImage:
    """Rows of pictures `[C, H, W]` of one size in [0, 1], as an 8-bit picture without gaps."""
    whole = np.concatenate([np.concatenate(row, axis=2) for row in rows], axis=1)
    return MedicalImage(to_uint8(whole), format="png")
