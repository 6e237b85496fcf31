from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pydicom.encaps import encapsulate
from pydicom.uid import (
    UID,
    DeflatedExplicitVRLittleEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    RLELossless,
)

from caps_med.errors import (
    CapsMedError,
    InputTooLarge,
    InvalidInput,
    SeveralVolumes,
    UnsupportedFormat,
)
from caps_med.images import Limits, SliceStack, encode_image, read_image
from caps_med.images.codecs.dicom_geometry import affine_of, planes_of
from caps_med.images.codecs.dicom_volumes import NO_THICKNESS
from tests.contract.formats import ReaderContract, picture
from tests.images.dicom_files import (
    IDENTITY,
    PATIENT,
    dataset,
    encoded,
    enhanced,
    placed,
    series_file,
    slice_file,
)

GREY = np.arange(35, dtype=np.uint16).reshape(5, 7)


class TestDicomSlice(ReaderContract):
    name = "dicom"
    read_as = "nifti"

    def encoded(self) -> bytes:
        return slice_file()


class TestDicomPicture(ReaderContract):
    name = "dicom"
    read_as = "png"

    def encoded(self) -> bytes:
        return encoded(dataset(GREY), ImplicitVRLittleEndian)


class TestRleDicom(ReaderContract):
    name = "dicom"
    read_as = "png"

    def encoded(self) -> bytes:
        made = dataset(GREY)
        made.compress(RLELossless)
        return encoded(made, RLELossless)


def test_a_slice_lies_where_its_header_says() -> None:
    read = read_image(slice_file(z=3))
    assert read.array.shape == (1, 7, 5, 1) and read.array.dtype == np.int16
    assert read.array[0, 2, 4, 0] == 342  # column 2, row 4
    wanted: list[list[float]] = [[-0.75, 0, 0, 10], [0, -0.5, 0, -20], [0, 0, 2.5, 3], [0, 0, 0, 1]]
    np.testing.assert_allclose(read.affine, wanted)
    shown = SliceStack.from_image(read).array[0, 0]
    np.testing.assert_array_equal(shown[4], 340 + np.arange(7))
    np.testing.assert_array_equal(
        read_image(encode_image(read, "nifti")).affine, read.affine.astype(np.float32)
    )


@pytest.mark.parametrize("syntax", [ImplicitVRLittleEndian, DeflatedExplicitVRLittleEndian])
@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4"])
def test_values_survive(syntax: Any, dtype: str) -> None:  # noqa: ANN401
    bounds = np.iinfo(dtype)
    stored = np.array([[bounds.min, bounds.max, 1], [2, 3, 4]], dtype)
    read = read_image(encoded(dataset(stored), syntax))
    np.testing.assert_array_equal(read.array[0], stored)


@pytest.mark.parametrize("syntax", [RLELossless, JPEG2000Lossless])
def test_compressed_frames(syntax: Any) -> None:  # noqa: ANN401
    made = dataset(GREY)
    if syntax == RLELossless:
        made.compress(RLELossless)
    else:
        file = io.BytesIO()
        Image.fromarray(GREY).save(file, "JPEG2000", irreversible=False, no_jp2=True)
        made.PixelData = encapsulate([file.getvalue()])
        made["PixelData"].is_undefined_length = True
    np.testing.assert_array_equal(read_image(encoded(made, syntax)).array[0], GREY)


def test_jpeg_colours() -> None:
    made = dataset(np.zeros((16, 16, 3), np.uint8), PhotometricInterpretation="YBR_FULL_422")
    file = io.BytesIO()
    Image.new("RGB", (16, 16), (200, 30, 60)).save(file, "JPEG", quality=100)
    made.PixelData = encapsulate([file.getvalue()])
    made["PixelData"].is_undefined_length = True
    read = read_image(encoded(made, JPEGBaseline8Bit))
    np.testing.assert_allclose(read.array[:, 8, 8], [200, 30, 60], atol=4)


def test_a_colour_picture() -> None:
    colours = np.moveaxis(picture("u1", channels=3).array, 0, -1)
    read = read_image(encoded(dataset(colours)))
    np.testing.assert_array_equal(read.array, picture("u1", channels=3).array)
    assert read.format == "png"


