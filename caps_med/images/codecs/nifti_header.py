"""The header of a NIfTI file: nibabel reads it, its claims are checked here.

Fields: nifti1.h (2007) and nifti2.h (2011), https://nifti.nimh.nih.gov.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from caps_med.errors import InvalidInput, UnsupportedFormat

if TYPE_CHECKING:
    from nibabel.nifti1 import Nifti1Header

# A gzip header may carry a file name before the data: the NIfTI header lies within this much.
PEEK = 2**17
#: Bytes of a NIfTI-1 header, and of a NIfTI-2 header.
_SIZES = (348, 540)
LONGEST = max(_SIZES)

#: nibabel's notes on what it has put right; callers are told by warnings of the image.
_UNHEARD = logging.Logger("nibabel.unheard", logging.CRITICAL + 1)

_LINE_ENDS = [13, 10, 26, 10]  # what NIfTI-2 has after its magic, to notice transfers as text


@dataclass(frozen=True)
class CheckedHeader:
    """A header, and the voxels that it describes: `shape` [X, Y, Z] of `dtype` from `offset`.

    `channels` such volumes follow each other. `dtype` has the byte order of the file. If a file
    gives no voxel size (0), `fields` has 1 and `unsized` is true; an axis of one voxel
    needs none.
    """

    fields: Nifti1Header
    shape: tuple[int, int, int]
    channels: int
    dtype: np.dtype[Any]
    offset: int
    unsized: bool = False

    @property
    def end(self) -> int:
        """The length of a file with these voxels."""
        return self.offset + math.prod(self.shape) * self.channels * self.dtype.itemsize


def recognises(data: bytes) -> bool:
    """Whether `data` begins like a NIfTI header, including those of pairs and Analyze files."""
    return int.from_bytes(data[:4], _byte_order(data)) in _SIZES


def read_header(data: bytes) -> CheckedHeader:
    """The header at the start of `data`, which `recognises`.

    Raises:
        UnsupportedFormat: a detached header, Analyze, or both time points and channels.
        InvalidInput: an impossible field, or voxels that are not real numbers.
    """
    from nibabel.spatialimages import HeaderDataError

    fields = _fields(data)
    size = int(fields.sizeof_hdr)
    _check_magic(fields)
    shape, channels = _shape([int(length) for length in fields["dim"]])
    dtype, offset = _dtype(fields), _voxel_offset(fields["vox_offset"].item(), size + 4)
    sizes = fields["pixdim"][1:4].tolist()
    unsized = any(size == 0 for size, count in zip(sizes, shape, strict=True) if count > 1)
    try:
        fields.check_fix(logger=_UNHEARD)
    except HeaderDataError as error:
        raise InvalidInput(f"NIfTI: the header is broken: {error}") from error
    _check_scaling(fields)
    return CheckedHeader(fields, shape, channels, dtype, offset, unsized)


def is_detached(data: bytes) -> bool:
    """Whether this is the header of a pair of files."""
    magic = data[4:8] if int.from_bytes(data[:4], _byte_order(data)) == LONGEST else data[344:348]
    return magic in (b"ni1\0", b"ni2\0")


def attached(data: bytes) -> bytes:
    """The bytes that precede the voxels in a single file, from the header of a pair."""
    fields = _fields(data)
    single = type(fields)(endianness=fields.endianness)
    fields["magic"] = single["magic"]
    fields["vox_offset"] = fields["vox_offset"] + single.single_vox_offset
    return bytes(fields.binaryblock).ljust(single.single_vox_offset, b"\0")


def _check_scaling(fields: Nifti1Header) -> None:
    """nibabel ignores a slope of NaN; by the standard a slope of 0 means no scaling."""
    slope, intercept = float(fields["scl_slope"]), float(fields["scl_inter"])
    if slope != 0 and not (math.isfinite(slope) and math.isfinite(intercept)):
        raise InvalidInput(
            f"NIfTI: scl_slope and scl_inter must be finite, got {slope} and {intercept}: the "
            "intensities are unknown; save the image again"
        )


def _fields(data: bytes) -> Nifti1Header:
    import nibabel as nib

    order = _byte_order(data)
    size = int.from_bytes(data[:4], order)
    if len(data) < size:
        raise InvalidInput(f"NIfTI: {len(data)} bytes, shorter than the header of {size}")
    header = nib.Nifti2Header if size == LONGEST else nib.Nifti1Header
    return header(data[:size], endianness="<" if order == "little" else ">", check=False)


def _byte_order(data: bytes) -> Literal["little", "big"]:
    return "little" if data[:1] != b"\0" else "big"


def _check_magic(fields: Nifti1Header) -> None:
    magic = fields["magic"].item()
    if magic in (b"ni1", b"ni2"):
        raise UnsupportedFormat(
            "NIfTI: its voxels lie in another file (.img), which is not opened: save it as one "
            ".nii file, or put both files into a zip"
        )
    second = fields.sizeof_hdr == LONGEST
    if magic != (b"n+2" if second else b"n+1"):
        raise UnsupportedFormat(
            "Analyze 7.5 does not say where left and right are: convert it to NIfTI with the "
            "program that wrote it, or with nibabel (nib.save(nib.load('x.hdr'), 'x.nii.gz')), and "
            "check the sides"
        )
    if second and fields["eol_check"].tolist() != _LINE_ENDS:
        raise UnsupportedFormat("NIfTI: the file was transferred as text; copy it as binary")


def _shape(dims: list[int]) -> tuple[tuple[int, int, int], int]:
    """Voxels along X, Y and Z, and channels along the fourth axis (fifth for vectors)."""
    sizes = dims[1 : dims[0] + 1]
    if not 2 <= dims[0] <= 7 or min(sizes) < 1:
        raise InvalidInput(f"NIfTI: dim must be 2 to 7 sizes of at least 1, got {dims}")
    channels = math.prod(sizes[3:])
    if sum(size > 1 for size in sizes[3:]) > 1:
        raise UnsupportedFormat(
            f"NIfTI: one volume [X, Y, Z] or its channels [X, Y, Z, C] are read, this file has "
            f"{sizes}: split its time points into files"
        )
    x, y, z = [*sizes, 1][:3]
    return (x, y, z), channels


def _dtype(fields: Nifti1Header) -> np.dtype[Any]:
    from nibabel.nifti1 import data_type_codes
    from nibabel.spatialimages import HeaderDataError

    code = int(fields["datatype"])
    try:
        dtype: np.dtype[Any] = fields.get_data_dtype()
        name = data_type_codes.label[code]
    except (HeaderDataError, KeyError):
        dtype, name = np.dtype("V"), "unknown"
    if dtype.kind not in "iuf" or dtype.itemsize > 8:
        raise InvalidInput(
            f"NIfTI: datatype {code} ({name}) is not read: save it as integers or floats of up to "
            "64 bits"
        )
    return dtype


def _voxel_offset(offset: float, least: int) -> int:
    if offset == 0:
        return least
    if not math.isfinite(offset) or offset != int(offset) or offset < least:
        raise InvalidInput(f"NIfTI: vox_offset must be at least {least}, got {offset}")
    return int(offset)
