"""How the bytes of a DICOM file may be arranged: transfer syntaxes, preambles, padding, icons."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from typing import Any

import imagecodecs
import numpy as np
import pytest
from pydicom.dataset import Dataset
from pydicom.encaps import encapsulate
from pydicom.uid import UID, ExplicitVRBigEndian, ImplicitVRLittleEndian

from caps_med.errors import CapsMedError, InvalidInput, UnsupportedFormat
from caps_med.images import Limits, read_image
from caps_med.images.codecs.registry import codec_of_content
from caps_med.images.image import Array
from tests.contract.formats import ReaderContract
from tests.images.dicom_files import dataset, encoded, slice_file

UIDS = "1.2.840.10008.1.2.4."
#: Numbers of 12 bits that no 8 bits hold.
PICTURE = (np.arange(16 * 24, dtype=np.uint16).reshape(16, 24) * 10) % 4096


def lossless_jpeg(array: Array) -> bytes:
    bits = 12 if array.itemsize == 2 else 8
    return bytes(imagecodecs.jpeg8_encode(array, lossless=True, bitspersample=bits))


def jpeg_2000(array: Array) -> bytes:
    return bytes(imagecodecs.jpeg2k_encode(array, codecformat="j2k", level=0))


SYNTAXES: dict[str, Callable[[Array], bytes]] = {
    "57": lossless_jpeg,
    "70": lossless_jpeg,
    "80": lambda array: bytes(imagecodecs.jpegls_encode(array)),
    "81": lambda array: bytes(imagecodecs.jpegls_encode(array)),
    "90": jpeg_2000,
    "91": jpeg_2000,
    "201": lambda array: bytes(imagecodecs.htj2k_encode(array)),
    "203": lambda array: bytes(imagecodecs.htj2k_encode(array)),
}


def compressed(number: str, frames: list[bytes], array: Array, **changed: Any) -> bytes:  # noqa: ANN401
    """A file of frames that are compressed already; `array` is that of the header."""
    made = dataset(array, **{"BitsStored": 12, "HighBit": 11, **changed})
    made.PixelData = encapsulate(frames)
    made["PixelData"].is_undefined_length = True
    return encoded(made, UID(UIDS + number))


@pytest.mark.parametrize("number", SYNTAXES)
def test_compressed_without_loss(number: str) -> None:
    frames = np.stack([PICTURE, PICTURE[::-1]])
    data = compressed(number, [SYNTAXES[number](frame) for frame in frames], frames)
    np.testing.assert_array_equal(read_image(data).array[0].T, frames)


@pytest.mark.parametrize("number", SYNTAXES)
def test_negative_numbers_in_codestreams_without_a_sign(number: str) -> None:
    signed = PICTURE.astype(np.int16) - 2000
    stream = SYNTAXES[number]((signed & 0xFFF).astype(np.uint16))
    read = read_image(compressed(number, [stream], signed))
    np.testing.assert_array_equal(read.array[0], signed)


@pytest.mark.parametrize("number", ["57", "80", "90"])
def test_colours(number: str) -> None:
    colours = np.stack([PICTURE % 251, PICTURE % 13, PICTURE // 17 % 255], axis=-1).astype("u1")
    stream = SYNTAXES[number](colours)
    told: dict[str, Any] = {"BitsStored": 8, "HighBit": 7}
    if number == "90":
        told["PhotometricInterpretation"] = "YBR_RCT"
    read = read_image(compressed(number, [stream], colours, **told))
    np.testing.assert_array_equal(np.moveaxis(read.array, 0, -1), colours)


def test_jpeg_of_12_bits() -> None:
    stream = bytes(imagecodecs.jpeg8_encode(PICTURE, level=100, bitspersample=12))
    read = read_image(compressed("51", [stream], PICTURE))
    assert np.abs(read.array[0].astype(int) - PICTURE).max() < 40
    assert read.array.max() > 3700


def test_jpeg_of_8_bits_in_the_syntax_for_12() -> None:
    grey = (PICTURE // 16).astype("u1")
    stream = bytes(imagecodecs.jpeg8_encode(grey, level=100))
    read = read_image(compressed("51", [stream], grey, BitsStored=8, HighBit=7))
    assert np.abs(read.array[0].astype(int) - grey).max() < 12


@pytest.mark.parametrize("number", SYNTAXES)
def test_a_frame_that_is_larger_than_its_header_says_is_not_decoded(number: str) -> None:
    """The header decided on the memory."""
    huge = SYNTAXES[number](np.zeros((2000, 2000), np.uint16))
    with pytest.raises(InvalidInput, match="a compressed frame has another size than the header"):
        read_image(compressed(number, [huge], PICTURE), limits=Limits(max_voxels=1000))


@pytest.mark.parametrize("number", SYNTAXES)
def test_damage_is_an_error_of_ours_or_a_picture_of_that_size(number: str) -> None:
    stream, random = SYNTAXES[number](PICTURE), np.random.default_rng(0)
    for _ in range(40):
        damaged = bytearray(stream)
        for position in random.integers(0, len(damaged), size=3):
            damaged[position] = random.integers(0, 256)
        try:
            read = read_image(compressed(number, [bytes(damaged)], PICTURE))
            assert read.array.shape == (1, 16, 24)
        except CapsMedError as error:
            assert str(error)


class TestBigEndian(ReaderContract):
    name = "dicom"
    read_as = "nifti"

    def encoded(self) -> bytes:
        return self.file(PICTURE)

    def file(self, array: Array, **changed: Any) -> bytes:  # noqa: ANN401
        made = dataset(array, PixelSpacing=[1.0, 1.0], SliceThickness=2.0,
                       ImagePositionPatient=[0.0, 0.0, 0.0],
                       ImageOrientationPatient=[1.0, 0, 0, 0, 1, 0], **changed)  # fmt: skip
        made.PixelData = array.astype(array.dtype.newbyteorder(">")).tobytes()
        made.file_meta.TransferSyntaxUID = ExplicitVRBigEndian
        made.file_meta.MediaStorageSOPClassUID = made.SOPClassUID
        made.file_meta.MediaStorageSOPInstanceUID = made.SOPInstanceUID
        file = io.BytesIO()
        made.save_as(file, enforce_file_format=True, implicit_vr=False, little_endian=False)
        return file.getvalue()

    @pytest.mark.parametrize("dtype", ["u1", "i2", "u2", "i4"])
    def test_values(self, dtype: str) -> None:
        array = PICTURE.astype(dtype)
        np.testing.assert_array_equal(read_image(self.file(array)).array[0, :, :, 0].T, array)


def test_a_preamble_that_looks_like_nifti() -> None:
    """As Siemens writes it: the length of a NIfTI header."""
    data = encoded(dataset(PICTURE), preamble=b"\x5c\x01\x00\x00")
    assert codec_of_content(data).name == "dicom"
    np.testing.assert_array_equal(read_image(data).array[0], PICTURE)


@pytest.mark.parametrize("syntax", [None, ImplicitVRLittleEndian, ExplicitVRBigEndian])
def test_without_a_preamble(syntax: UID | None) -> None:
    """With its file header, or from its first element on, as old programs stored it."""
    if syntax is None:
        data = slice_file()[128 + 4 :]
    elif syntax == ExplicitVRBigEndian:
        data = TestBigEndian().encoded()
    else:
        data = encoded(dataset(PICTURE), ImplicitVRLittleEndian)
    if syntax is not None:
        tag = b"\x00\x08\x00\x16" if syntax == ExplicitVRBigEndian else b"\x08\x00\x16\x00"
        data = data[data.index(tag) :]
    assert codec_of_content(data).name == "dicom"
    assert read_image(data).array.max() == (46 if syntax is None else PICTURE.max())


@pytest.mark.parametrize(
    "data",
    [
        b"\x08\0\x16\0" + b"x" * 200,
        b"\x02\0\0\0",
        b"\x08\0" * 100,
        b"\0\x08" * 100,
        b"\x02\0" * 100,
    ],
)
def test_what_only_begins_like_it_is_not_taken_for_dicom(data: bytes) -> None:
    with pytest.raises(CapsMedError, match="of no known format"):
        read_image(data)


def test_a_manufacturers_own_syntax_is_told() -> None:
    """GE's: elements without types, which those of unknown syntaxes are taken to have."""
    data = encoded(dataset(PICTURE), ImplicitVRLittleEndian)
    own = data.replace(b"1.2.840.10008.1.2\0", b"1.2.840.113619.5.2", 1)
    with pytest.raises(UnsupportedFormat, match=r"transfer syntax is not read .*gdcmconv --raw"):
        read_image(own)