def test_rescaling_to_hounsfield_units() -> None:
    read = read_image(slice_file(dtype="u2", RescaleSlope=2, RescaleIntercept=-1024))
    assert read.array.dtype == np.int16 and read.array.min() == -1024 and read.array.max() == -932
    read = read_image(slice_file(dtype="u2", RescaleSlope=0.5))
    assert read.array.dtype == np.float32 and read.array.max() == 23


def test_more_is_brighter() -> None:
    read = read_image(encoded(dataset(GREY, PhotometricInterpretation="MONOCHROME1", BitsStored=12,
                                      HighBit=11)))  # fmt: skip
    np.testing.assert_array_equal(read.array[0], 4095 - GREY)
    assert "MONOCHROME1 was inverted" in read.warnings[0]


def test_what_lies_above_the_top_bit_is_cut_off() -> None:
    overlay = GREY | np.uint16(0x8000)
    read = read_image(encoded(dataset(overlay, BitsStored=12, HighBit=11)))
    np.testing.assert_array_equal(read.array[0], GREY)
    signed = np.array([[0x0FFF, 0x0001]], np.uint16)  # 12 bits: -1 and 1
    made = dataset(signed, BitsStored=12, HighBit=11, PixelRepresentation=1)
    assert read_image(encoded(made)).array.tolist() == [[[-1, 1]]]


class TestSeries:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        for number, z in enumerate((4, 0, 6, 2)):
            (tmp_path / f"slice{number}.dcm").write_bytes(slice_file(z, dtype="u2"))
        (tmp_path / "notes.txt").write_text("no image")
        (tmp_path / "deeper").mkdir()
        return tmp_path

    def test_slices_are_sorted_by_their_place(self, folder: Path) -> None:
        read = read_image(folder)
        assert read.array.shape == (1, 7, 5, 4)
        assert read.array[0, 1, 2].tolist() == [21, 221, 421, 621]
        assert read.spacing == (0.75, 0.5, 2.0)
        assert read.affine[:3, 3].tolist() == [10, -20, 0]

    def test_a_list_of_its_files_is_the_series(self, folder: Path) -> None:
        files = sorted(folder.glob("*.dcm"), reverse=True)
        assert np.array_equal(read_image(files).array, read_image(folder).array)
        with pytest.raises(UnsupportedFormat, match="the content is of no known format"):
            read_image([folder / "notes.txt"])

    def test_a_list_leaves_out_nothing_that_is_named(self, folder: Path) -> None:
        files = sorted(folder.glob("*.dcm"))
        with pytest.raises(InvalidInput, match=r"cannot read .*slice9\.dcm: there is no such file"):
            read_image([*files[:2], folder / "slice9.dcm"])
        for other, named in ((folder / "deeper", "deeper"), (read_image(files), "image 5")):
            with pytest.raises(InvalidInput, match=rf"DICOM files \(slice0.*others \({named}\)"):
                read_image([*files, other])

    def test_a_missing_slice(self, folder: Path) -> None:
        (folder / "slice0.dcm").unlink()
        told = (
            "not evenly spaced: in their order, slices 2 and 3 of 3 are 4 mm apart, most 2 mm: add"
        )
        with pytest.raises(InvalidInput, match=told):
            read_image(folder)

    @pytest.mark.parametrize(
        ("heights", "told"),
        [
            ((0, 1, 2, 5, 8, 11), "slices 1 and 2 of 6 are 1 mm apart, most 3 mm: convert"),
            ((0, 3, 6, 9, 10, 11), "slices 4 and 5 of 6 are 1 mm apart, most 3 mm: convert"),
            ((0, 2, 4, 7), "slices 3 and 4 of 4 are 3 mm apart, most 2 mm: convert"),
            ((0, 2, 4, 10), "slices 3 and 4 of 4 are 6 mm apart, most 2 mm: add"),
        ],
    )
    def test_a_spacing_that_changes(self, heights: Sequence[float], told: str) -> None:
        with pytest.raises(InvalidInput, match=told):
            read_image([slice_file(z, SOPInstanceUID=f"1.2.{z}") for z in heights])

    def test_an_equal_copy_of_a_slice_is_left_out_and_told(self, folder: Path) -> None:
        once = read_image(folder)
        (folder / "again.dcm").write_bytes((folder / "slice1.dcm").read_bytes())
        read = read_image(folder)
        np.testing.assert_array_equal(read.array, once.array)
        assert "of 1 file there are equal copies, which were left out" in " ".join(read.warnings)
        with pytest.raises(InvalidInput, match=r"contains no DICOM series 9\.9"):
            read_image(folder, series="9.9")

    @pytest.mark.parametrize("changed", [{"WindowCenter": 40}, {"SOPInstanceUID": "1.2.3"}])
    def test_a_slice_that_is_there_twice(self, folder: Path, changed: dict[str, object]) -> None:
        """Two that differ in anything are two: nobody knows which one counts."""
        (folder / "again.dcm").write_bytes(slice_file(0, dtype="u2", **changed))
        with pytest.raises(
            InvalidInput, match="slices 1 and 2 of 5 lie in one place: leave one of them out"
        ):
            read_image(folder)

    def test_a_tilted_gantry_shears_the_affine(self, tmp_path: Path) -> None:
        for z in range(3):
            there = placed(2.0 * z) | {"ImagePositionPatient": [0.0, 0.5 * z, 2.0 * z]}
            (tmp_path / str(z)).write_bytes(encoded(dataset(GREY, **there)))
        np.testing.assert_allclose(read_image(tmp_path).affine[:3, 2], [0, -0.5, 2])

    def test_two_series(self, folder: Path) -> None:
        (folder / "other.dcm").write_bytes(slice_file(8, dtype="u2", SeriesInstanceUID="1.2.3"))
        with pytest.raises(InvalidInput, match="several DICOM series"):
            read_image(folder)

    def test_slices_that_differ(self, folder: Path) -> None:
        (folder / "other.dcm").write_bytes(encoded(dataset(GREY, **placed(8, (1.0, 1.0)))))
        with pytest.raises(InvalidInput, match="differ in orientation or pixel spacing"):
            read_image(folder)
        (folder / "other.dcm").write_bytes(encoded(dataset(GREY[:4], **placed(8))))
        with pytest.raises(InvalidInput, match="must have the same size"):
            read_image(folder)

    def test_all_files_together_are_bounded(self, folder: Path) -> None:
        with pytest.raises(InputTooLarge, match="4 x 5 x 7 are 140 voxels"):
            read_image(folder, limits=Limits(max_voxels=50))
        with pytest.raises(InputTooLarge, match="max_bytes"):
            read_image(folder, limits=Limits(max_bytes=2 * len(slice_file())))

    def test_a_broken_file_is_named(self, folder: Path) -> None:
        (folder / "slice0.dcm").write_bytes(slice_file(4)[:-9])
        with pytest.raises(InvalidInput, match=r"slice0.dcm: DICOM: an element reaches past"):
            read_image(folder)


