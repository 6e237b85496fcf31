"""NumPy arrays in .npz: the image, and its affine if it has one.

The image is the array `image` (for label maps `labels`), or the only one besides `affine` `[4, 4]`
(voxel indices to millimetres, RAS+). With `affine` it is `[C, *S]`, as this module writes it, or
`[X, Y, Z]` if the affine is not the identity, which pictures have; without, it is interpreted as in
a .npy file.
"""

from __future__ import annotations

import io
import zipfile
import zlib

import numpy as np

from caps_med.errors import CapsMedError, InvalidInput, UnsupportedFormat
from caps_med.images.codecs import npy, zips
from caps_med.images.codecs.codec import Codec
from caps_med.images.image import Kind, MedicalImage
from caps_med.images.limits import Limits

_MAX_ARRAYS = 64
# A member's header may take this much beside its values.
_HEADER_ROOM = 2**16
# A fixed time, so that the same image gives the same bytes.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def decode(data: bytes, kind: Kind, limits: Limits) -> MedicalImage:
    """A picture or a volume; never unpickles, and inflates only what it needs."""
    with _opened(data) as archive:
        members = _members(archive)
        content = _inflated(archive, members[_chosen(members, kind)], limits)
        if "affine" not in members:
            image = npy.decode(content, kind, limits)
            return MedicalImage(image.array, format="npz", warnings=image.warnings)
        affine = npy.array_of(_inflated(archive, members["affine"], limits), limits)
    array, affine = npy.array_of(content, limits), np.asarray(affine, np.float64)
    if array.ndim == 3 and not np.array_equal(affine, np.eye(4)):
        array = array[None]
    return MedicalImage(array, affine, format="npz")


def encode(image: MedicalImage) -> bytes:
    """`image` or `labels` `[C, *S]` and `affine`, deflated; the same image gives the same bytes."""
    affine = image.affine if image.spatial_dims == 3 else np.eye(4)
    arrays = {image.kind: image.array, "affine": affine}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            archive.writestr(_entry(name), npy.bytes_of(array))
    return file.getvalue()


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(f"{name}.npy", _EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def _opened(data: bytes) -> zipfile.ZipFile:
    try:
        return zips.directory(io.BytesIO(data), zips.MOST_ENTRIES)
    except CapsMedError:
        raise
    except Exception as error:  # the zip module raises several types for broken directories
        raise InvalidInput("npz: the archive is cut or broken: copy it again") from error


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    entries = archive.infolist()
    if not 1 <= len(entries) <= _MAX_ARRAYS:
        raise InvalidInput(
            f"npz: the file contains {len(entries)} arrays, but must contain 1 to {_MAX_ARRAYS}"
        )
    for entry in entries:
        if not entry.filename.endswith(".npy"):
            raise UnsupportedFormat(
                "npz: a file that is not .npy is in it: save the arrays with numpy.savez"
            )
        if not zips.is_bounded(entry) or zips.is_encrypted(entry):
            raise UnsupportedFormat(
                "npz: only stored and deflated arrays without a password can be read: save it "
                "with numpy.savez"
            )
    members = {entry.filename.removesuffix(".npy"): entry for entry in entries}
    if len(members) != len(entries):
        raise InvalidInput("npz: two arrays have the same name")
    return members


def _chosen(members: dict[str, zipfile.ZipInfo], kind: Kind) -> str:
    if kind in members:
        return kind
    others = [name for name in members if name != "affine"]
    if len(others) != 1:
        raise InvalidInput(
            f"npz: the file contains {len(others)} arrays: give the one to read the name {kind!r}"
        )
    return others[0]


def _inflated(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, limits: Limits) -> bytes:
    """One member, whose checksum and length must be right."""
    limits.check_decoded("npz: an array", entry.file_size, _HEADER_ROOM)
    try:
        with archive.open(entry) as file:
            content = file.read(entry.file_size + 1)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, RuntimeError) as error:
        raise InvalidInput("npz: an array is cut or broken: copy the file again") from error
    if len(content) != entry.file_size:
        raise InvalidInput("npz: an array is cut or broken: copy the file again")
    return content


def recognises(data: bytes) -> bool:
    """A zip whose first member is an array."""
    length = int.from_bytes(data[26:28], "little")
    return data.startswith(zips.MAGIC) and data[30 : 30 + length].endswith(b".npy")


CODEC = Codec("npz", (".npz",), "application/x-npz", recognises, decode, encode)
