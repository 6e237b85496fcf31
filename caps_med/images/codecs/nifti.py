"""NIfTI-1 and -2 in one file, .nii or .nii.gz, or a pair: for a path `x.hdr` the file `x.img`
beside it is read, for a zip the file in it.

Of the two affines the sform wins if its code is above 0, then the qform; with neither, only the
voxel sizes are used. A warning says when both are set and disagree, or neither is set. Lengths in
metres or micrometres become millimetres. Header extensions are dropped: they may hold anything,
including a patient's DICOM tags.
"""

from __future__ import annotations

import gzip
import itertools
import math
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from caps_med.errors import InvalidInput, UnsupportedFormat
from caps_med.images import units
from caps_med.images.channels import is_colour
from caps_med.images.codecs import nifti_header
from caps_med.images.codecs.codec import Codec, with_common_dtype
from caps_med.images.codecs.nifti_header import CheckedHeader
from caps_med.images.codecs.streams import (
    GZIP_MAGIC,
    check_length,
    check_ratio,
    inflate_gzip,
    peek_gzip,
)
from caps_med.images.image import STACK_AFFINE, Array, Kind, MedicalImage
from caps_med.images.limits import Limits
from caps_med.images.nifti_fields import LONGEST_OF_NIFTI_1, describe_anew

if TYPE_CHECKING:
    from nibabel import Nifti1Header

# The two affines of a header may put a corner of the volume this many voxels apart.
AFFINE_TOLERANCE = 0.1


def recognises(data: bytes) -> bool:
    """Whether this is NIfTI, or gzip, in which only NIfTI is read."""
    return data.startswith(GZIP_MAGIC) or nifti_header.recognises(data)


def decode(data: bytes, kind: Kind, limits: Limits) -> MedicalImage:
    """A volume `[1, X, Y, Z]`, or `[C, X, Y, Z]` with the file's fourth axis as channels."""
    from nibabel.spatialimages import HeaderDataError

    data, header = _checked(data, limits)
    count = header.channels * math.prod(header.shape)
    raw = np.frombuffer(data, header.dtype, count, header.offset)
    try:
        slope, inter = header.fields.get_slope_inter()
        affine, warnings = affine_of(header.fields, header.shape)
        if header.unsized and header.fields["sform_code"] <= 0:
            warnings += (units.unsized("NIfTI"),)
    except (HeaderDataError, ValueError) as error:
        raise InvalidInput(f"NIfTI: the header is broken: {error}") from error
    voxels = raw.reshape((header.channels, *header.shape[::-1])).transpose(0, 3, 2, 1)
    native = header.dtype.newbyteorder("=")
    if slope is None or (slope, inter) == (1, 0):
        array = voxels.astype(native, order="C")
    else:
        exact: type[Any] = np.float32 if native.itemsize <= 2 or native == "f4" else np.float64
        array = voxels.astype(exact, order="C")
        array *= exact(slope)
        array += exact(inter)
    return MedicalImage(array, affine, "nifti", header=header.fields, warnings=warnings)


def detached(data: bytes) -> str | None:
    """Empty for the header of a pair, which names no other file; None if voxels follow it."""
    start = _start(data)
    return "" if nifti_header.recognises(start) and nifti_header.is_detached(start) else None


def attached(header: bytes, voxels: bytes) -> bytes:
    """The content of a single file, from a detached header and its voxels."""
    start = nifti_header.attached(_start(header))
    if voxels.startswith(GZIP_MAGIC):
        start = gzip.compress(start, mtime=0)  # members of one stream
    return start + voxels


def _start(data: bytes) -> bytes:
    """The beginning of a file with its header, inflated."""
    if data.startswith(GZIP_MAGIC):
        return peek_gzip(data, nifti_header.LONGEST, nifti_header.PEEK)
    return data


def has_one_member(data: bytes, header: Nifti1Header) -> bool:
    """Whether a gzip stream has a single member: browsers and some programs read no more.

    Args:
        header: of the NIfTI file in it, which has been read.
    """
    voxels = math.prod(header.get_data_shape()) * header.get_data_dtype().itemsize
    offset = int(header["vox_offset"]) or header.single_vox_offset
    return data.endswith(struct.pack("<I", (offset + voxels) & 0xFFFFFFFF))  # of the last member