def test_pictures_that_are_no_volume(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / str(number)).write_bytes(encoded(dataset(GREY + number)))
    with pytest.raises(SeveralVolumes, match=r"several pictures without a pos.* of 0 to 1 with"):
        read_image(tmp_path)
    assert read_image(tmp_path, index=1).array.shape == (1, 5, 7)
    colours = np.zeros((5, 7, 3), np.uint8)
    (tmp_path / "2").write_bytes(encoded(dataset(colours)))
    with pytest.raises(SeveralVolumes, match="are in colour, not a volume: choose one picture"):
        read_image(tmp_path)


def test_frames_of_one_file_are_a_volume() -> None:
    frames = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    read = read_image(encoded(dataset(frames)))
    np.testing.assert_array_equal(read.array[0], frames.T)
    assert "no positions" in read.warnings[0]


def test_a_slice_of_unknown_thickness_is_said_to_be(tmp_path: Path) -> None:
    for number, thickness in enumerate((None, 0)):
        unknown: dict[str, Any] = {"SliceThickness": thickness}
        image = read_image(slice_file(**unknown))
        assert image.spacing == (0.75, 0.5, 1.0) and NO_THICKNESS in image.warnings
        (tmp_path / f"{number}.dcm").write_bytes(series_file(number, 3.0 * number, **unknown))
    assert NO_THICKNESS not in read_image(slice_file()).warnings
    assert NO_THICKNESS not in read_image(tmp_path).warnings  # of two the distance is known


