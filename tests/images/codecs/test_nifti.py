from __future__ import annotations

import gzip
import itertools
import math
import struct
import tracemalloc
import warnings
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import pytest

from caps_med.errors import InputTooLarge, InvalidInput, UnsupportedFormat
from caps_med.images import (
    Limits,
    MedicalImage,
    SliceStack,
    encode_image,
    one_slice,
    read_image,
)
from caps_med.images.codecs import streams
from caps_med.images.image import Array
from tests.contract.formats import FormatContract, picture
from tests.zips import zip_of

OBLIQUE = np.array(
    [
        [-1.1, 0.2, 0.3, 40.0],
        [0.25, 0.9, -0.4, -12.5],
        [0.1, 0.35, 2.8, 7.25],
        [0.0, 0.0, 0.0, 1.0],
    ]
)
VOXELS = np.arange(60, dtype=np.int16).reshape(3, 4, 5) - 20


def nifti(
    array: Array = VOXELS,
    affine: Array | None = OBLIQUE,
    version: int = 1,
    **fields: Any,  # noqa: ANN401 - the dtype of a field is its own
) -> bytes:
    """A .nii file as nibabel writes it, then with header `fields` overwritten."""
    kind = nib.Nifti1Image if version == 1 else nib.Nifti2Image
    data = bytearray(kind(array, affine, dtype=array.dtype).to_bytes())
    template = kind.header_class().template_dtype
    for name, value in fields.items():
        part, at = template.fields[name][:2]
        data[at : at + part.itemsize] = np.array(value, part.base).tobytes()
    return bytes(data)


def deflated(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)


class TestNifti(FormatContract):
    name = "nifti"

    def images(self) -> list[MedicalImage]:
        dtypes = ["i2", "u1", "i1", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]
        flips = [np.diag([*signs, 1.0]) for signs in itertools.product((1.0, -1.0), repeat=3)]
        affines = [OBLIQUE, *(OBLIQUE @ flip for flip in flips)]
        return [
            MedicalImage(np.arange(60).reshape(1, 3, 4, 5).astype(dtype), affine, "nifti")
            for dtype, affine in itertools.product(dtypes, affines)
        ]

    def encoded(self) -> bytes:
        return encode_image(self.images()[0], "nifti")


class TestPlainNifti(FormatContract):
    """The same without gzip: no checksum stands in front of the header."""

    name = "nifti"

    def images(self) -> list[MedicalImage]:
        return [MedicalImage(VOXELS[None], OBLIQUE, "nifti")]

    def encoded(self) -> bytes:
        return encode_image(self.images()[0], "nifti", compress=False)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("order", ["<", ">"])
def test_header_codes_version_and_byte_order_survive(
    tmp_path: Path, version: int, order: str
) -> None:
    kind = nib.Nifti1Image if version == 1 else nib.Nifti2Image
    header = kind.header_class(endianness=order)
    header.set_data_dtype("i2")
    header.set_sform(OBLIQUE, code=4)
    header.set_qform(OBLIQUE, code=1)
    header.set_xyzt_units("mm", "sec")
    source = tmp_path / "in.nii"
    source.write_bytes(kind(VOXELS, None, header).to_bytes())

    read = read_image(source)
    read.with_array((read.array > 0).astype(np.int64), kind="labels").save(tmp_path / "out.nii")

    out = nib.load(tmp_path / "out.nii")
    before = nib.load(source).header
    assert type(out) is kind and out.header.endianness == order
    for field in ("sform_code", "qform_code", "xyzt_units", "srow_x", "quatern_b", "pixdim"):
        np.testing.assert_array_equal(out.header[field], before[field])
    assert out.get_data_dtype().itemsize == 1
    np.testing.assert_array_equal(out.get_fdata(), VOXELS > 0)