class TestPadding:
    ODD = np.arange(15, dtype=np.uint8).reshape(3, 5)

    def test_after_the_pixels(self) -> None:
        np.testing.assert_array_equal(
            read_image(encoded(dataset(PICTURE)) + bytes(64)).array[0], PICTURE
        )

    def test_anything_else_after_them_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="reaches past the end"):
            read_image(encoded(dataset(PICTURE)) + bytes(64) + b"x")

    def test_zeros_within_the_pixel_data(self) -> None:
        made = dataset(PICTURE)
        made.PixelData += bytes(128)
        np.testing.assert_array_equal(read_image(encoded(made)).array[0], PICTURE)

    @pytest.mark.parametrize("more", [b"\1\0", bytes(2 * PICTURE.size)])
    def test_more_pixels_than_the_header_describes(self, more: bytes) -> None:
        """Other numbers, or a whole frame of zeros, are no padding."""
        made = dataset(PICTURE)
        made.PixelData += more
        with pytest.raises(InvalidInput, match=r"more pixels than|describes 768 bytes"):
            read_image(encoded(made))

    def test_an_odd_length_with_and_without_its_pad(self) -> None:
        data = encoded(dataset(self.ODD))
        np.testing.assert_array_equal(read_image(data).array[0], self.ODD)
        at = data.rindex(b"\xe0\x7f\x10\0OB") + 8
        bare = data[:at] + struct.pack("<I", 15) + data[at + 4 : at + 4 + 15]
        np.testing.assert_array_equal(read_image(bare).array[0], self.ODD)

    @pytest.mark.parametrize("right", [True, False])
    def test_checksum_and_size_after_a_deflated_part(self, right: bool) -> None:
        """As gzip has it; pydicom's test file does."""
        plain = encoded(dataset(PICTURE))
        start = plain.index(b"\x08\0\x16\0")
        header = plain[:start].replace(b"1.2.840.10008.1.2.1\0", b"1.2.840.10008.1.2.1.99")
        at = header.index(b"\x02\0\x10\0UI") + 6
        header = header[:at] + struct.pack("<H", 22) + header[at + 2 :]
        deflated = zlib.compressobj(wbits=-15)
        body = deflated.compress(plain[start:]) + deflated.flush()
        checksum = zlib.crc32(plain[start:]) ^ (not right)
        data = header + body + struct.pack("<II", checksum, len(plain) - start)
        if right:
            np.testing.assert_array_equal(read_image(data).array[0], PICTURE)
        else:
            with pytest.raises(InvalidInput, match="the deflated part is cut or broken"):
                read_image(data)


def test_an_icon_that_is_compressed() -> None:
    icon = Dataset()
    icon.Rows = icon.Columns = 2
    icon.PixelData = encapsulate([b"\xff\xd8 not looked at \xff\xd9"])
    icon["PixelData"].VR, icon["PixelData"].is_undefined_length = "OB", True
    made = dataset(PICTURE)
    made.IconImageSequence = [icon]
    np.testing.assert_array_equal(read_image(encoded(made)).array[0], PICTURE)