def test_enhanced_frames_lie_where_their_groups_say() -> None:
    frames = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    made = enhanced(frames, (0.0, 0.0), (3.0, 0.0))
    read = read_image(encoded(made))
    assert read.spacing == (0.75, 0.5, 3.0)
    assert read.array[0, 0, 0].tolist() == [12, 0]
    del made.PerFrameFunctionalGroupsSequence[1]
    with pytest.raises(InvalidInput, match="1 frames are described, there are 2"):
        read_image(encoded(made))


def test_one_enhanced_frame_may_lie_where_the_shared_groups_say() -> None:
    made = enhanced(GREY[None], (0.0, 0.0), [3.0])
    wanted = read_image(encoded(made))
    [frame], [shared] = made.PerFrameFunctionalGroupsSequence, made.SharedFunctionalGroupsSequence
    shared.PlanePositionSequence = frame.PlanePositionSequence
    made.PerFrameFunctionalGroupsSequence = []
    read = read_image(encoded(made))
    assert read.spatial_dims == 3 and read.spacing == wanted.spacing
    np.testing.assert_array_equal(read.affine, wanted.affine)


@pytest.mark.parametrize("program", [b"MZ\x90", b"\x7fELF", b"#!/bin/sh\n", b"\xcf\xfa\xed\xfe"])
def test_a_program_in_the_preamble(program: bytes) -> None:
    with pytest.raises(InvalidInput, match="the preamble contains a program"):
        read_image(encoded(dataset(GREY), preamble=program))


def test_a_deflated_bomb() -> None:
    made = dataset(GREY)
    made.add_new(0x00091010, "LO", "private")
    made.add_new(0x00091011, "OB", bytes(2**23))
    data = encoded(made, DeflatedExplicitVRLittleEndian)
    assert len(data) < 20_000
    assert read_image(data).array.shape == (1, 5, 7)
    import caps_med.images.codecs.dicom_layout as layouts

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layouts, "_HEADER_ROOM", 2**20)
        with pytest.raises(InputTooLarge, match=r"DICOM: the file inflates .*MAX_INFLATED_BYTES"):
            read_image(data, limits=Limits(max_inflated_bytes=2**20))


def nested(depth: int, closed: bool = True) -> bytes:
    """Sequences without a length in sequences, before the pixels."""
    opened = struct.pack("<HH2s2xI", 0x0008, 0x1140, b"SQ", 0xFFFFFFFF)
    item = struct.pack("<HHI", 0xFFFE, 0xE000, 0xFFFFFFFF)
    end = struct.pack("<HHI", 0xFFFE, 0xE00D, 0) + struct.pack("<HHI", 0xFFFE, 0xE0DD, 0)
    data = slice_file()
    at = data.index(b"\x08\0\x16\0")  # SOP class, the first element of the data set
    return data[:at] + (opened + item) * depth + end * depth * closed + data[at:]


def test_deep_nesting() -> None:
    assert read_image(nested(20)).array.shape == (1, 7, 5, 1)
    with pytest.raises(InvalidInput, match="nested more than 24 deep"):
        read_image(nested(400))
    with pytest.raises(InvalidInput, match=r"past the end|outside of a sequence|other than items"):
        read_image(nested(3, closed=False))


def test_many_frames_with_rich_functional_groups() -> None:
    """As an enhanced MR: 2,000 frames, each with 20 groups of 12 elements that nothing here reads.

    They are twice as many elements as once were read.
    """
    frames = 2000
    content = b"".join(struct.pack("<HH2sHf", 0x2005, 0x1000 + n, b"FL", 4, n) for n in range(12))
    group = with_items(0x2101_1000, [content])
    data = encoded(enhanced(np.zeros((frames, 2, 2), "u2"), (0, 0), range(frames)))
    ours = struct.pack("<HH2s2x", 0x5200, 0x9230, b"SQ")
    at, end = data.index(ours), data.rindex(b"\xe0\x7f\x10\0OW")
    items = [with_items(0x0020_9113, [with_position(z)]) + group * 20 for z in range(frames)]
    rich = data[:at] + with_items(0x5200_9230, items) + data[end:]
    assert read_image(rich).affine[2].tolist() == [0, 0, 1, 0]


