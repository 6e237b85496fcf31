"""What gives a synthetic image away: a grid, a border, and slices that are too much alike."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

Plane = NDArray[np.floating]

#: Spacing of the grid in pixels: three doublings of the size.
PITCH = 8
#: Offsets in the spectrum to the neighbours that a grid frequency is compared with.
AROUND = (-5, -4, -3, 3, 4, 5)
#: Smallest edge whose spectrum has such neighbours between two grid frequencies.
SMALLEST = 64
#: Distance of the slices whose residuals are compared, in mm.
APART_MM = 3.0


def grid(plane: Plane, pitch: int = PITCH) -> float | None:
    """Power at the frequencies of a grid relative to that around them, in dB: 0 without a grid.

    The median over its harmonics. None for planes below `SMALLEST` pixels.

    Args:
        plane: ``[H, W]``.
        pitch: of the grid in pixels; 2 is a checkerboard or stripes.
    """
    size = min(plane.shape) // pitch * pitch
    if size < SMALLEST:
        return None
    window = np.hanning(size)
    part = plane[:size, :size] - plane[:size, :size].mean()
    power = np.abs(np.fft.fft2(part * window[:, None] * window)) ** 2 + 1e-12
    harmonics = [size // pitch * i for i in range(pitch // 2 + 1)]
    ratios = []
    for row, column in itertools.product(harmonics, repeat=2):
        if row or column:
            near = [power[(row + down) % size, (column + right) % size]
                    for down, right in itertools.product(AROUND, repeat=2)]  # fmt: skip
            ratios.append(power[row, column] / np.median(near))
    return float(10 * np.log10(np.median(ratios)))


def border(plane: Plane) -> float | None:
    """Fine structure within `PITCH` pixels of the border relative to that inside.

    The ratio of standard deviations, 1 for no difference; None for planes that are all border, or
    without any structure inside.
    """
    if min(plane.shape) < 4 * PITCH:
        return None
    fine = plane - gaussian_filter(np.asarray(plane, np.float64), 1.5)
    near = np.ones(plane.shape, bool)
    near[PITCH:-PITCH, PITCH:-PITCH] = False
    inside = float(fine[~near].std())
    return float(fine[near].std()) / inside if inside > 1e-9 else None


def slice_correlation(volume: Plane, labels: NDArray[np.integer], slice_mm: float) -> float | None:
    """Correlation of what the labels do not explain, between slices about `APART_MM` apart.

    The residual of a voxel is its intensity minus the mean of its label; voxels labelled in both
    slices count. None without such slices.

    Args:
        volume: ``[D, H, W]``.
        labels: the same shape; 0 is background.
        slice_mm: distance from one slice to the next.
    """
    gap = max(1, round(APART_MM / slice_mm))
    ids, where = np.unique(labels, return_inverse=True)
    where = where.reshape(labels.shape)
    sums = np.bincount(where.ravel(), volume.ravel(), len(ids))
    residual = volume - (sums / np.bincount(where.ravel(), minlength=len(ids)))[where]
    found = []
    for z in range(len(volume) - gap):
        both = (labels[z] > 0) & (labels[z + gap] > 0)
        one, other = residual[z][both], residual[z + gap][both]
        if both.sum() >= PITCH**2 and one.std() > 1e-6 and other.std() > 1e-6:
            found.append(float(np.corrcoef(one, other)[0, 1]))
    return float(np.mean(found)) if found else None
