"""The bad inputs that a service meets, built here: none is stored."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable
from typing import NamedTuple

import nibabel as nib
import numpy as np
import torch
from pydicom.encaps import encapsulate
from pydicom.uid import DeflatedExplicitVRLittleEndian, JPEG2000Lossless, RLELossless

from caps_med.images import MedicalImage, encode_image
from tests.images.dicom_files import dataset, encoded, slice_file
from tests.images.picture_files import bmp, chunk, png
from tests.zips import zip_of

GREY = np.arange(400, dtype=np.uint16).reshape(20, 20)


class Bad(NamedTuple):
    """One input and its proper answer.

    Attributes:
        row: of the table in docs/security.md.
        build: makes the content; some take a second.
    """

    row: int
    name: str
    build: Callable[[], bytes]
    status: int
    code: str


def header(shape: tuple[int, ...], code: int = 4, **fields: object) -> bytes:
    """A NIfTI-1 header with its four bytes of padding."""
    made = nib.Nifti1Header()
    made.set_data_dtype(np.int16)
    made.set_data_shape(shape)
    made.set_data_offset(352)
    made.set_sform(np.eye(4), 1)
    made["datatype"] = code
    made["scl_slope"], made["scl_inter"] = 1, 0  # nibabel's own are NaN
    for name, value in fields.items():
        made[name] = value
    block = bytearray(made.binaryblock)
    block[344:348] = b"n+1\0"
    return bytes(block) + bytes(4)


def long_gzip(start: bytes, zeros: int) -> bytes:
    """`start` and then `zeros` zero bytes, a multiple of a MiB, packed without holding them."""
    pack = zlib.compressobj(9, wbits=-15)
    head = pack.compress(start) + pack.flush(zlib.Z_FULL_FLUSH)
    block = pack.compress(bytes(2**20)) + pack.flush(zlib.Z_FULL_FLUSH)
    checksum, size = zlib.crc32(start), len(start) + zeros
    for _ in range(zeros // 2**20):
        checksum = zlib.crc32(bytes(2**20), checksum)
    end = zlib.compressobj(9, wbits=-15).flush()
    tail = struct.pack("<II", checksum, size % 2**32)
    packed = head + block * (zeros // 2**20) + end + tail
    return b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + packed


def tiff(width: int, height: int, after: int = 0) -> bytes:
    """A TIFF of one page whose directory names the next at `after`."""
    tags = {256: width, 257: height, 258: 8, 259: 1, 262: 1, 273: 150, 277: 1, 278: height, 279: 4}
    rows = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    return b"II*\0" + struct.pack("<IH", 8, len(tags)) + rows + struct.pack("<I", after) + bytes(99)


def gif() -> bytes:
    """A GIF that says it is 65535 squared."""
    return b"GIF89a" + struct.pack("<HHBBB", 65535, 65535, 0, 0, 0) + b",\0\0\0\0" + bytes(50)


def volume() -> bytes:
    """A good .nii.gz, not of zeros."""
    array = np.random.default_rng(4).integers(0, 900, (1, 20, 20, 3), dtype=np.int16)
    return encode_image(MedicalImage(array, np.diag([1.0, 1, 2, 1])), "nifti")


def deflated_bomb() -> bytes:
    made = dataset(GREY)
    made.add_new(0x00091010, "LO", "private")
    made.add_new(0x00091011, "OB", bytes(300 * 2**20))
    return encoded(made, DeflatedExplicitVRLittleEndian)


def nested(depth: int) -> bytes:
    opened = struct.pack("<HH2s2xI", 0x0008, 0x1140, b"SQ", 0xFFFFFFFF)
    item = struct.pack("<HHI", 0xFFFE, 0xE000, 0xFFFFFFFF)
    end = struct.pack("<HHI", 0xFFFE, 0xE00D, 0) + struct.pack("<HHI", 0xFFFE, 0xE0DD, 0)
    data = slice_file()
    at = data.index(b"\x08\0\x16\0")
    return data[:at] + (opened + item) * depth + end * depth + data[at:]


def fragments(content: bytes, syntax: str) -> bytes:
    made = dataset(GREY)
    made.PixelData = encapsulate([content])
    made["PixelData"].is_undefined_length = True
    return encoded(made, syntax)  # type: ignore[arg-type]


def patched(data: bytes, at: int, value: bytes) -> bytes:
    return data[:at] + value + data[at + len(value) :]


def slice_bomb(mebibytes: int) -> bytes:
    return encoded(dataset(np.zeros((mebibytes * 32, 2**15), np.uint8)))


def npz_bomb(mebibytes: int) -> bytes:
    file = io.BytesIO()
    first = io.BytesIO()
    shape = (mebibytes, 2**20)
    fields = {"descr": "|u1", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(first, fields)
    with (
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("image.npy", "w", force_zip64=True) as member,
    ):
        member.write(first.getvalue())
        for _ in range(mebibytes):
            member.write(bytes(2**20))
    return file.getvalue()


class _Exploit:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, ("raise SystemExit('it ran')",)


def weights() -> bytes:
    file = io.BytesIO()
    torch.save({"weights": _Exploit()}, file)
    return file.getvalue()


def pickled_npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([[_Exploit()]], dtype=object), allow_pickle=True)
    return file.getvalue()


def bad_inputs() -> list[Bad]:
    """Every row of the table that is a file of one image."""
    broken, large = "invalid_input", "input_too_large"
    listed = [
        Bad(1, "gzip of 2 GiB", lambda: long_gzip(header((1024, 1024, 1024)), 2**31), 413, large),
        Bad(1, "gzip of more than its header", lambda: long_gzip(header((9, 9, 9)), 2**28),
            422, broken),
        Bad(2, "55 bytes of gzip", lambda: gzip.compress(header((32767,) * 3)), 422, broken),
        Bad(3, "cut in half", lambda: volume()[: len(volume()) // 2], 422, broken),
        Bad(4, "a flipped byte", lambda: patched(volume(), 900, flipped(volume()[900])),
            422, broken),
        Bad(5, "NaN affine", lambda: with_row(np.full(4, np.nan)), 422, broken),
        Bad(5, "singular affine", lambda: with_row(np.zeros(4)), 422, broken),
        Bad(7, "NaN voxels", nan_voxels, 422, broken),
        Bad(7, "RGB voxels", lambda: header((2, 2, 1), 128, bitpix=24) + bytes(12), 422, broken),
        Bad(8, "PNG 20000", lambda: png(20_000, 20_000, bytes(10**6)), 413, large),
        Bad(8, "PNG 12000", lambda: png(12_000, 12_000, bytes(12_001 * 12_000)), 413, large),
        Bad(8, "BMP 2000000", lambda: bmp(width=2_000_000, height=2_000_000), 413, large),
        Bad(8, "BMP of more than there is", lambda: bmp(width=900), 422, broken),
        Bad(9, "zTXt bomb", lambda: png(2, 2, bytes(6), extra=exploding_text()), 422, broken),
        Bad(9, "GIF", gif, 415, "unsupported_format"),
        Bad(10, "TIFF in a circle", lambda: tiff(2, 2, after=8), 422, broken),
        Bad(10, "TIFF 200000", lambda: tiff(200_000, 200_000), 413, large),
        Bad(11, "DICOM, a program", lambda: encoded(dataset(GREY), preamble=b"MZ\x90\0"),
            422, broken),
        Bad(12, "DICOM, deflated bomb", deflated_bomb, 413, large),
        Bad(13, "DICOM, 400 deep", lambda: nested(400), 422, broken),
        Bad(14, "DICOM, value of 4 GB", huge_value, 422, broken),
        Bad(14, "DICOM, frames", lambda: encoded(dataset(GREY, NumberOfFrames=2 * 10**9)),
            422, broken),
        Bad(14, "DICOM, short pixels", lambda: encoded(dataset(GREY, Rows=21)), 422, broken),
        Bad(15, "DICOM, JPEG 2000",
            lambda: fragments(b"\xff\x4f\xff\x51" + bytes(400), JPEG2000Lossless), 422, broken),
        Bad(15, "DICOM, RLE", lambda: fragments(b"\xff" * 64, RLELossless), 422, broken),
        Bad(16, "NRRD, detached", lambda: b"NRRD0004\ntype: uchar\ndimension: 2\nsizes: 2 2\n"
            b"encoding: raw\ndata file: /etc/passwd\n\n", 422, broken),
        Bad(16, "MetaImage",
            lambda: b"ObjectType = Image\nNDims = 2\nElementDataFile = /etc/passwd\n",
            422, broken),
        Bad(17, "npy, a pickle", pickled_npy, 415, "unsupported_format"),
        Bad(17, "npz bomb", lambda: npz_bomb(256), 413, large),
        Bad(17, "zip of a series, bomb",
            lambda: zip_of(*[("x.dcm", slice_bomb(64))] * 4), 413, large),
        Bad(17, "zip, bzip2 bomb",
            lambda: zip_of(("x", bytes(560 * 2**20)), method=zipfile.ZIP_BZIP2), 413, large),
        Bad(17, "zip of two series",
            lambda: zip_of(("/etc/a", slice_file()), ("../b", slice_file(SeriesInstanceUID="1.2"))),
            422, "several_series"),
        Bad(17, "zip, cut inside", lambda: patched(zip_of(("a", slice_file())), 60, b"\xff" * 40),
            422, broken),
        Bad(19, "torch weights", weights, 415, "unsupported_format"),
        Bad(19, "a bare pickle", lambda: pickle.dumps(_Exploit()), 415, "unsupported_format"),
    ]  # fmt: skip
    assert {bad.row for bad in listed} == set(range(1, 20)) - {6, 18}  # tested by themselves
    return listed


def flipped(byte: int) -> bytes:
    return bytes([byte ^ 1])


def with_row(row: object) -> bytes:
    """A NIfTI whose sform has another first row."""
    values = np.asarray(row, "<f4").tobytes()
    return patched(header((2, 2, 1)), 280, values) + bytes(8)


def nan_voxels() -> bytes:
    voxels = np.zeros((1, 20, 20, 3), np.float32)
    voxels[0, 3, 3, 1] = np.nan
    return encode_image(MedicalImage(voxels), "nifti")


def exploding_text() -> bytes:
    return chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(2**26)))


def huge_value() -> bytes:
    data = encoded(dataset(GREY))
    return patched(data, data.rindex(b"\xe0\x7f\x10\0OW") + 8, struct.pack("<I", 2**32 - 2))


def disagreeing() -> bytes:
    """Row 6: the qform says 1 mm, the sform 2."""
    array = np.random.default_rng(4).integers(0, 900, (20, 20, 3), dtype=np.int16)
    image = nib.Nifti1Image(array, np.diag([2.0, 2, 2, 1]))
    image.header.set_qform(np.eye(4), 1)
    image.header.set_sform(np.diag([2.0, 2, 2, 1]), 1)
    return bytes(image.to_bytes())