def with_items(tag: int, items: Sequence[bytes]) -> bytes:
    """A sequence and its items, all without a length."""
    ends = [struct.pack("<HHI", 0xFFFE, end, 0) for end in (0xE00D, 0xE0DD)]
    begin = struct.pack("<HHI", 0xFFFE, 0xE000, 0xFFFFFFFF)
    head = struct.pack("<HH2s2xI", tag >> 16, tag & 0xFFFF, b"SQ", 0xFFFFFFFF)
    return head + b"".join(begin + item + ends[0] for item in items) + ends[1]


def with_position(z: float) -> bytes:
    text = f"0\\0\\{z}".encode()
    text += b" " * (len(text) % 2)
    return struct.pack("<HH2sH", 0x0020, 0x0032, b"DS", len(text)) + text


@pytest.mark.parametrize("content", [b"US\2\0\0\0", None], ids=["elements", "items"])
def test_too_many_elements(content: bytes | None) -> None:
    """Of which a parser would make objects that take a hundred times as much memory."""
    number = 2**21 if content else 2**19
    item = struct.pack("<HHI", 0xFFFE, 0xE000, 0)
    body = (b"\x09\0\1\x10" + content if content else item) * number
    if content:
        body = struct.pack("<HHI", 0xFFFE, 0xE000, len(body)) + body
    data = slice_file()
    at = data.index(b"\x08\0\x16\0")
    bomb = struct.pack("<HH2s2xI", 0x0008, 0x1140, b"SQ", len(body)) + body
    with pytest.raises(InputTooLarge, match="more than 2000000 elements"):
        read_image(data[:at] + bomb + data[at:])


def one_item(content: bytes) -> bytes:
    return struct.pack("<HHI", 0xFFFE, 0xE000, len(content)) + content


def frames_with(groups: bytes, syntax: UID) -> bytes:
    """A slice whose functional groups of frames are these items."""
    data = encoded(dataset(GREY), syntax)
    at = data.rindex(b"\xe0\x7f\x10\0")
    tag = struct.pack("<HH", 0x5200, 0x9230)
    kind = b"" if syntax == ImplicitVRLittleEndian else b"SQ\0\0"
    return data[:at] + tag + kind + struct.pack("<I", len(groups)) + groups + data[at:]