def test_nibabel_reads_what_is_written_where_it_lies(tmp_path: Path) -> None:
    MedicalImage(VOXELS[None], OBLIQUE, "nifti").save(tmp_path / "x.nii.gz")
    loaded = nib.load(tmp_path / "x.nii.gz")
    np.testing.assert_array_equal(loaded.get_fdata(), VOXELS)
    np.testing.assert_allclose(loaded.affine, OBLIQUE, rtol=1e-6)


def test_slope_is_applied_once_and_reset() -> None:
    read = read_image(nifti(scl_slope=0.5, scl_inter=3))
    assert read.array.dtype == np.float32
    np.testing.assert_array_equal(read.array[0], VOXELS * 0.5 + 3)
    np.testing.assert_array_equal(read_image(encode_image(read, "nifti")).array, read.array)


@pytest.mark.parametrize(("unit", "scale"), [("micron", 1e-3), ("meter", 1e3), ("mm", 1.0)])
def test_units_become_millimetres_and_the_header_keeps_its_own(unit: str, scale: float) -> None:
    code = nib.nifti1.unit_codes[unit]
    read = read_image(nifti(xyzt_units=code))
    np.testing.assert_allclose(read.affine[:3], OBLIQUE[:3] * scale, rtol=1e-6)
    again = read_image(encode_image(read, "nifti"))
    np.testing.assert_array_equal(again.affine, read.affine)
    assert again.header is not None and again.header["xyzt_units"] == code


def test_a_new_affine_wins_over_the_old_header() -> None:
    read = read_image(nifti(xyzt_units=3))
    moved = MedicalImage(read.array, np.diag([2.0, 3.0, 4.0, 1.0]), "nifti", header=read.header)
    again = read_image(encode_image(moved, "nifti"))
    np.testing.assert_array_equal(again.affine, moved.affine)


def test_trailing_axes_of_one_are_dropped_and_missing_ones_added() -> None:
    assert read_image(nifti(VOXELS[..., None])).array.shape == (1, 3, 4, 5)
    assert read_image(nifti(VOXELS[..., 0])).array.shape == (1, 3, 4, 1)


def test_channels_become_the_fourth_axis() -> None:
    classes = np.random.default_rng(0).random((4, 3, 4, 5), dtype=np.float32)
    data = encode_image(MedicalImage(classes, OBLIQUE, "nifti"), "nifti", compress=False)
    loaded = nib.Nifti1Image.from_stream(BytesIO(data))
    np.testing.assert_array_equal(loaded.get_fdata(), np.moveaxis(classes, 0, -1))


def test_a_picture_becomes_an_axial_slice_the_same_way_up() -> None:
    flat = picture("u1")
    volume = read_image(encode_image(flat, "nifti"))
    assert volume.array.shape == (1, 17, 13, 1)
    np.testing.assert_array_equal(SliceStack.from_image(volume, "axial").array[0], flat.array)


def test_a_long_axis_is_written_as_nifti_2() -> None:
    read = read_image(encode_image(MedicalImage(np.ones((1, 40_000, 1, 1), np.uint8)), "nifti"))
    assert read.array.shape == (1, 40_000, 1, 1)
    assert isinstance(read.header, nib.Nifti2Header)


@pytest.mark.parametrize(("dtype", "stored"), [("?", "u1"), ("f2", "f4")])
def test_dtypes_that_nifti_lacks_are_widened(dtype: str, stored: str) -> None:
    image = MedicalImage(np.eye(4, dtype=dtype).reshape(1, 4, 4, 1))
    read = read_image(encode_image(image, "nifti"))
    assert read.array.dtype == stored
    np.testing.assert_array_equal(read.array, image.array)


def test_the_sform_wins_and_a_disagreement_is_told() -> None:
    header = nib.Nifti1Header()
    header.set_data_dtype("i2")
    header.set_sform(np.diag([1.0, 1.0, 1.0, 1.0]), code=1)
    header.set_qform(np.diag([2.0, 2.0, 2.0, 1.0]), code=1)
    read = read_image(nib.Nifti1Image(VOXELS, None, header).to_bytes())
    assert read.spacing == (1.0, 1.0, 1.0)
    assert any("sform and qform disagree" in warning for warning in read.warnings)
    header.set_sform(None, code=0)
    read = read_image(nib.Nifti1Image(VOXELS, None, header).to_bytes())
    assert read.spacing == (2.0, 2.0, 2.0) and read.warnings == ()


