"""The brain tumour slices that Cheng published on figshare: one MATLAB file (v7.3, HDF5) a slice.

Cheng et al. 2015, "Enhanced performance of brain tumor classification via tumor region augmentation
and partition"; https://doi.org/10.6084/m9.figshare.1512427 describes the files: 3,064 T1-weighted
slices with contrast agent of 233 patients. ``cjdata`` holds ``image``, ``label`` (1 meningioma,
2 glioma, 3 pituitary tumour), ``PID``, ``tumorBorder`` and ``tumorMask``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caps_med.errors import CapsMedError, InvalidInput
from caps_med.extras import require_extra
from caps_med.images import MedicalImage
from training.data.cases import FileRef, Unpaired
from training.data.classified.images import ClassifiedImages, Found, collected, natural
from training.data.layouts.naming import is_pipe
from training.data.stacks import LIMITS

TUMOURS = ("meningioma", "glioma", "pituitary tumour")
#: HDF5's signature, and what MATLAB writes before it.
_SIGNATURE, _MATLAB = b"\x89HDF\r\n\x1a\n", b"MATLAB 7.3 MAT-file"
_USER_BLOCK = 512
#: Numbers of the label, and of the letters of a patient's name.
_LONGEST_NAME = 256
#: The folds that come with the images are another file, which is no slice.
_FOLDS = "cvind.mat"


@dataclass(frozen=True)
class SliceRef(FileRef):
    """One slice in a MATLAB file of its own."""


def figshare_tumours(folder: Path) -> ClassifiedImages | None:
    """``1.mat``, ``2.mat``, ... in a folder, or in folders inside; patients are groups.

    Raises:
        MissingExtra: h5py is not installed.
    """
    if not folder.is_dir():
        return None
    paths = sorted(folder.rglob("*.mat"), key=lambda p: natural(p.relative_to(folder).as_posix()))
    files = [path for path in paths if path.name != _FOLDS and _is_matlab(path)]
    if not any(map(_holds_slice, files)):  # one with label maps, say, and a matrix beside them
        return None
    found: list[Found] = []
    unusable = []
    for path in files:
        name = path.relative_to(folder).as_posix()
        try:
            label, patient = _read_label(path)
        except InvalidInput as error:
            fix = "copy it again, or remove it"
            unusable.append(Unpaired(path, str(error).removeprefix(f"{path.name}: "), fix))
            continue
        found.append(Found(name, SliceRef(path), (TUMOURS[label - 1],), patient))
    return collected(
        folder, "MATLAB files of slices (brain tumours, figshare)", found, TUMOURS, unusable
    )


def read_slice(reference: SliceRef) -> MedicalImage:
    """The slice ``[1, H, W]``.

    Raises:
        InvalidInput, InputTooLarge: it cannot be read, or is no image.
    """
    with _opened(reference.path) as file:
        pixels = _array(file, "cjdata/image", "iuf")
    if pixels.ndim != 2:
        raise InvalidInput(f"{reference}: cjdata/image has shape {pixels.shape}: [H, W] is needed")
    # MATLAB stores columns one after the other
    return MedicalImage(np.ascontiguousarray(pixels.T)[None], format="tiff")


def _is_matlab(path: Path) -> bool:
    if is_pipe(path):
        return False
    try:
        with path.open("rb") as file:
            start = file.read(_USER_BLOCK + len(_SIGNATURE))
    except OSError:
        return False
    return start.startswith(_MATLAB) and start[_USER_BLOCK:] == _SIGNATURE


def _holds_slice(path: Path) -> bool:
    """Whether a file is one of these, or broken."""
    try:
        with _opened(path) as file:
            return "cjdata" in file
    except InvalidInput:
        return True


def _read_label(path: Path) -> tuple[int, str]:
    """Number of the tumour, 1 to 3, and the patient."""
    with _opened(path) as file:
        numbers = _array(file, "cjdata/label", "iuf", largest=1).ravel()
        letters = _array(file, "cjdata/PID", "iu", largest=_LONGEST_NAME).ravel()
    label = numbers[0] if numbers.size else 0
    if label not in range(1, len(TUMOURS) + 1):
        raise InvalidInput(f"{path.name}: its label is {label:g}, but must be 1, 2 or 3")
    try:
        patient = "".join(map(chr, letters.tolist())).strip("\0 ")
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"{path.name}: cjdata/PID is not text") from error
    if not patient.isprintable() or not patient:
        raise InvalidInput(f"{path.name}: cjdata/PID names no patient")
    return int(label), patient


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The HDF5 file of `path`.

    Raises:
        InvalidInput: it is truncated or corrupt.
    """
    require_extra("import", "reading MATLAB files")
    import h5py

    try:
        with h5py.File(path, "r") as file:
            yield file
    except CapsMedError:
        raise
    except (OSError, RuntimeError, KeyError, TypeError, ValueError, MemoryError) as error:
        raise InvalidInput(f"{path.name}: truncated or corrupt: save or copy it again") from error


def _array(
    file: Any,  # noqa: ANN401 - h5py has no types
    name: str,
    kinds: str,
    largest: int | None = None,
) -> NDArray[Any]:
    """A data set of the file itself; its size is checked before it is read.

    Args:
        kinds: NumPy's kinds of numbers that it may have; references and structures have others.
        largest: numbers that it may have at most; None for the limits of local files.

    Raises:
        InvalidInput, InputTooLarge: it is missing, elsewhere, too large or of another type.
    """
    import h5py

    where, item = Path(file.filename).name, file
    for part in name.split("/"):
        link = item.get(part, getlink=True) if isinstance(item, h5py.Group) else None
        if not isinstance(link, h5py.HardLink):
            what = "is missing" if link is None else "is a link to another place"
            raise InvalidInput(f"{where}: {name} {what}")
        item = item[part]
    if not isinstance(item, h5py.Dataset) or item.shape is None:
        raise InvalidInput(f"{where}: {name} is not an array")
    if item.external or item.is_virtual:
        raise InvalidInput(f"{where}: {name} is stored in another file")
    if item.dtype.kind not in kinds:
        raise InvalidInput(f"{where}: {name} holds {item.dtype}: numbers are needed")
    if largest is not None and item.size > largest:
        raise InvalidInput(f"{where}: {name} has {item.size} values: at most {largest} are needed")
    for shape in (item.shape, item.chunks or ()):  # a chunk is read whole
        LIMITS.check_array(shape, item.dtype.itemsize)
    found: NDArray[Any] = item[()]
    return found
