"""Zips of one image, in one file or as a header and its voxels."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from caps_med.errors import CapsMedError, InputTooLarge, InvalidInput, UnsupportedFormat
from caps_med.images import Limits, MedicalImage, count_pictures, encode_image, read_image
from caps_med.images.series import series_of_zip
from tests.images.dicom_files import PATIENT, slice_file
from tests.zips import crowded, zip_of

VOXELS = np.arange(24, dtype=np.int16).reshape(1, 2, 3, 4)
IMAGE = MedicalImage(VOXELS, np.diag([1.0, 2, 3, 1]))
HEADER = b"""ObjectType = Image
NDims = 3
DimSize = 2 3 4
ElementSpacing = 1 2 3
ElementType = MET_SHORT
ElementDataFile = t1.raw
"""
RAW = VOXELS.tobytes(order="F")


@pytest.mark.parametrize("folder", ["", f"{PATIENT}/"])
def test_a_header_and_its_voxels(folder: str) -> None:
    beside = [("__MACOSX/._t1.mhd", b"x"), (f"{folder}.DS_Store", b"x")]
    data = zip_of((f"{folder}t1.raw", RAW), (f"{folder}any.mhd", HEADER), *beside)
    read = read_image(data)
    np.testing.assert_array_equal(read.array, VOXELS)
    assert read.spacing == (1.0, 2.0, 3.0)
    assert read.format == "metaimage"
    assert count_pictures(data) == 1


@pytest.mark.parametrize("name", ["x.mhd", "x.nhdr"])
@pytest.mark.parametrize("compressed", [False, True])
def test_what_simpleitk_writes(tmp_path: Path, name: str, compressed: bool) -> None:
    sitk = pytest.importorskip("SimpleITK")
    image = sitk.GetImageFromArray(VOXELS[0])
    image.SetSpacing((1, 2, 3))
    sitk.WriteImage(image, str(tmp_path / name), compressed)
    files = [(path.name, path.read_bytes()) for path in sorted(tmp_path.iterdir())]
    assert len(files) == 2
    for source in (tmp_path / name, zip_of(*files)):
        read = read_image(source)
        np.testing.assert_array_equal(read.array[0], VOXELS[0].T)
        assert read.spacing == (1.0, 2.0, 3.0)


@pytest.mark.parametrize(
    ("header", "voxels"), [("t1.mhd", "t1.RAW"), ("T1.MHD", "T1.raw"), ("T1.mhd", "T1.RAW")]
)
def test_capitals_do_not_matter_in_names_of_voxels(
    tmp_path: Path, header: str, voxels: str
) -> None:
    """As on the disks of Windows and macOS, from which such files come."""
    (tmp_path / header).write_bytes(HEADER)
    (tmp_path / voxels).write_bytes(RAW)
    files = [(path.name, path.read_bytes()) for path in tmp_path.iterdir()]
    for source in (tmp_path / header, zip_of(*files)):
        np.testing.assert_array_equal(read_image(source).array, VOXELS)


def test_of_two_names_the_one_in_the_header_counts(tmp_path: Path) -> None:
    for name, content in {"t1.mhd": HEADER, "t1.RAW": RAW[::-1], "t1.raw": RAW}.items():
        (tmp_path / name).write_bytes(content)
    np.testing.assert_array_equal(read_image(tmp_path / "t1.mhd").array, VOXELS)


def test_voxels_without_their_header_name_it(tmp_path: Path) -> None:
    for name, content in {"t1.mhd": HEADER, "t1.raw": RAW}.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UnsupportedFormat, match=r"t1.raw holds the voxels of t1.mhd alone: give /"):
        read_image(tmp_path / "t1.raw")
    (tmp_path / "t1.mhd").unlink()
    with pytest.raises(UnsupportedFormat, match="of no known format"):
        read_image(tmp_path / "t1.raw")


@pytest.mark.parametrize("format", ["nifti", "nrrd", "metaimage", "npy", "npz"])
def test_one_file(tmp_path: Path, format: str) -> None:
    content = encode_image(IMAGE, format)
    (tmp_path / "x.zip").write_bytes(zip_of((f"{PATIENT}.x", content)))
    for source in (tmp_path / "x.zip", (tmp_path / "x.zip").read_bytes()):
        np.testing.assert_array_equal(read_image(source).array, read_image(content).array)


def test_dicom_stays_dicom() -> None:
    data = zip_of(("1.dcm", slice_file()), ("t1.mhd", HEADER))
    assert read_image(data).array.shape == (1, 7, 5, 1)


NIFTI = encode_image(IMAGE, "nifti")


@pytest.mark.parametrize(
    ("data", "error", "told"),
    [
        (HEADER, InvalidInput, "save it as one .mha file, or put both files into a zip"),
        (zip_of((f"{PATIENT}.mhd", HEADER)), InvalidInput, "put both files into a zip"),
        (
            zip_of((f"{PATIENT}.mhd", HEADER), (f"{PATIENT}.raw", RAW)),
            InvalidInput,
            "names another file for its voxels than the one beside it",
        ),
        (zip_of(("a/t1.mhd", HEADER), ("b/t1.raw", RAW)), InvalidInput, "names another file"),
        (zip_of(("t1.mhd", HEADER), ("t1.raw", RAW[:-1])), InvalidInput, "MetaImage"),
        (
            zip_of(("x.mhd", HEADER.replace(b"t1.raw", b"/etc/passwd")), ("y", b"x")),
            InvalidInput,
            "names another file",
        ),
        (zip_of(("a.nii", NIFTI), ("b.nii", NIFTI)), UnsupportedFormat, "no DICOM picture"),
        (zip_of(("a.txt", b"text")), UnsupportedFormat, "or one image"),
        (zip_of(("a.zip", zip_of(("a.nii", NIFTI)))), UnsupportedFormat, "no DICOM picture"),
        (zip_of(("a.nii", NIFTI), ("b", b""), ("c", b"")), UnsupportedFormat, "no DICOM picture"),
    ],
)
def test_what_is_not_one_image(data: bytes, error: type[CapsMedError], told: str) -> None:
    with pytest.raises(error, match=told) as raised:
        read_image(data)
    assert PATIENT not in str(raised.value)


def test_a_header_alone_in_a_zip_takes_no_voxels_from_beside_the_zip(tmp_path: Path) -> None:
    (tmp_path / "t1.raw").write_bytes(RAW)
    (tmp_path / "t1.zip").write_bytes(zip_of(("t1.mhd", HEADER)))
    with pytest.raises(InvalidInput, match="put both files into a zip"):
        read_image(tmp_path / "t1.zip")


def test_it_is_inflated_within_bounds() -> None:
    data = zip_of(("t1.mhd", HEADER), ("t1.raw", bytes(2**24)))
    with pytest.raises(InputTooLarge, match="max_inflated_bytes"):
        read_image(data, limits=Limits(max_inflated_bytes=2**20))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (crowded(100_000), "more than 20000 files: split it"),
        (crowded(100_000, "a.npy"), "more than 20000 files: split it"),
        (crowded(400, "a" * 60_000), "its list of files takes 24018400 bytes"),
    ],
    ids=["of files", "of arrays", "of long names"],
)
@pytest.mark.parametrize("read", [read_image, series_of_zip])
def test_a_long_directory_is_refused_before_it_is_read(
    read: Callable[[bytes], object], data: bytes, told: str
) -> None:
    tracemalloc.start()
    with pytest.raises(InputTooLarge, match=told):
        read(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.5 * len(data)
