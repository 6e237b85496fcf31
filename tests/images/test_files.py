from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from caps_med.errors import InputTooLarge, InvalidInput, InvalidParameter, UnsupportedFormat
from caps_med.images import (
    FORMATS,
    Limits,
    MedicalImage,
    count_pictures,
    encode_image,
    read_image,
    write_image,
)
from tests.contract.formats import picture


@pytest.mark.parametrize("format", ["nifti", "nrrd", "metaimage"])
@pytest.mark.parametrize(
    ("given", "kept"), [("bool", "u1"), ("float16", "f4"), ("longdouble", "f8")]
)
def test_dtypes_that_formats_do_not_know(format: str, given: str, kept: str) -> None:
    image = MedicalImage(np.ones((1, 2, 3, 4), given))
    back = read_image(encode_image(image, format)).array
    assert back.dtype == np.dtype(kept) and (back == 1).all()


def test_formats_are_a_closed_list() -> None:
    assert FORMATS == (
        "nifti",
        "nrrd",
        "metaimage",
        "dicom",
        "png",
        "jpeg",
        "tiff",
        "bmp",
        "npy",
        "npz",
    )


@pytest.mark.parametrize("data", [b"GIF89a" + bytes(100), b"\x80\x04pickle", b"PK\3\4zip"])
def test_unknown_content(data: bytes) -> None:
    with pytest.raises(
        UnsupportedFormat, match=r"of no known format .allowed: nifti, nrrd, metaimage"
    ):
        read_image(data)


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "a.png").touch()
    for source in (b"", tmp_path / "a.png"):
        with pytest.raises(InvalidInput, match="the file is empty: copy it again"):
            read_image(source)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"cannot read .*none.png: No such file"):
        read_image(tmp_path / "none.png")


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="test_a_folder0 holds no DICOM picture: give a file"):
        read_image(tmp_path)


def test_a_large_file_is_not_read_to_its_end() -> None:
    with pytest.raises(InputTooLarge, match=r"more than 100 bytes .max_bytes."):
        read_image("/dev/zero", limits=Limits(max_bytes=100))


def test_an_unknown_format_or_suffix(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFormat, match=r"format must be one of nifti, .*, got 'gif'"):
        encode_image(picture("u1"), "gif")
    with pytest.raises(UnsupportedFormat, match=r"x.gif has no known suffix: use one of .nii.gz"):
        write_image(picture("u1"), tmp_path / "x.gif")


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("x.NII.GZ", b"\x1f\x8b"),
        ("x.nii", b"\x5c\1\0\0"),
        ("x.png", b"\x89PNG"),
        ("x.jpeg", b"\xff\xd8"),
        ("x.tif", b"II*\0"),
        ("x.npy", b"\x93NUMPY"),
        ("x.npz", b"PK\3\4"),
        ("x.nrrd", b"NRRD0005"),
    ],
)
def test_the_suffix_chooses_the_format(tmp_path: Path, name: str, start: bytes) -> None:
    picture("u1").save(tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_a_file_that_is_no_stack_is_its_own_first_picture() -> None:
    data = encode_image(picture("u1"), "png")
    assert count_pictures(data) == 1
    np.testing.assert_array_equal(read_image(data, index=0).array, picture("u1").array)
    with pytest.raises(InvalidInput, match="png: no picture 1, it is one image"):
        read_image(data, index=1)


def test_written_files_have_the_usual_permissions(tmp_path: Path) -> None:
    picture("u1").save(tmp_path / "x.png")
    (tmp_path / "plain").write_bytes(b"")
    assert (tmp_path / "x.png").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_labels_must_be_whole_and_not_negative() -> None:
    def labels(value: float) -> MedicalImage:
        return read_image(
            encode_image(MedicalImage(np.full((1, 2, 2), value)), "npy"), kind="labels"
        )

    assert labels(3.0).array.dtype == np.uint8
    assert labels(300.0).array.dtype == np.uint16
    for scaled in (2.0000001, 1.9999998, 2.0009):  # by the slope in a file's header
        assert np.all(labels(scaled).array == 2)
    assert np.all(labels(-1e-6).array == 0)
    for fraction in (0.5, 1.998):
        with pytest.raises(
            InvalidInput, match=r"label ids must be whole numbers.*nearest neighbour"
        ):
            labels(fraction)
    with pytest.raises(InvalidInput, match="label ids must not be negative, the smallest is -1"):
        labels(-1.0)
    with pytest.raises(InvalidInput, match=r"label ids must be below 2\*\*32"):
        labels(2.0**33)


def test_a_colour_picture_is_no_label_map_unless_grey() -> None:
    grey = MedicalImage(np.repeat(picture("u1").array, 3, axis=0))
    assert read_image(encode_image(grey, "png"), kind="labels").array.shape == (1, 13, 17)
    with pytest.raises(InvalidInput, match="a colour picture is not a label map"):
        read_image(encode_image(picture("u1", channels=3), "png"), kind="labels")


def test_a_file_in_a_folder_that_is_not_there_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match=r"a\.png: there is no folder .*; create it first"):
        write_image(picture("uint8"), tmp_path / "nowhere" / "a.png")


@pytest.mark.parametrize("name", ["a" * 300 + ".png", "a\0.png"])
def test_names_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    for read in (read_image, count_pictures):
        with pytest.raises(InvalidInput, match="cannot read"):
            read(path)
    with pytest.raises(InvalidInput, match="cannot read"):
        read_image([path, path])
    with pytest.raises(InvalidParameter, match="cannot write"):
        picture("uint8").save(path)
    with pytest.raises(InvalidParameter, match=r"cannot write|there is no folder"):
        picture("uint8").save(path / "a.png")


def test_an_image_is_not_written_over_a_folder(tmp_path: Path) -> None:
    (tmp_path / "a.png").mkdir()
    with pytest.raises(InvalidParameter, match=r"a\.png is a folder: give the name of a file"):
        picture("uint8").save(tmp_path / "a.png")
    assert [file.name for file in tmp_path.iterdir()] == ["a.png"]
