"""Files with several pictures: npy stacks, multi-page TIFF.

Images are read one at a time, directly from disk: a stack may be larger than memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from caps_med.errors import CapsMedError, InvalidInput, NotFinite
from caps_med.images import Kind, Limits, MedicalImage, read_image
from caps_med.images.codecs import tiff_pages, tiff_stack
from caps_med.images.codecs.tiff_pyramid import pyramid_of
from caps_med.images.labels import as_labels
from training.data.cases import FileRef

#: Generous limits for local files, as a guard against wrong headers.
LIMITS = Limits(max_bytes=2**33, max_inflated_bytes=2**34, max_voxels=2**31)
_COLOURS = (1, 3)
_TIFF = (".tif", ".tiff")


def pictures_in(path: Path) -> int | None:
    """The number of pictures in a stack; None for a single image (which may be a volume).

    A multi-page TIFF is a stack unless OME or ImageJ metadata describe its pages as slices of a
    volume or as channels, or they are one picture in several sizes; an npy array is one if it has
    four axes, including a colour axis. A corrupt file counts as a single image here;
    reading it reports the error.
    """
    if path.suffix.lower() == ".npy":
        shape = array_shape(path) or ()
        stacked = len(shape) == 4 and (shape[1] in _COLOURS or shape[3] in _COLOURS)
        return shape[0] if stacked else None
    with suppress(CapsMedError), _tiff(path) as pages:
        stack = tiff_stack.described(pages)
        single = stack.slices * stack.channels == 1 and pyramid_of(pages) is None
        return pages.count if pages.count > 1 and single else None
    return None


def slices_in(path: Path) -> int | None:
    """The number of slices of a TIFF whose pages OME or ImageJ describe as a volume, else None."""
    with suppress(CapsMedError), _tiff(path) as pages:
        slices = tiff_stack.described(pages).slices
        return slices if slices > 1 else None
    return None


def array_shape(path: Path) -> tuple[int, ...] | None:
    """The shape of the array in an npy file; None if it cannot be read."""
    with suppress(InvalidInput), _opened(path):
        return tuple(map(int, np.load(path, mmap_mode="r", allow_pickle=False).shape))
    return None


def read_reference(reference: FileRef, kind: Kind) -> MedicalImage:
    """Read the referenced image.

    Raises:
        CapsMedError: the file is missing, corrupt or of an unknown format, or `kind` is "labels"
            and a value is not a label id.
    """
    path, index = reference.path, reference.index
    if index is None:
        return read_image(path, kind=kind, limits=LIMITS)
    with _opened(path):
        if path.suffix.lower() == ".npy":
            return _checked(MedicalImage(_plane(path, index), format="npy"), kind)
        with path.open("rb") as file, tiff_pages.opened(file, LIMITS, index + 1) as pages:
            return _checked(pages.read(index, kind), kind)


@contextmanager
def _tiff(path: Path) -> Iterator[tiff_pages.Pages]:
    """The pages of a TIFF; `InvalidInput` if it is none."""
    if path.suffix.lower() not in _TIFF:
        raise InvalidInput(f"{path.name}: no TIFF")
    with _opened(path), path.open("rb") as file, tiff_pages.opened(file, LIMITS) as pages:
        yield pages


@contextmanager
def _opened(path: Path) -> Iterator[None]:
    """Convert any error of a library to `InvalidInput`."""
    try:
        yield
    except CapsMedError:
        raise
    except OSError as error:
        raise InvalidInput(f"cannot read {path.name}: {error.strerror or error}") from error
    except Exception as error:  # the libraries raise many types for corrupt files
        raise InvalidInput(
            f"{path.name}: truncated or corrupt, or an unsupported variant"
        ) from error


def _checked(image: MedicalImage, kind: Kind) -> MedicalImage:
    if not np.isfinite(image.array).all():
        raise NotFinite("the image contains NaN or infinity: repair it")
    return as_labels(image) if kind == "labels" else image


def _plane(path: Path, index: int) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
    """One picture ``[C, H, W]`` of a stack ``[N, H, W]``, ``[N, H, W, C]`` or ``[N, C, H, W]``."""
    stack = np.load(path, mmap_mode="r", allow_pickle=False)
    LIMITS.check_array(stack.shape[1:], stack.dtype.itemsize)
    plane = np.array(stack[index])
    if plane.dtype.kind == "b":
        plane = plane.astype(np.uint8)
    if plane.ndim == 2:
        return plane[None]
    return np.ascontiguousarray(plane if len(plane) in _COLOURS else np.moveaxis(plane, -1, 0))
