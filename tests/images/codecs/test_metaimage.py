from __future__ import annotations

import gzip
import itertools
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from caps_med.errors import InputTooLarge, InvalidInput, UnsupportedFormat
from caps_med.images import Limits, MedicalImage, count_pictures, encode_image, read_image
from tests.contract.formats import FormatContract, picture

#: Rotated about two axes: ITK allows no shear.
ROTATION = np.array([[0.8, -0.6, 0], [0.48, 0.64, -0.6], [0.36, 0.48, 0.8]])
OBLIQUE = np.eye(4)
OBLIQUE[:3, :3] = ROTATION * (1.1, 0.9, 2.8)
OBLIQUE[:3, 3] = 40, -12.5, 7
VOXELS = np.arange(60, dtype=np.int16).reshape(3, 4, 5) - 20
TO_LPS = np.diag([-1.0, -1, 1, 1])


def by_hand(voxels: bytes = bytes(range(8)), **changed: Any) -> bytes:  # noqa: ANN401 - written as it is
    """A volume of 2 x 2 x 2 voxels; fields that are None are left out."""
    fields = {
        "ObjectType": "Image", "NDims": 3, "BinaryData": True, "BinaryDataByteOrderMSB": False,
        "DimSize": "2 2 2", "ElementType": "MET_UCHAR", **changed,
    }  # fmt: skip
    fields["ElementDataFile"] = fields.pop("ElementDataFile", "LOCAL")
    lines = [f"{name} = {value}\n" for name, value in fields.items() if value is not None]
    return "".join(lines).encode() + voxels


class TestMetaImage(FormatContract):
    name = "metaimage"

    def images(self) -> list[MedicalImage]:
        dtypes = ["i2", "u1", "i1", "u2", "i4", "u4", "i8", "u8", "f4", "f8"]
        flips = [np.diag([*signs, 1.0]) for signs in itertools.product((1.0, -1.0), repeat=3)]
        volumes = [MedicalImage(VOXELS[None].astype(d), OBLIQUE, self.name) for d in dtypes]
        flipped = [MedicalImage(VOXELS[None], OBLIQUE @ flip, self.name) for flip in flips]
        pictures = [picture("u1", channels, format=self.name) for channels in (1, 3, 4)]
        several = MedicalImage(np.stack([VOXELS, VOXELS + 1]), OBLIQUE, self.name)
        return [*volumes, *flipped, *pictures, several]


class TestRawMetaImage(FormatContract):
    name = "metaimage"

    def images(self) -> list[MedicalImage]:
        return [picture("u1", format=self.name)]

    def encoded(self) -> bytes:
        return by_hand(picture("u1").array.tobytes(), NDims=2, DimSize="17 13")


@pytest.mark.parametrize("compressed", [False, True])
def test_what_simpleitk_writes(tmp_path: Path, compressed: bool) -> None:
    sitk = pytest.importorskip("SimpleITK")
    image = sitk.GetImageFromArray(VOXELS.transpose(2, 1, 0))
    lps = TO_LPS @ OBLIQUE
    image.SetSpacing((1.1, 0.9, 2.8))
    image.SetDirection((TO_LPS[:3, :3] @ ROTATION).ravel().tolist())
    image.SetOrigin(lps[:3, 3].tolist())
    image.SetMetaData("Patient", "Doe")
    for name in ("x.mha", "x.mhd"):  # one file, and a header beside its voxels
        sitk.WriteImage(image, str(tmp_path / name), compressed)
        read = read_image(tmp_path / name)
        np.testing.assert_array_equal(read.array[0], VOXELS)
        np.testing.assert_allclose(read.affine, OBLIQUE)
        assert read.warnings == () and read.format == "metaimage"
        assert count_pictures(tmp_path / name) == 1
    assert {path.suffix for path in tmp_path.iterdir()} == {
        ".mha", ".mhd", ".zraw" if compressed else ".raw",
    }  # fmt: skip


def test_what_simpleitk_reads(tmp_path: Path) -> None:
    sitk = pytest.importorskip("SimpleITK")
    MedicalImage(VOXELS[None], OBLIQUE).save(tmp_path / "x.mha")
    read = sitk.ReadImage(str(tmp_path / "x.mha"))
    np.testing.assert_array_equal(sitk.GetArrayFromImage(read), VOXELS.transpose(2, 1, 0))
    np.testing.assert_allclose(read.GetSpacing(), (1.1, 0.9, 2.8))
    np.testing.assert_allclose(read.GetOrigin(), (TO_LPS @ OBLIQUE)[:3, 3])
    np.testing.assert_allclose(
        np.reshape(read.GetDirection(), (3, 3)), TO_LPS[:3, :3] @ ROTATION, atol=1e-12
    )