def test_forms_that_agree_bring_no_warning() -> None:
    rotation = OBLIQUE.copy()
    rotation[:3, :3] = np.linalg.qr(OBLIQUE[:3, :3])[0]
    header = nib.Nifti1Header()
    header.set_data_dtype("i2")
    header.set_sform(rotation, code=1)
    header.set_qform(rotation, code=1)
    assert read_image(nib.Nifti1Image(VOXELS, None, header).to_bytes()).warnings == ()


def test_no_orientation_is_told() -> None:
    read = read_image(nifti(sform_code=0, qform_code=0))
    assert any("no orientation" in warning for warning in read.warnings)


@pytest.mark.parametrize("sizes", [(3, 4), (3, 4, 5)])
def test_a_slice_without_an_orientation_stays_in_its_place(sizes: tuple[int, ...]) -> None:
    """Without one, the place of voxels follows from their number."""
    voxels = VOXELS[..., : math.prod(sizes[2:])].reshape(sizes)
    pixdim = [1, 2, 3, 4, 1, 1, 1, 1]
    read = read_image(nifti(voxels, sform_code=0, qform_code=0, pixdim=pixdim))
    first = one_slice(read, 0)
    again = read_image(encode_image(first, "nifti"))
    np.testing.assert_allclose(again.affine, first.affine)


@pytest.mark.parametrize("code", [0, 1])
def test_a_missing_voxel_size_is_told(code: int, caplog: pytest.LogCaptureFixture) -> None:
    def told(array: Array, **fields: Any) -> list[str]:  # noqa: ANN401 - as in `nifti`
        read = read_image(nifti(array, None, sform_code=0, qform_code=code, **fields))
        return [warning for warning in read.warnings if "no voxel size; 1 mm" in warning]

    assert told(VOXELS, pixdim=[1, 2, 2, 0, 0, 0, 0, 0])
    assert not told(VOXELS[..., :1], pixdim=[1, 2, 2, 0, 0, 0, 0, 0])
    assert not told(VOXELS, pixdim=[1, 2, 2, 2, 0, 0, 0, 0])
    assert not caplog.records
    oriented = read_image(nifti(pixdim=[1, 0, 0, 0, 0, 0, 0, 0]))  # its sform has the sizes
    assert oriented.warnings == () and np.allclose(oriented.affine, OBLIQUE)


def test_extensions_are_not_carried_along() -> None:
    image = nib.Nifti1Image(VOXELS, OBLIQUE)
    image.header.extensions.append(nib.nifti1.Nifti1Extension("comment", b"Jane Doe"))
    data = image.to_bytes()
    assert b"Jane Doe" in data
    assert b"Jane Doe" not in encode_image(read_image(data), "nifti", compress=False)