def encode(image: MedicalImage) -> bytes:
    """One .nii file, not compressed.

    An image that came from NIfTI keeps its header: version, byte order, form codes, units. Fields
    that described the old voxels (slope, display range) are reset. K channels become the fourth
    axis. The intent of label maps is "label", that of other images is not.
    Three channels of a picture are colours, which are refused, unless they are floats that do not
    lie in [0, 1] by definition (`MedicalImage.unit_range`), such as probabilities.
    A picture becomes a volume of one axial slice, which display software shows the same way up.
    """
    grid, affine = _grid(image)
    grid = with_common_dtype(grid)
    header = _header_for(image, grid, affine)
    header.set_data_dtype(grid.dtype)
    describe_anew(header, labels=image.kind == "labels")
    header["magic"] = header.single_magic  # the source may be a pair of files
    header.set_data_offset(len(header.binaryblock) + 4)
    voxels = grid.astype(header.get_data_dtype(), copy=False).tobytes(order="F")
    return bytes(header.binaryblock) + b"\0\0\0\0" + voxels


def _checked(data: bytes, limits: Limits) -> tuple[bytes, CheckedHeader]:
    compressed = data.startswith(GZIP_MAGIC)
    start = _start(data)
    if not nifti_header.recognises(start):
        raise UnsupportedFormat("gzip: only NIfTI is read from it (.nii.gz)")
    header = nifti_header.read_header(start)
    if compressed:
        check_ratio("NIfTI", header.end, len(data))
    else:
        check_length("NIfTI", header.end, len(data))
    limits.check_array(header.shape, header.channels * header.dtype.itemsize)
    return inflate_gzip("NIfTI", data, header.end) if compressed else data, header


def affine_of(header: Nifti1Header, shape: tuple[int, ...]) -> tuple[Array, tuple[str, ...]]:
    """The affine in millimetres in a header for voxels `[X, Y, Z]`, and doubts about it."""
    warnings: tuple[str, ...] = ()
    if header["sform_code"] > 0:
        affine = header.get_sform()
        if header["qform_code"] > 0 and not _agree(affine, header, shape):
            warnings = ("NIfTI: sform and qform disagree; the sform is used",)
    elif header["qform_code"] > 0:
        affine = header.get_qform()
    else:
        affine = header.get_base_affine()
        warnings = ("NIfTI: no orientation; left and right are a guess from the voxel order",)
    affine[:3] *= units.of_nifti(header)
    return affine, warnings


def _agree(sform: Array, header: Nifti1Header, shape: tuple[int, ...]) -> bool:
    from nibabel.spatialimages import HeaderDataError

    try:
        qform = header.get_qform()
    except (HeaderDataError, ValueError):
        return False
    corners = np.array([[*corner, 1] for corner in itertools.product(*((0, n) for n in shape))])
    apart = np.linalg.norm(corners @ (sform - qform)[:3].T, axis=1).max()
    return bool(apart <= AFFINE_TOLERANCE * np.linalg.norm(sform[:3, :3], axis=0).min())


def _grid(image: MedicalImage) -> tuple[Array, Array]:
    """The array in NIfTI's axis order, and its affine."""
    if image.spatial_dims == 3:
        moved = np.moveaxis(image.array, 0, -1)
        return (moved[..., 0] if len(image.array) == 1 else moved), image.affine
    if is_colour(image) and (image.array.dtype.kind != "f" or image.unit_range):
        raise UnsupportedFormat(
            "a colour picture cannot be NIfTI: save it as png or tiff; three channels that are no "
            "colours can be, as floats"
        )
    moved = image.array.transpose(2, 1, 0)
    return (moved if len(image.array) == 1 else moved[:, :, None]), STACK_AFFINE


def _header_for(image: MedicalImage, grid: Array, affine: Array) -> Nifti1Header:
    import nibabel as nib

    if image.header is not None:
        header = image.header.copy()
        header.set_data_shape(grid.shape)  # on which an affine without orientation depends
        if np.allclose(affine_of(header, grid.shape[:3])[0], affine, rtol=1e-6, atol=1e-6):
            return header
    else:
        first = max(grid.shape) < LONGEST_OF_NIFTI_1
        header = nib.Nifti1Header() if first else nib.Nifti2Header()
        header.set_data_shape(grid.shape)
    header.set_qform(affine, code=0)
    header.set_sform(affine, code=2)
    header.set_xyzt_units("mm")
    return header


CODEC = Codec(
    name="nifti",
    suffixes=(".nii.gz", ".nii"),
    only_read=(".hdr", ".hdr.gz"),
    media_type="application/gzip",
    recognises=recognises,
    decode=decode,
    encode=encode,
    gzipped=True,
    detached=detached,
    attached=attached,
    beside=dict.fromkeys((".hdr", ".hdr.gz"), (".img", ".img.gz")),
)
