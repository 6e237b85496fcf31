"""Channels of an image: convert between grey and colour, and combine images into one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from caps_med.errors import InvalidInput, SeveralVolumes
from caps_med.images.image import MedicalImage
from caps_med.images.placing import on_one_grid
from caps_med.wording import choose_one

#: Shares of red, green and blue in what a colour picture looks like in grey (ITU-R BT.601).
LUMINANCE = np.array([0.299, 0.587, 0.114], np.float32)
#: Channels of a colour picture.
COLOURS = 3


def with_channels(image: MedicalImage, count: int) -> MedicalImage:
    """The image with `count` channels: colours as their luminance, grey as equal colours.

    Dropping real colours adds a warning; a grey picture that was saved in colour adds none.

    Args:
        image: ``[C, *S]``.
        count: C, or 1 if C is 3, or 3 if C is 1.

    Raises:
        SeveralVolumes: a volume with several channels, which are not colours, where one is needed.
        InvalidInput: the image is neither grey nor colour, or `count` is any other number.
    """
    array = image.array
    if len(array) == count:
        return image
    if (len(array), count) == (1, COLOURS):
        return image.with_array(np.repeat(array, COLOURS, 0))
    if count == 1 and image.spatial_dims == 3:
        raise several_volumes(image, "1 channel is needed")
    if count != 1 or not is_colour(image):
        raise InvalidInput(f"the image has {len(array)} channel(s), but {count} are needed")
    if is_grey(image):
        return image.with_array(array[:1])
    grey = np.tensordot(LUMINANCE, array, 1)[None]
    whole = np.issubdtype(array.dtype, np.integer)
    warning = "the image is in colour where grey is needed: its luminance (ITU-R BT.601) was taken"
    return image.with_array(
        (np.rint(grey) if whole else grey).astype(array.dtype), warnings=(warning,)
    )


def as_picture(
    image: MedicalImage, *, channels: int | None = None, size: tuple[int, ...] | None = None
) -> MedicalImage:
    """Turn an array ``[H, W, C]`` or ``[C, H, W]`` that was read as a volume into a picture.

    Args:
        image: from npy or npz, without a geometry; any other is returned unchanged.
        channels: the required C; None for any.
        size: the required (H, W); None for any.

    Returns:
        ``[C, H, W]``.
    """
    if len(image.array) != 1 or not is_plain_volume(image):
        return image
    for axis in (-1, 0):
        array = np.moveaxis(image.array[0], axis, 0)
        if channels in (None, len(array)) and size in (None, array.shape[1:]):
            return MedicalImage(np.ascontiguousarray(array), format=image.format)
    return image


def is_plain_volume(image: MedicalImage) -> bool:
    """Whether it is a volume from npy or npz, which has no geometry."""
    plain = image.format in ("npy", "npz") and np.array_equal(image.affine, np.eye(4))
    return image.spatial_dims == 3 and plain


def several_volumes(image: MedicalImage, wanted: str) -> SeveralVolumes:
    """The error for a volume with several channels, such as a 4-D NIfTI, where one is needed."""
    count = len(image.array)
    return SeveralVolumes(
        f"{wanted}, and the image has {count} volumes (its fourth axis): "
        f"{choose_one(count, 'volume')}",
        count,
    )


def chosen_volume(image: MedicalImage, index: int) -> MedicalImage:
    """One channel of a volume as a volume; any other image is returned unchanged, for index 0.

    Raises:
        InvalidInput: there is no such volume or picture.
    """
    count = len(image.array) if image.spatial_dims == 3 else 1
    if not 0 <= index < count:
        what, there = ("picture", "it is one image")
        if count > 1:
            what, there = "volume", f"there are {count}: 0 to {count - 1}"
        raise InvalidInput(f"{image.format}: no {what} {index}, {there}")
    return image if count == 1 else image.with_array(image.array[[index]])


def is_colour(image: MedicalImage) -> bool:
    """Whether the image is a colour picture; three channels of a volume are not colours."""
    return len(image.array) == COLOURS and image.spatial_dims == 2


def is_grey(image: MedicalImage) -> bool:
    """Whether the image has one channel, or is a picture with equal red, green and blue."""
    equal = is_colour(image) and bool((image.array == image.array[:1]).all())
    return equal or len(image.array) == 1


def stack_channels(images: Sequence[MedicalImage], names: Sequence[str] = ()) -> MedicalImage:
    """Combine images on the same grid into one image ``[C, *S]``, channels in the given order.

    Geometry, header and format are those of the first image; a grey picture that was saved in
    colour counts as one channel.

    Args:
        images: ``[C_i, *S]`` each.
        names: the names of the images in messages, such as their file names.

    Raises:
        InvalidInput: no image is given, or one differs from the first in size or affine; the
            message names it.
    """
    if not images:
        raise InvalidInput("no image given: give one, or one for each channel")
    first, *others = images
    called = [*names, *(f"image {number}" for number in range(len(names) + 1, len(images) + 1))]
    for name, image in zip(called[1:], others, strict=True):
        if problem := _grid_problem(called[0], first, name, image):
            raise InvalidInput(problem)
    if not others:
        return first
    arrays = [image.array[:1] if is_grey(image) else image.array for image in images]
    warnings = dict.fromkeys(note for image in images for note in image.warnings)
    joined = np.concatenate(arrays)
    white = first.white if len({image.white for image in images}) == 1 else None
    return replace(
        first, array=joined, warnings=tuple(warnings), palette=None, names={}, white=white
    )


def _grid_problem(first: str, image: MedicalImage, name: str, other: MedicalImage) -> str:
    """How an image's grid differs from that of the first; empty if it does not."""
    sizes = [" x ".join(map(str, one.spatial_shape)) for one in (image, other)]
    if image.spatial_shape != other.spatial_shape:
        return (
            f"{name} has the size {sizes[1]}, {first} {sizes[0]}: the channels of an image have "
            "one size; resample them to one grid"
        )
    if not on_one_grid(image.affine, other.affine):
        return (
            f"{name} has another affine than {first}: resample the channels to one grid, or copy "
            "the header if they are aligned"
        )
    return ""