def test_one_time_point_is_a_volume(tmp_path: Path) -> None:
    """Of a time series of 3D Slicer or ITK, or of a fourth axis that a program has added."""
    sitk = pytest.importorskip("SimpleITK")
    image = sitk.GetImageFromArray(VOXELS.transpose(2, 1, 0)[None], isVector=False)
    direction = np.eye(4)
    direction[:3, :3] = TO_LPS[:3, :3] @ ROTATION
    image.SetSpacing((1.1, 0.9, 2.8, 7))
    image.SetDirection(direction.ravel().tolist())
    image.SetOrigin([*(TO_LPS @ OBLIQUE)[:3, 3], 5])
    names = ("x.mha", "x.nrrd", "x.nii")
    for name in names:
        sitk.WriteImage(image, str(tmp_path / name))
    for source in (*(tmp_path / name for name in names), image):
        read = read_image(source)
        np.testing.assert_array_equal(read.array[0], VOXELS)
        np.testing.assert_allclose(read.affine, OBLIQUE, atol=1e-5)
        assert read.warnings == ()
    like = read.like(image)
    np.testing.assert_array_equal(sitk.GetArrayFromImage(like), VOXELS.transpose(2, 1, 0))
    np.testing.assert_allclose(read_image(like).affine, OBLIQUE)


@pytest.mark.parametrize("axes", [2, 3])
@pytest.mark.parametrize("channels", [2, 3])
def test_several_channels_as_simpleitk_has_them(tmp_path: Path, axes: int, channels: int) -> None:
    sitk = pytest.importorskip("SimpleITK")
    shape = (*(5, 4, 3)[:axes], channels)
    voxels = np.random.default_rng(0).integers(0, 99, shape).astype(np.uint8)
    sitk.WriteImage(sitk.GetImageFromArray(voxels, isVector=True), str(tmp_path / "x.mha"))
    read = read_image(tmp_path / "x.mha")
    order = (2, 0, 1) if axes == 2 else (3, 2, 1, 0)
    np.testing.assert_array_equal(read.array, voxels.transpose(order))
    read.save(tmp_path / "ours.mha")
    ours = sitk.ReadImage(str(tmp_path / "ours.mha"))
    np.testing.assert_array_equal(sitk.GetArrayFromImage(ours), voxels)


@pytest.mark.parametrize(
    "changed",
    [
        {"Position": "1 2 3", "ElementSpacing": "2 2 2", "Orientation": "0 1 0 1 0 0 0 0 1"},
        {"Origin": "1 2 3", "ElementSize": "2 1 2", "Rotation": "0 1 0 1 0 0 0 0 1"},
        {"ElementSize": "2 2 2", "ElementSpacing": "3 3 3"},
        {"Offset": "1 2 3", "Origin": "4 5 6", "Position": "7 8 9"},
        {"Offset": "1 2 3", "Position": "7 8 9"},
        {"ElementSpacing": "-1 1 1", "AnatomicalOrientation": "RAS", "CenterOfRotation": "5 5 5"},
        {"TransformMatrix": "2 0 0 0 2 0 0 0 1", "Comment": "drawn\x0bby hand"},
        {"ElementType": "MET_UCHAR_ARRAY", "BinaryData": None, "ElementDataFile": "Local"},
        {"ElementType": "MET_SHORT", "voxels": np.arange(8, dtype=">i2").tobytes(),
         "BinaryDataByteOrderMSB": "True"},
        {"ElementType": "MET_SHORT", "voxels": np.arange(8, dtype=">i2").tobytes(),
         "BinaryDataByteOrderMSB": None, "ElementByteOrderMSB": "True"},
        {"HeaderSize": -1, "voxels": b"of a scanner" + bytes(range(8))},
        {"ElementType": "MET_LONG", "voxels": np.arange(8, dtype="<i4").tobytes()},
        {"ElementType": "MET_ULONG", "voxels": np.arange(8, dtype="<u4").tobytes()},
        {"ElementToIntensityFunctionSlope": "2", "ElementToIntensityFunctionOffset": "10"},
    ],
)  # fmt: skip
def test_fields_mean_what_itk_reads(tmp_path: Path, changed: dict[str, Any]) -> None:
    sitk = pytest.importorskip("SimpleITK")
    (tmp_path / "x.mha").write_bytes(by_hand(**changed))
    theirs = sitk.ReadImage(str(tmp_path / "x.mha"))
    read = read_image(tmp_path / "x.mha")
    np.testing.assert_array_equal(read.array[0], sitk.GetArrayFromImage(theirs).transpose(2, 1, 0))
    corners = np.array(list(itertools.product((0, 1), repeat=3)))
    placed = [theirs.TransformIndexToPhysicalPoint(corner.tolist()) for corner in corners]
    ours = corners @ read.affine[:3, :3].T + read.affine[:3, 3]
    np.testing.assert_allclose(ours, np.array(placed) * (-1, -1, 1), atol=1e-9)