@pytest.mark.parametrize("content", [b"", b"\x09\0\1\x10US\0\0" * 100], ids=["plain", "typed"])
def test_too_many_elements_of_unknown_type(content: bytes) -> None:
    """Of UN, pydicom makes a sequence, with or without types, as its dictionary says."""
    items = one_item(content) * (60_000 // (8 + len(content)))
    group = struct.pack("<HH2s2xI", 0x0020, 0x9113, b"UN", len(items)) + items
    data = frames_with(one_item(group) * 300, ExplicitVRLittleEndian)
    with pytest.raises(InputTooLarge, match="more than 2000000 elements"):
        read_image(data)


def test_too_many_items_without_types() -> None:
    data = frames_with(one_item(b"") * 2**19, ImplicitVRLittleEndian)
    with pytest.raises(InputTooLarge, match="more than 2000000 elements"):
        read_image(data)


def with_text(tag: int, text: bytes) -> bytes:
    """A slice without types, one of whose elements is this text."""
    data = encoded(dataset(GREY, **placed(0)), ImplicitVRLittleEndian)
    head = struct.pack("<HH", tag >> 16, tag & 0xFFFF)
    at = data.index(head)
    (length,) = struct.unpack_from("<I", data, at + 4)
    value = struct.pack("<I", len(text)) + text
    return data[: at + 4] + value + data[at + 8 + length :]


@pytest.mark.parametrize(
    ("tag", "text"),
    [(0x0010_0010, b"\\"), (0x0010_0010, b"=^"), (0x0020_000E, b"\\"), (0x0020_0032, b"1\\")],
)
def test_too_many_values_of_a_text(tag: int, text: bytes) -> None:
    """pydicom takes seconds for a megabyte of them."""
    with pytest.raises(InputTooLarge, match="more than 2000000 elements or values of them"):
        read_image(with_text(tag, text * 2**21))


def test_too_many_character_sets() -> None:
    data = encoded(dataset(GREY, SpecificCharacterSet="ISO_IR 100"), ImplicitVRLittleEndian)
    many = b"\\".join([b"ISO_IR 100"] * 60)[:-1] + b" "
    value = struct.pack("<I", len(many)) + many
    named = b"\x08\0\5\0" + struct.pack("<I", 10) + b"ISO_IR 100"
    assert read_image(data).array.shape == (1, 5, 7)
    with pytest.raises(InvalidInput, match="Specific Character Set names too many"):
        read_image(data.replace(named, named[:4] + value))


def with_length(data: bytes, length: int) -> bytes:
    at = data.rindex(b"\xe0\x7f\x10\0OW") + 8
    return data[:at] + struct.pack("<I", length) + data[at + 4 :]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (with_length(slice_file(), 0xFFFFFFFE), "reaches past the end"),
        (with_length(slice_file(), 0xFFFFFFFF), "reaches past the end|no known type"),
        (slice_file()[:-10], "reaches past the end"),
        (slice_file() + b"x", "reaches past the end"),
        (encoded(dataset(GREY, Rows=6)), "describes 84 bytes of pixels, there are 70"),
        (encoded(dataset(GREY, Rows=0)), "invalid picture: 0 x 7"),
        (encoded(dataset(GREY, Rows=None)), "Rows is missing"),
        (slice_file(ImageOrientationPatient=[1.0, 0, 0, 1, 0, 0]), "two unit vectors"),
        (slice_file(PixelSpacing=[0.0, 1.0]), "must be positive"),
        (slice_file(RescaleSlope=0), "the slope not 0"),
    ],
)
def test_what_does_not_hold_together(data: bytes, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_image(data)


def test_two_billion_frames() -> None:
    with pytest.raises(InvalidInput, match="describes 140000000000 bytes of pixels, there are 70"):
        read_image(encoded(dataset(GREY, NumberOfFrames=2_000_000_000)))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (encoded(dataset(GREY, PhotometricInterpretation="HSV")), "only grey, RGB and palette"),
        (encoded(dataset(GREY, HighBit=12)), "lowest bits"),
        (encoded(dataset(GREY.astype("u8"))), "8, 16 or 32 bits"),
        (slice_file().replace(b"1.2.840.10008.1.2.1\0", b"1.2.840.10008.1.2.9\0"), "not read"),
    ],
)
def test_what_dicom_can_hold_but_is_not_read(data: bytes, message: str) -> None:
    with pytest.raises(UnsupportedFormat, match=message):
        read_image(data)


def test_no_error_or_warning_names_the_patient(
    recwarn: pytest.WarningsRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    data = slice_file().replace(b"-10.0", b"1e1e1")
    with pytest.raises(InvalidInput, match="cut or broken"):
        read_image(data)
    data = slice_file(**IDENTITY)
    random = np.random.default_rng(1)
    surname = PATIENT.split("^")[0]
    for _ in range(300):
        damaged = bytearray(data)
        damaged[random.integers(132, len(data))] = random.integers(0, 256)
        try:
            notes = read_image(bytes(damaged)).warnings
            assert surname not in str(notes)
        except CapsMedError as error:
            assert surname not in str(error)
    assert not [w for w in recwarn if surname in str(w.message)]
    assert caplog.text == ""


@pytest.mark.parametrize("tilt", [0.0, 0.4])
def test_the_planes_of_an_affine_give_it_back(tilt: float) -> None:
    """Oblique, and under a tilted gantry; whatever the order of the slices."""
    axes = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    axes *= np.linalg.det(axes)
    affine = np.eye(4)
    affine[:3, :3] = axes * (0.75, 0.5, 2.5)
    affine[:3, 2] += tilt * axes[:, 1]
    affine[:3, 3] = -10, 20, 30
    planes = planes_of(affine, 4)
    order, found = affine_of([planes[i] for i in (2, 0, 3, 1)])
    assert order == [1, 3, 0, 2]
    np.testing.assert_allclose(found, affine, atol=1e-12)
    assert planes[0].thickness == pytest.approx(2.5)


def test_frames_are_bounded() -> None:
    """They may have a single pixel each, and deflated take no space."""
    many = np.zeros((100_001, 1, 1), np.uint8)
    with pytest.raises(InputTooLarge, match="more than 100000 frames in a file: split it"):
        read_image(encoded(dataset(many)))
