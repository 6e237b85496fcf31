from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

from caps_med.errors import CapsMedError, InputTooLarge, InvalidInput, UnsupportedFormat
from caps_med.images import MedicalImage, encode_image, read_image
from tests.contract.formats import FormatContract, picture
from tests.zips import zip_of

OBLIQUE = np.array([[0.8, -0.6, 0, 3], [0.6, 0.8, 0, -5], [0, 0, -2.5, 7], [0, 0, 0, 1.0]])


def npz(**arrays: Any) -> bytes:  # noqa: ANN401
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


class TestNpz(FormatContract):
    name = "npz"

    def images(self) -> list[MedicalImage]:
        volume = np.arange(60).reshape(1, 3, 4, 5)
        volumes = [MedicalImage(volume.astype(d), OBLIQUE, "npz") for d in ("i2", "f4", "u1", "i8")]
        pictures = [picture("u1", channels, format="npz") for channels in (1, 3)]
        return [*volumes, *pictures]


def test_what_numpy_writes() -> None:
    volume = np.arange(60.0).reshape(3, 4, 5)
    for name in ("arr_0", "image", "anything"):
        read = read_image(npz(**{name: volume}))
        np.testing.assert_array_equal(read.array[0], volume)
        assert "no geometry" in read.warnings[0]
    for array in (volume, volume[None]):  # of three channels it would be a picture
        read = read_image(npz(affine=OBLIQUE, x=array))
        np.testing.assert_array_equal(read.affine, OBLIQUE)
        np.testing.assert_array_equal(read.array, volume[None])


def test_a_picture_stays_one_whatever_its_affine() -> None:
    given = MedicalImage(picture("u1", 3).array, OBLIQUE, "npz")
    assert read_image(encode_image(given, "npz")).spatial_dims == 2


def test_what_numpy_reads() -> None:
    with np.load(io.BytesIO(encode_image(picture("u1"), "npz")), allow_pickle=False) as stored:
        np.testing.assert_array_equal(stored["image"], picture("u1").array)
        np.testing.assert_array_equal(stored["affine"], np.eye(4))


def test_of_several_arrays_the_kind_says_which() -> None:
    data = npz(labels=np.ones((4, 5), np.uint8), image=np.zeros((4, 5)))
    assert read_image(data, kind="labels").array.max() == 1
    assert read_image(data).array.max() == 0
    with pytest.raises(InvalidInput, match=r"2 arrays: give the one to read the name 'image'"):
        read_image(npz(a=np.zeros((4, 5)), b=np.zeros((4, 5))))


def test_a_pickle_is_not_opened() -> None:
    with pytest.raises(UnsupportedFormat, match="dtype object is not read"):
        read_image(npz(image=np.array([[print]], dtype=object)))


def test_a_bomb_is_refused_by_its_directory() -> None:
    data = npz(image=np.zeros((12_000, 12_000), np.uint64))
    assert len(data) < 2_000_000
    with pytest.raises(InputTooLarge, match="max_inflated_bytes"):
        read_image(data)


def test_a_directory_that_says_less_than_there_is() -> None:
    data = bytearray(npz(image=np.zeros((200, 200))))
    at = data.rindex(b"PK\1\2")
    data[at + 24 : at + 28] = (1000).to_bytes(4, "little")
    with pytest.raises(InvalidInput, match="cut or broken"):
        read_image(bytes(data))


def test_a_flipped_byte_never_changes_a_value() -> None:
    data = npz(image=picture("u1").array[0])
    refused = 0
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        try:
            read = read_image(bytes(damaged))
        except CapsMedError:
            refused += 1
        else:  # bits that mean nothing, such as those behind the end of the stream
            np.testing.assert_array_equal(read.array, picture("u1").array)
    assert refused > 250  # the deflated bytes


@pytest.mark.parametrize(
    "members", [{"a.npy": b"", "b.txt": b""}, {"a.npy": b"", "c/data.pkl": b""}]
)
def test_other_zips_are_not_read(members: dict[str, bytes]) -> None:
    with pytest.raises(UnsupportedFormat, match=r"a file that is not .npy"):
        read_image(zip_of(*members.items()))


def test_too_many_arrays() -> None:
    with pytest.raises(InvalidInput, match="contains 65 arrays, but must contain 1 to 64"):
        read_image(npz(**{f"a{i}": np.zeros(1) for i in range(65)}))
