"""Convert a volume to a stack of slices in display orientation, and back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, TypeVar, get_args

import numpy as np
from numpy.typing import DTypeLike

from caps_med.arguments import checked_index
from caps_med.errors import InvalidInput, InvalidParameter
from caps_med.images.image import Array, MedicalImage

Image = TypeVar("Image", bound=MedicalImage)
Plane: TypeAlias = Literal["axial", "coronal", "sagittal"]

# Where [slice, row, column] run to. The DICOM display convention: the patient's left is on the
# right of an axial or coronal slice, the anterior is on the left of a sagittal one.
AXCODES: dict[str, tuple[str, str, str]] = {
    "axial": ("S", "P", "L"),
    "coronal": ("P", "I", "L"),
    "sagittal": ("L", "I", "P"),
}
_OPPOSITE = {"S": "I", "I": "S", "P": "A", "A": "P", "L": "R", "R": "L"}


def axial_axes(plane: Plane) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """For each axis of a plane's stack, the axis of an axial stack ``[slice, row, column]`` along
    which it runs, and whether in the same (1) or the opposite direction (-1).

    >>> axial_axes("coronal")
    ((1, 0, 2), (1, -1, 1))
    """
    axial = AXCODES["axial"]
    same = [code in axial for code in AXCODES[plane]]
    along = [c if s else _OPPOSITE[c] for c, s in zip(AXCODES[plane], same, strict=True)]
    return tuple(axial.index(code) for code in along), tuple(1 if one else -1 for one in same)


@dataclass(frozen=True, eq=False)
class SliceStack:
    """Slices in display orientation, made by `SliceStack.from_image`.

    Voxels are only permuted and flipped, to the axes closest to the plane: an oblique volume is
    not resampled.

    Attributes:
        array: `[D, C, H, W]`. A picture is a stack of one slice.
        affine: `[4, 4]`, indices (slice, row, column) to millimetres, RAS+.
        spacing: (row_mm, column_mm), the distances between rows and between columns; None for
            pictures.
    """

    array: Array
    affine: Array
    spacing: tuple[float, float] | None
    _there: Array | None = None

    @property
    def slice_mm(self) -> float | None:
        """Distance from one slice to the next; None for pictures."""
        return None if self.spacing is None else float(np.linalg.norm(self.affine[:3, 0]))

    @property
    def lengths(self) -> tuple[float, float, float] | None:
        """Distances in mm between slices, between rows and between columns; None for pictures."""
        if self.spacing is None or self.slice_mm is None:
            return None
        return self.slice_mm, *self.spacing

    @classmethod
    def from_image(
        cls, image: MedicalImage, plane: Plane = "axial", *, copy: bool = True
    ) -> SliceStack:
        """The slices of `image` in `plane`; a picture is one slice, whichever the plane.

        Args:
            image: `[C, *S]`.
            plane: in which a volume is cut.
            copy: for a volume, whether to make a contiguous array rather than a view of the image's
                voxels, which takes no memory and may have negative strides.

        Raises:
            InvalidParameter: `plane` is not axial, coronal or sagittal.
        """
        if plane not in AXCODES:
            raise InvalidParameter(f"plane must be one of {get_args(Plane)}, got {plane!r}")
        if image.spatial_dims == 2:
            return cls(image.array[None], image.affine, None)
        from nibabel import orientations

        source = orientations.io_orientation(image.affine)
        display = orientations.axcodes2ornt(AXCODES[plane])
        there = orientations.ornt_transform(source, display)
        array = _as_slices(image.array, there)
        affine = image.affine @ orientations.inv_ornt_aff(there, image.spatial_shape)
        _, row_mm, column_mm = np.linalg.norm(affine[:3, :3], axis=0)
        return cls(
            array=np.ascontiguousarray(array) if copy else array,
            affine=affine,
            spacing=(float(row_mm), float(column_mm)),
            _there=there,
        )

    def restore(self, stack: Array) -> Array:
        """Put slices back into the voxel order of the source: the exact inverse of `from_image`.

        Args:
            stack: `[D, H, W]`, or `[D, K, H, W]` with any number of channels K.

        Returns:
            `[1, *S]` or `[K, *S]`.

        Raises:
            InvalidInput: `stack` differs from this stack in slices, rows or columns.
        """
        if stack.ndim == 3:
            stack = stack[:, None]
        depth, _, *plane = self.array.shape
        if stack.ndim != 4 or [stack.shape[0], *stack.shape[2:]] != [depth, *plane]:
            raise InvalidInput(
                f"stack must be [D, H, W] or [D, K, H, W] with D, H, W = {depth}, {plane[0]}, "
                f"{plane[1]}, got shape {stack.shape}"
            )
        restored, slices = self.blank(stack.shape[1], stack.dtype)
        slices[:] = stack
        return restored

    def blank(self, channels: int, dtype: DTypeLike) -> tuple[Array, Array]:
        """An uninitialized array `[K, *S]` in the voxel order of the source, and its slices.

        Args:
            channels: K.
            dtype: of the array.

        Returns:
            The array, and a view of it as slices `[D, K, H, W]`, to be filled one by one.
        """
        depth, _, *plane = self.array.shape
        if self._there is None:
            array = np.empty((channels, *plane), dtype)
            return array, array[None]
        sizes = [(depth, *plane)[axis] for axis in self._there[:, 0].astype(int)]
        array = np.empty((channels, *sizes), dtype)
        return array, _as_slices(array, self._there)


def _as_slices(voxels: Array, there: Array) -> Array:
    """A view of voxels `[C, *S]` as slices `[D, C, H, W]`.

    Args:
        there: nibabel's orientation from the axes of the voxels to those of the slices.
    """
    from nibabel import orientations

    array = orientations.apply_orientation(np.moveaxis(voxels, 0, -1), there)
    slices: Array = np.moveaxis(array, -1, 1)
    return slices


def chosen_slice(count: int, index: int | None) -> int:
    """The slice to look at: the middle one, or the one asked for.

    Raises:
        InvalidParameter: there is no such slice.
    """
    if index is None:
        return count // 2
    return checked_index("slice", index, count)


def slice_count(image: MedicalImage, plane: Plane = "axial") -> int:
    """How many slices an image has in `plane`; a picture is one."""
    return 1 if image.spatial_dims == 2 else image.spatial_shape[_slice_axis(image, plane)[0]]


def stack_shape(
    image: MedicalImage, plane: Plane
) -> tuple[tuple[int, int, int], tuple[float, float, float] | None]:
    """(slices, rows, columns) of `SliceStack.from_image`, and their spacings; nothing is copied.

    The spacings are in millimetres, None for a picture.
    """
    if image.spatial_dims == 2:
        rows, columns = image.spatial_shape
        return (1, rows, columns), None
    from nibabel import orientations

    source = orientations.io_orientation(image.affine)
    display = orientations.axcodes2ornt(AXCODES[plane])
    there = orientations.ornt_transform(source, display)[:, 0].astype(int)
    depth, rows, columns = (image.spatial_shape[i] for i in np.argsort(there))
    lengths = np.linalg.norm(image.affine[:3, :3], axis=0)[np.argsort(there)]
    slice_mm, row_mm, column_mm = (float(length) for length in lengths)
    return (depth, rows, columns), (slice_mm, row_mm, column_mm)


def one_slice(image: Image, index: int | None = None, plane: Plane = "axial") -> Image:
    """One slice of a volume as a volume of one slice in its position; a picture is unchanged.

    Args:
        index: counted as in `SliceStack`; None for the middle one.

    Raises:
        InvalidParameter: there is no such slice.
    """
    at = chosen_slice(count := slice_count(image, plane), index)
    if image.spatial_dims == 2:
        return image
    axis, forward = _slice_axis(image, plane)
    voxel = at if forward else count - 1 - at
    affine = image.affine.copy()
    affine[:3, 3] += affine[:3, axis] * voxel
    array = image.array.take([voxel], axis + 1)
    return replace(image, array=array, affine=affine, format=image.format_of("image"), origin=None)


def _slice_axis(image: MedicalImage, plane: Plane) -> tuple[int, bool]:
    """The axis of a volume along which its slices are counted, and whether in ascending order."""
    from nibabel import orientations

    source = orientations.io_orientation(image.affine)
    there = orientations.ornt_transform(source, orientations.axcodes2ornt(AXCODES[plane]))
    axis = int(np.flatnonzero(there[:, 0] == 0)[0])
    return axis, bool(there[axis, 1] > 0)
