"""The largest connected components of a label map, without parts attached by thin bridges.

Like MONAI's ``KeepLargestConnectedComponent`` after an opening by reconstruction (Vincent 1993,
"Morphological grayscale reconstruction in image analysis", IEEE Transactions on Image Processing
2:176), which stops after some millimetres, so that it does not grow back across a bridge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from caps_med.bundles.metadata import LargestComponents
from caps_med.inference.segmenter import Segmentation

Mask = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
#: Millimetres by which components grow in one step, at least.
STEP = 1.0


def with_largest_components(answer: Segmentation, which: LargestComponents) -> Segmentation:
    """The answer with everything outside the largest components set to background.

    Labels that `which` does not name stay, as do pictures, and volumes that are thin in some
    direction. Where labels are removed, the probabilities of all classes are added to that of the
    background.

    Args:
        answer: an answer that keeps its probabilities.
        which: see `LargestComponents`.
    """
    spacing = answer.spacing
    if spacing is None or any(
        count * mm < which.extent_mm
        for count, mm in zip(answer.spatial_shape, spacing, strict=True)
    ):
        return answer
    labels = answer.array[0]
    region: Mask = np.isin(labels, which.labels)
    gone = region & ~largest_components(region, spacing, which)
    if not gone.any() or np.array_equal(gone, region):  # or nothing is thick enough
        return answer
    kept = np.where(gone, np.array(answer.background, labels.dtype), labels)
    maps = answer.probabilities.array.copy()
    maps[0][gone] = maps[:, gone].sum(0)
    maps[1:, gone] = 0
    probabilities = answer.probabilities.with_array(maps, kind="image")
    told = f"{answer.provenance.preprocessing}; largest components"
    return replace(
        answer,
        array=kept[None],
        maps={**answer.maps, "probabilities": probabilities},
        provenance=replace(answer.provenance, preprocessing=told),
    )


def largest_components(region: Mask, spacing: Sequence[float], which: LargestComponents) -> Mask:
    """The part of a region to which its largest components grow back.

    Args:
        region: ``[X, Y, Z]``.
        spacing: millimetres between voxels along each axis.
        which: see `LargestComponents`; lengths are rounded to whole voxels along each axis.
    """
    from scipy.ndimage import label, maximum_filter1d

    numbers, _ = label(_eroded(region.view(np.uint8), which.erosion_mm, spacing))
    sizes = np.bincount(numbers.ravel())
    sizes[0] = 0
    large = (sizes > 0) & (sizes >= which.share * sizes.max())
    grown = large[numbers].view(np.uint8)
    step = max(STEP, *spacing)
    along = _along([round(step / mm) for mm in spacing], maximum_filter1d)
    for _ in range(round(which.reach_mm / step)):
        grown = reduce(along, range(region.ndim), grown) & region
    kept: Mask = grown.view(np.bool_)
    return kept


def _eroded(region: Bytes, radius_mm: float, spacing: Sequence[float]) -> Bytes:
    """Erode with a box, then a cross, of half the radius each: nearly a ball, but much faster."""
    from scipy.ndimage import minimum_filter1d

    along = _along([round(radius_mm / 2 / mm) for mm in spacing], minimum_filter1d)
    boxed = reduce(along, range(region.ndim), region)
    crossed: Bytes = np.min([along(boxed, axis) for axis in range(region.ndim)], axis=0)
    return crossed


def _along(
    radii: Sequence[int], smallest_or_largest: Callable[..., Bytes]
) -> Callable[[Bytes, int], Bytes]:
    """A filter along an axis over the given voxels on each side; 0 beyond the edge."""

    def filtered(values: Bytes, axis: int) -> Bytes:
        if not radii[axis]:
            return values
        return smallest_or_largest(values, 2 * radii[axis] + 1, axis, mode="constant", cval=0)

    return filtered
