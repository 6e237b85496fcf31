"""Checkerboard artifacts of transposed convolutions: ``python -m benchmarks.grid``.

    python -m benchmarks.grid --model axon-synthesis --data DIR [--models REPOSITORY]

DIR holds ``images`` and ``labels`` as `caps-med data phantoms` writes them. Printed for the real
images and for one synthetic image of each label map: the power at the frequencies of a grid of
eight pixels relative to that around them, in decibels (0: no grid), and the fine structure within
eight pixels of the border relative to that inside (1: no difference).
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

import caps_med
from benchmarks.options import benchmark_parser
from caps_med.images import as_written, read_image

#: Spacing of the grid in pixels: three doublings of the size.
PITCH = 8
#: Offsets in the spectrum to the neighbours that a grid frequency is compared with.
AROUND = (-5, -4, -3, 3, 4, 5)
Plane = NDArray[np.float64]


def comb(plane: Plane) -> float:
    """Power of a square plane ``[H, W]`` at the grid frequencies relative to neighbours, in dB."""
    size = min(plane.shape) // PITCH * PITCH
    window = np.hanning(size)
    part = plane[:size, :size] - plane[:size, :size].mean()
    power = np.abs(np.fft.fft2(part * window[:, None] * window)) ** 2
    harmonics = [size // PITCH * i for i in range(PITCH // 2 + 1)]
    ratios = []
    for row, column in itertools.product(harmonics, repeat=2):
        if row or column:
            near = [power[(row + down) % size, (column + right) % size]
                    for down, right in itertools.product(AROUND, repeat=2)]  # fmt: skip
            ratios.append(power[row, column] / np.median(near))
    return float(10 * np.log10(np.median(ratios)))


def rim(plane: Plane) -> float:
    """Standard deviation of fine structure near the border relative to that inside."""
    fine = plane - gaussian_filter(plane, 1.5)
    near = np.ones(plane.shape, bool)
    near[PITCH:-PITCH, PITCH:-PITCH] = False
    return float(fine[near].std() / fine[~near].std())


def main() -> None:
    """Measure and print."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--models", type=Path, help="Repository; built-ins are always there.")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--count", type=int, default=8, help="images")
    options = parser.parse_args()
    model = caps_med.load_model(options.model, options.models)
    folders = [sorted((options.data / name).iterdir()) for name in ("images", "labels")]
    images, labels = (files[:: max(1, len(files) // options.count)] for files in folders)
    made = (as_written(model.synthesize(file, seed=i)) for i, file in enumerate(labels))
    for name, found in (("real", map(read_image, images)), (model.bundle.reference, made)):
        planes = [_plane(image.array) for image in found]
        grid, border = (np.mean([measure(one) for one in planes]) for measure in (comb, rim))
        print(f"{name:<24} grid {grid:6.2f} dB   border {border:.2f}", flush=True)


def _plane(array: NDArray[Any]) -> Plane:
    return np.squeeze(array).astype(np.float64)


if __name__ == "__main__":
    main()