def test_what_had_to_be_decided_is_told() -> None:
    placed: dict[str, Any] = {"TransformMatrix": "1 0 0 0 1 0 0 0 1", "ElementSpacing": "1 1 1"}
    assert read_image(by_hand(**placed)).warnings == ()
    assert "no orientation" in read_image(by_hand()).warnings[0]
    assert "no voxel size; 1 mm is assumed" in read_image(by_hand()).warnings[1]
    warnings = read_image(by_hand(**placed, ElementToIntensityFunctionSlope="2")).warnings
    assert "ElementToIntensityFunction is not applied" in warnings[0]


@pytest.mark.parametrize("pack", [zlib.compress, gzip.compress])
def test_voxels_in_zlib_or_gzip(pack: Callable[[bytes], bytes]) -> None:
    packed = pack(bytes(range(8)))
    for size in (None, len(packed)):
        data = by_hand(packed, CompressedData=True, CompressedDataSize=size)
        assert read_image(data).array.ravel(order="F").tolist() == list(range(8))


@pytest.mark.parametrize(
    ("changed", "error", "told"),
    [
        ({"NDims": 4, "DimSize": "1 2 2 2"}, UnsupportedFormat, "split its time points"),
        ({"NDims": 10**9}, UnsupportedFormat, r"NDims must be 2 .* got 1000000000"),
        ({"NDims": "3.0"}, InvalidInput, "NDims must be a whole number of at least 1"),
        ({"DimSize": "2 2"}, InvalidInput, "DimSize must be 3 whole numbers"),
        ({"DimSize": "2 2 0"}, InvalidInput, "DimSize must be 3 whole numbers"),
        ({"DimSize": None}, InvalidInput, "DimSize is missing"),
        ({"DimSize": "2 2 3"}, InvalidInput, "describes 12 bytes, the file has 8"),
        ({"DimSize": "9999999 9999999 9999999"}, InputTooLarge, "max_voxels"),
        ({"ElementNumberOfChannels": 10**12}, InputTooLarge, "max_inflated_bytes"),
        ({"ElementNumberOfChannels": "many"}, InvalidInput, "ElementNumberOfChannels must be"),
        ({"ElementType": "MET_STRING"}, UnsupportedFormat, "integer or float"),
        ({"ElementType": None}, InvalidInput, "ElementType is missing"),
        ({"BinaryData": False}, UnsupportedFormat, "save it as binary"),
        ({"BinaryDataByteOrderMSB": "perhaps"}, InvalidInput, "must be True or False"),
        ({"HeaderSize": 3}, UnsupportedFormat, "HeaderSize must be 0, or -1"),
        ({"HeaderSize": -1, "DimSize": "2 2 3"}, InvalidInput, "describes 12 bytes"),
        ({"HeaderSize": -1, "CompressedData": True}, UnsupportedFormat, "with CompressedData"),
        ({"TransformMatrix": "1 0 0 1 0 0 0 0 1"}, InvalidInput, "singular"),
        ({"ElementSpacing": "1 0 1"}, InvalidInput, "singular"),
        ({"ElementSpacing": "1 nan 1"}, InvalidInput, "finite"),
        ({"ElementSpacing": "1e300 1e300 1e300"}, InvalidInput, "finite in float32"),
        ({"ElementSpacing": "1e-200 1e-200 1e-200"}, InvalidInput, "singular"),
        ({"Offset": "1 2"}, InvalidInput, "Offset must be 3 numbers"),
        ({"Offset": "1 2 x"}, InvalidInput, "Offset must be 3 numbers"),
        ({"CompressedData": True}, InvalidInput, "zlib: the stream is broken"),
        ({"CompressedData": True, "CompressedDataSize": 7}, InvalidInput, "describes 7 bytes"),
        ({"CompressedData": True, "voxels": zlib.compress(bytes(9))}, InvalidInput, "just the 8"),
        ({"CompressedData": True, "voxels": zlib.compress(bytes(7))}, InvalidInput, "just the 8"),
        ({"CompressedData": True, "voxels": zlib.compress(bytes(8)) + b"x"}, InvalidInput, "just"),
        ({"CompressedData": True, "DimSize": "99 999 999"}, InvalidInput, "cannot hold them"),
        ({"ElementDataFile": "/etc/passwd"}, InvalidInput, "save it as one .mha file"),
        ({"ElementDataFile": "LIST"}, InvalidInput, "save it as one .mha file"),
        ({"Comment": "x\nObjectType = Image"}, InvalidInput, "given twice"),
        ({"Comment": "x\nand more"}, InvalidInput, "does not have the form"),
        ({"Comment": "x" * 2**16}, InvalidInput, "ends the header within 65536 bytes"),
    ],
)  # fmt: skip
def test_what_is_refused(changed: dict[str, Any], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        read_image(by_hand(**changed))


def test_only_voxels_called_as_their_header_are_read_beside_it(tmp_path: Path) -> None:
    header = by_hand(b"", ElementDataFile="x.raw")
    (tmp_path / "x.mhd").write_bytes(header)
    with pytest.raises(InvalidInput, match=r"cannot read .*x\.raw, the voxels of x\.mhd"):
        read_image(tmp_path / "x.mhd")
    (tmp_path / "x.raw").write_bytes(bytes(range(8)))
    here = header.replace(b"= x.raw", b"= ./x.raw")
    for written in (header, here, header.rstrip(), header.replace(b"\n", b"\r\n")):  # by hand, too
        (tmp_path / "x.mhd").write_bytes(written)
        assert read_image(tmp_path / "x.mhd").array.ravel(order="F").tolist() == list(range(8))
    with pytest.raises(InvalidInput, match="lie in another file"):  # bytes have nothing beside them
        read_image(header)
    limits = Limits(max_bytes=len(header) + 7)
    with pytest.raises(InputTooLarge, match="max_bytes"):
        read_image(tmp_path / "x.mhd", limits=limits)
    (tmp_path / "other.raw").write_bytes(bytes(8))
    (tmp_path / "x.mhd").write_bytes(by_hand(b"", ElementDataFile="other.raw"))
    with pytest.raises(InvalidInput, match=r"x\.mhd: .* another file than x\.raw or x\.zraw"):
        read_image(tmp_path / "x.mhd")


def test_a_link_out_of_the_folder_of_a_header_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "secret").write_bytes(bytes(8))
    (tmp_path / "set/x.mhd").write_bytes(by_hand(b"", ElementDataFile="x.raw"))
    (tmp_path / "set/x.raw").symlink_to(tmp_path / "secret")
    with pytest.raises(InvalidInput, match="a link to another folder"):
        read_image(tmp_path / "set/x.mhd")
    (tmp_path / "links").mkdir()  # as git-annex and DVC make them
    (tmp_path / "links/x.mhd").symlink_to(tmp_path / "set/x.mhd")
    (tmp_path / "links/x.raw").symlink_to(tmp_path / "secret")
    assert not read_image(tmp_path / "links/x.mhd").array.any()


def test_a_long_line_without_an_end_is_no_metaimage() -> None:
    spaces = b"NDims = 3\nElementDataFile =" + b" " * 2**16 + b"x"
    for data in (b"a=" * 10**6, b"a=\n" * 10**6, b"NDims", b"NDims = 3" * 10**5, spaces):
        with pytest.raises((UnsupportedFormat, InvalidInput)):
            read_image(data)


def test_a_label_map_is_written_as_bytes() -> None:
    labels = MedicalImage(np.full((1, 2, 2, 2), 3), kind="labels")
    data = encode_image(labels, "metaimage")
    assert b"ElementType = MET_UCHAR\n" in data
    assert read_image(data, kind="labels").array.dtype == np.uint8
