"""Whether a volume is a slab that is too thin in the plane that a model uses."""

from __future__ import annotations

from collections.abc import Sequence

from caps_med.images import MedicalImage, Plane
from caps_med.images.slices import AXCODES, stack_shape
from caps_med.preprocessing import PreparedSlices
from caps_med.wording import counted

#: An edge of fewer pixels, and less than this share of the longest one, makes a strip, in which
#: `brain-tissue` recognizes too little: ``docs/guides/uncertainty.md`` has the figures.
NARROW, SHARE = 32, 1 / 3
#: The plane that an axis of `AXCODES` runs across.
_ACROSS = {"S": "axial", "I": "axial", "P": "coronal", "L": "sagittal"}


def slab(prepared: PreparedSlices, plane: Plane, spatial_dims: int) -> tuple[str, ...]:
    """A warning about a prepared volume that is a slab across the slices of `plane`, or empty.

    Args:
        spatial_dims: of the network; a 3-D one also needs some slices.
    """
    stack = prepared.stack
    if stack.spacing is None:
        return ()
    depth, _, rows, columns = prepared.slices.shape
    voxels = (stack.array.shape[0], *stack.array.shape[2:])
    return _told(voxels, (depth, rows, columns), plane, spatial_dims)


def slab_of(image: MedicalImage, plane: Plane) -> tuple[str, ...]:
    """The same for an image that is not resampled, for a network of pictures."""
    if image.spatial_dims == 2:
        return ()
    voxels, _ = stack_shape(image, plane)
    return _told(voxels, voxels, plane, 2)


def _told(
    voxels: Sequence[int], pixels: Sequence[int], plane: Plane, spatial_dims: int
) -> tuple[str, ...]:
    """`voxels` and `pixels` are (slices, rows, columns), before and after resampling."""
    axes = range(3 - spatial_dims, 3)
    thinnest = min(axes, key=lambda axis: pixels[axis])
    edge, longest = pixels[thinnest], max(pixels[axis] for axis in axes)
    if edge >= NARROW or edge >= SHARE * longest:
        return ()
    across = AXCODES[plane][thinnest]
    only = counted(voxels[thinnest], f"{_ACROSS[across]} slice")
    if spatial_dims == 3:
        return (
            f"the volume has only {only}, and the model looks at volumes: too little of the "
            "surroundings is seen; give the whole volume",
        )
    rows, columns = pixels[1:]
    return (
        f"the volume has only {only}, and the model looks at {plane} slices, of which strips of "
        f"{rows} x {columns} pixels are left: hardly anything is recognized in them; give the "
        f"whole volume, or {plane} slices",
    )