@pytest.mark.parametrize("pack", [bytes, deflated])
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"srow_x": [np.nan, 0, 0, 0]}, "affine must be finite"),
        ({"srow_x": [0, 0, 0, 0]}, "affine is singular"),
        ({"dim": [3, 3, -4, 5, 1, 1, 1, 1]}, "dim must be 2 to 7 sizes"),
        ({"dim": [9, 3, 4, 5, 1, 1, 1, 1]}, "dim must be 2 to 7 sizes"),
        (
            {"dim": [3, 3, 4, 6, 1, 1, 1, 1]},
            "header describes (the )?496|496 bytes that the header",
        ),
        ({"vox_offset": 12}, "vox_offset must be at least 352"),
        ({"vox_offset": np.nan}, "vox_offset must be at least 352"),
        ({"scl_slope": 1, "scl_inter": np.inf}, "scl_slope and scl_inter must be finite"),
        ({"scl_slope": np.nan}, "scl_slope and scl_inter must be finite, got nan and 0.0"),
        ({"scl_slope": -np.inf}, "scl_slope and scl_inter must be finite, got -inf"),
        ({"scl_slope": 2, "scl_inter": np.nan}, "scl_slope and scl_inter must be finite"),
        ({"sform_code": 0, "qform_code": 1, "quatern_b": 9}, "header is broken"),
        ({"datatype": 128, "bitpix": 24}, "datatype 128 .RGB. is not read"),
        ({"datatype": 32, "bitpix": 64}, "datatype 32 .complex64. is not read"),
    ],
)
def test_broken_headers(
    pack: Callable[[bytes], bytes], fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        read_image(pack(nifti(**fields)))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (nifti(np.zeros((2, 2, 2, 3, 2), np.int16)), r"this file has \[2, 2, 2, 3, 2\]"),
        (nifti(magic=b"ni1"), "put both files into a zip"),
        (nifti(version=2, magic=b"ni2\0\r\n\x1a\n"), "put both files into a zip"),
        (nifti(magic=b""), "Analyze 7.5 does not say where left and right are: convert it"),
        (deflated(b"hello" * 200), "gzip: only NIfTI"),
    ],
)
def test_what_nifti_can_hold_but_is_not_read(data: bytes, message: str) -> None:
    with pytest.raises(UnsupportedFormat, match=message):
        read_image(data)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e200])
def test_voxels_that_are_no_numbers(bad: float) -> None:
    voxels = VOXELS.astype(np.float64)
    voxels[1, 2, 3] = bad
    with pytest.raises(InvalidInput, match=r"NaN or infinity|numbers beyond float32"):
        read_image(nifti(voxels))


def test_scaled_voxels_are_held_once_beside_those_of_the_file() -> None:
    """16 bits of the file and 32 of the answer, whether the file is compressed or not."""
    array = np.random.default_rng(0).integers(0, 4000, (96, 96, 96), np.int16)
    file = nifti(array, scl_slope=1, scl_inter=-1024)
    for data, allowed in ((file, 2.1), (gzip.compress(file, 1), 3.1)):
        tracemalloc.start()
        read = read_image(data)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < allowed * array.nbytes
        np.testing.assert_array_equal(read.array[0], array.astype(np.float32) - 1024)


def test_a_slope_of_zero_is_none() -> None:
    """As nifti1.h has it, whatever the intercept."""
    assert np.array_equal(read_image(nifti(scl_slope=0, scl_inter=np.nan)).array[0], VOXELS)


def test_a_slope_that_overflows() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with pytest.raises(InvalidInput, match="NaN or infinity"):
            read_image(nifti(scl_slope=3e38))


@pytest.mark.parametrize("channels", [2, 3, 4])
def test_channels_of_a_picture_are_no_slices(channels: int) -> None:
    """As of the probabilities of a picture: they are the fourth axis, as those of a volume."""
    several = picture("f4", channels)
    read = read_image(encode_image(several, "nifti"))
    assert read.array.shape == (channels, 17, 13, 1)
    np.testing.assert_array_equal(SliceStack.from_image(read).array[0], several.array)


def test_colour_pictures_are_no_nifti() -> None:
    with pytest.raises(UnsupportedFormat, match=r"cannot be NIfTI: .* can be, as floats"):
        encode_image(picture("u1", channels=3), "nifti")


