"""Good files of each format, and random damage to them."""

from __future__ import annotations

import io
from collections.abc import Iterator

import numpy as np

from caps_med.images import MedicalImage, encode_image
from tests.images.dicom_files import dataset, encoded, placed

#: Formats in which every byte that means something is under a checksum.
CHECKED = ("nifti", "png", "npz")


def good_files() -> dict[str, bytes]:
    """One small picture or volume of each format."""
    random = np.random.default_rng(11)
    grey = random.integers(0, 250, (16, 24)).astype(np.uint8)
    voxels = random.integers(-500, 900, (1, 16, 24, 2), dtype=np.int16)
    picture = MedicalImage(grey[None])
    slice_ = dataset(voxels[0, ..., 0], **placed(3.0), WindowCenter=40, WindowWidth=400)
    return {
        "nifti": encode_image(MedicalImage(voxels, np.diag([1.0, 1, 2, 1])), "nifti"),
        "png": encode_image(picture, "png"),
        "tiff": encode_image(picture, "tiff"),
        "dicom": encoded(slice_),
        "npz": npz(grey),
    }


def npz(grey: object) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, image=grey)  # type: ignore[arg-type]
    return file.getvalue()


def mutations(data: bytes, number: int, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """`number` times what was done to `data`, and what came of it, never `data` itself."""
    random = np.random.default_rng(seed)
    kinds = ("flip", "bytes", "cut", "zero", "repeat", "swap", "insert")
    made = 0
    while made < number:
        kind = kinds[made % len(kinds)]
        changed = _mutated(data, kind, random)
        if changed != data:
            made += 1
            yield kind, changed


def _mutated(data: bytes, kind: str, random: np.random.Generator) -> bytes:
    first, second = sorted(int(at) for at in random.integers(0, len(data), 2))
    changed = bytearray(data)
    if kind == "flip":
        changed[first] ^= 1 << int(random.integers(0, 8))
    elif kind == "bytes":
        # half of the damage in the header, where it hurts
        end = len(data) if random.integers(0, 2) else min(400, len(data))
        for at in random.integers(0, end, int(random.integers(1, 9))):
            changed[at] = int(random.integers(0, 256))
    elif kind == "cut":
        del changed[first:]
    elif kind == "zero":
        length = min(second - first, 64)
        changed[first : first + length] = bytes(length)
    elif kind == "repeat":
        changed[second:second] = data[first:second]
    elif kind == "swap":
        changed[first], changed[second] = changed[second], changed[first]
    else:
        changed[first:first] = random.bytes(int(random.integers(1, 50)))
    return bytes(changed)