class TestGzip:
    """The bounds of compressed input."""

    def test_a_bomb_is_refused_from_its_header(self) -> None:
        header = nifti(dim=[3, 1200, 1200, 1200, 1, 1, 1, 1])[:352]
        bomb = gzip.compress(header + bytes(16 * 2**20), 9) + bytes(10)
        with pytest.raises(InputTooLarge, match="max_voxels"):
            read_image(bomb + bytes(4 * 2**20))

    def test_never_inflates_past_what_the_header_says(self) -> None:
        with pytest.raises(InvalidInput, match="more voxels than the 472 bytes"):
            read_image(deflated(nifti() + bytes(2**20)))

    def test_a_header_that_promises_more_than_its_bytes_can_hold(self) -> None:
        tiny = deflated(nifti(dim=[3, 32767, 32767, 32767, 1, 1, 1, 1])[:352])
        with pytest.raises(InvalidInput, match="bytes of gzip cannot hold them"):
            read_image(tiny)

    @pytest.mark.parametrize("part", [0.3, 0.5, 0.99])
    def test_cut(self, part: float) -> None:
        voxels = np.random.default_rng(0).integers(0, 99, (20, 20, 20), dtype=np.int16)
        data = deflated(nifti(voxels))
        with pytest.raises(InvalidInput, match="gzip: the stream is cut"):
            read_image(data[: int(len(data) * part)])

    @pytest.mark.parametrize("position", [-1, -6])
    def test_wrong_length_or_checksum(self, position: int) -> None:
        data = bytearray(deflated(nifti()))
        data[position] ^= 1
        with pytest.raises(InvalidInput, match="wrong checksum, length or code"):
            read_image(bytes(data))

    def test_one_flipped_bit_inside_is_found(self) -> None:
        stored = bytearray(gzip.compress(nifti(), 0))  # not packed: only the checksum can tell
        stored[-20] ^= 1
        with pytest.raises(InvalidInput, match="wrong checksum"):
            read_image(bytes(stored))

    def test_trailing_bytes(self) -> None:
        data = deflated(nifti())
        with pytest.raises(InvalidInput, match="gzip: 1 bytes after the end"):
            read_image(data + b"x")
        with pytest.raises(InvalidInput, match="gzip: 3 bytes after the end"):
            read_image(data + b"\0x\0")
        np.testing.assert_array_equal(read_image(data + bytes(512)).array[0], VOXELS)
        with pytest.raises(InvalidInput, match="more voxels than the 472 bytes"):
            read_image(data + data)

    def test_a_stream_of_several_members(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """As bgzip writes, whose last one is empty."""
        content = nifti()
        parts = (content[:400], content[400:450], content[450:], b"")
        members = b"".join(map(deflated, parts))
        np.testing.assert_array_equal(read_image(members).array, read_image(content).array)
        with pytest.raises(InvalidInput, match="gzip: the stream is cut"):
            read_image(members[:-9])
        with pytest.raises(InvalidInput, match="fewer voxels than the 472 bytes"):
            read_image(deflated(parts[0]) + deflated(parts[1]))
        monkeypatch.setattr(streams, "_MAX_MEMBERS", 3)
        with pytest.raises(InvalidInput, match="more than 3 members"):
            read_image(members)


def test_trailing_bytes_without_gzip() -> None:
    with pytest.raises(InvalidInput, match="describes 472 bytes, the file has 473"):
        read_image(nifti() + b"x")


def test_voxels_over_the_bound_are_told_before_decoding() -> None:
    with pytest.raises(InputTooLarge, match="3 x 4 x 5 are 60 voxels, allowed are 59"):
        read_image(nifti(), limits=Limits(max_voxels=59))


@pytest.mark.parametrize("kind", [nib.Nifti1Pair, nib.Nifti2Pair])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("end", [".img", ".img.gz"])
def test_pairs_of_files(tmp_path: Path, kind: Any, order: str, end: str) -> None:  # noqa: ANN401
    single = nib.Nifti1Image if kind is nib.Nifti1Pair else nib.Nifti2Image
    scaled = np.linspace(-7, 9, 60, dtype=np.float32).reshape(3, 4, 5)
    for array, dtype in ((VOXELS, np.int16), (scaled, np.int16)):
        header = kind.header_class(endianness=order)
        header.set_data_dtype(dtype)
        nib.save(kind(array, OBLIQUE, header), tmp_path / f"x{end}")
        whole = single.from_image(nib.load(tmp_path / f"x{end}")).get_fdata()
        files = sorted(tmp_path.iterdir())
        assert [path.name for path in files] == [f"x{end}".replace("img", "hdr"), f"x{end}"]
        for source in (files[0], zip_of(*((f"a/{p.name}", p.read_bytes()) for p in files))):
            read = read_image(source)
            np.testing.assert_allclose(read.array[0], whole, rtol=1e-6)
            np.testing.assert_allclose(read.affine, OBLIQUE, atol=1e-6)
            assert read.format == "nifti" and read.warnings == ()
            again = read_image(encode_image(read, "nifti"))
            np.testing.assert_array_equal(again.array, read.array)
            np.testing.assert_array_equal(again.affine, read.affine)


@pytest.mark.parametrize("end", [".IMG", ".IMG.GZ", ".img"])
def test_names_of_pairs_may_be_in_capitals(tmp_path: Path, end: str) -> None:
    header, voxels = nifti(magic=b"ni1", vox_offset=0)[:348], VOXELS.tobytes(order="F")
    header_file, voxels_file = tmp_path / "X.HDR", tmp_path / f"X{end}"
    header_file.write_bytes(header)
    voxels_file.write_bytes(gzip.compress(voxels) if end.endswith("GZ") else voxels)
    zipped = zip_of(*((path.name, path.read_bytes()) for path in (header_file, voxels_file)))
    for source in (header_file, zipped):
        np.testing.assert_array_equal(read_image(source).array[0], VOXELS)


def test_voxels_of_a_pair_may_begin_anywhere_and_are_bounded(tmp_path: Path) -> None:
    header, voxels = nifti(magic=b"ni1", vox_offset=16)[:348], VOXELS.tobytes(order="F")
    path, beside = tmp_path / "x.hdr", tmp_path / "x.img"
    path.write_bytes(header)
    with pytest.raises(InvalidInput, match=r"cannot read .*x\.img, the voxels of x\.hdr"):
        read_image(path)
    beside.write_bytes(bytes(16) + voxels)
    np.testing.assert_array_equal(read_image(path).array[0], VOXELS)
    with pytest.raises(InputTooLarge, match="max_bytes"):
        read_image(path, limits=Limits(max_bytes=480))
    with pytest.raises(InputTooLarge, match="60 voxels, allowed are 59"):
        read_image(path, limits=Limits(max_voxels=59))
    beside.write_bytes(bytes(15) + voxels)
    with pytest.raises(InvalidInput, match="it is cut or its header wrong"):
        read_image(path)
    for offset in (np.nan, -1.0, 0.5, np.inf):
        path.write_bytes(nifti(magic=b"ni1", vox_offset=offset)[:348])
        with pytest.raises(InvalidInput, match="vox_offset must be at least"):
            read_image(path)
    with pytest.raises(InvalidInput, match="rename that file as in the header"):
        read_image(zip_of(("x.hdr", header), ("y.img", voxels)))
    path.write_bytes(nifti(magic=b""))
    with pytest.raises(UnsupportedFormat, match="Analyze"):
        read_image(path)
    with pytest.raises(UnsupportedFormat, match=r"x\.hdr has no known suffix"):
        MedicalImage(VOXELS[None]).save(path)


@pytest.mark.parametrize("kind", [nib.Nifti1Pair, nib.Nifti2Pair])
def test_what_nibabel_read_from_a_pair_is_written_as_one_file(kind: Any) -> None:  # noqa: ANN401
    read = read_image(kind(VOXELS, OBLIQUE))
    again = read_image(encode_image(read, "nifti"))
    np.testing.assert_array_equal(again.array[0], VOXELS)
    np.testing.assert_allclose(again.affine, OBLIQUE, atol=1e-5)


def test_a_pair_header_with_the_size_alone() -> None:
    with pytest.raises(InvalidInput, match="104 bytes, shorter than the header of 348"):
        read_image(struct.pack("<i", 348) + bytes(100))
