"""What every image format promises; a format's test class inherits this and gives samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from caps_med.errors import CapsMedError, InputTooLarge
from caps_med.images import CODECS, Limits, MedicalImage, encode_image, read_image, write_image
from caps_med.images.codecs.registry import codec_of_content


class ReaderContract:
    """What reading promises. Subclasses set `name`, and give the content of a good file."""

    name: str
    #: `MedicalImage.format` of what was read.
    read_as: str | None = None
    #: How many bytes at the start the random damage hits.
    damaged = 700

    def encoded(self) -> bytes:
        raise NotImplementedError

    def test_content_is_recognised_whatever_the_name(self, tmp_path: Path) -> None:
        path = tmp_path / "holiday.mp3"
        path.write_bytes(self.encoded())
        assert read_image(path).format == (self.read_as or self.name)
        assert codec_of_content(self.encoded()) is CODECS[self.name]

    def test_what_was_read_is_writable_memory_in_native_order(self) -> None:
        array = read_image(self.encoded()).array
        assert array.flags.writeable and array.flags.c_contiguous and array.dtype.isnative

    def test_every_cut_is_refused(self) -> None:
        data = self.encoded()
        for length in [*range(1, min(len(data), 300)), *range(300, len(data), 97), len(data) - 1]:
            with pytest.raises(CapsMedError, match=r"\w"):
                read_image(data[:length])

    @pytest.mark.filterwarnings("ignore::UserWarning:PIL")
    def test_damage_never_raises_anything_else(self) -> None:
        data = self.encoded()
        random = np.random.default_rng(0)
        for _ in range(300):
            damaged = bytearray(data)
            for position in random.integers(0, min(len(data), self.damaged), size=3):
                damaged[position] = random.integers(0, 256)
            try:
                read = read_image(bytes(damaged), limits=Limits(2**20, 2**20, 2**18))
            except CapsMedError as error:
                assert str(error)
            else:
                assert np.isfinite(read.array).all()

    def test_too_many_voxels(self) -> None:
        with pytest.raises(InputTooLarge, match="max_voxels"):
            read_image(self.encoded(), limits=Limits(max_voxels=10))

    def test_too_many_decoded_bytes(self) -> None:
        with pytest.raises(InputTooLarge, match="max_inflated_bytes"):
            read_image(self.encoded(), limits=Limits(max_inflated_bytes=10))

    def test_too_large_a_file(self) -> None:
        with pytest.raises(InputTooLarge, match="max_bytes"):
            read_image(self.encoded(), limits=Limits(max_bytes=10))


class FormatContract(ReaderContract):
    """Reading and writing. Subclasses set `name`, and `images()` that it holds without loss."""

    labels = True
    lossless = True

    def images(self) -> list[MedicalImage]:
        raise NotImplementedError

    def label_map(self) -> MedicalImage:
        image = self.images()[0]
        ids = np.arange(np.prod(image.spatial_shape)).reshape(1, *image.spatial_shape) % 5
        return image.with_array(ids, kind="labels")

    def encoded(self) -> bytes:
        return encode_image(self.images()[0], self.name)

    def test_values_dtype_and_geometry_survive(self, tmp_path: Path) -> None:
        for image in self.images():
            path = tmp_path / f"image{CODECS[self.name].suffixes[0]}"
            image.save(path)
            back = read_image(path)
            assert back.format == self.name
            assert back.array.shape == image.array.shape
            assert back.array.dtype == image.array.dtype
            np.testing.assert_allclose(back.affine, image.affine, rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(back.array, image.array, atol=0 if self.lossless else 12)

    def test_label_ids_survive_in_the_smallest_dtype(self) -> None:
        if not self.labels:
            pytest.skip("no labels in this format: its own tests say what is refused")
        labels = self.label_map()
        back = read_image(encode_image(labels, self.name), kind="labels")
        assert back.kind == "labels" and back.array.dtype == np.uint8
        np.testing.assert_array_equal(back.array, labels.array)

    def test_encoding_is_deterministic(self) -> None:
        assert self.encoded() == self.encoded()

    def test_a_failed_write_leaves_the_old_file(self, tmp_path: Path) -> None:
        path = tmp_path / f"image{CODECS[self.name].suffixes[0]}"
        path.write_bytes(b"old")
        unwritable = MedicalImage(np.full((1, 2, 2), -1), kind="labels")
        with pytest.raises(CapsMedError, match="must not be negative"):
            write_image(unwritable, path)
        assert [file.read_bytes() for file in tmp_path.iterdir()] == [b"old"]


def picture(dtype: str, channels: int = 1, format: str = "png") -> MedicalImage:
    """A smooth picture `[channels, 13, 17]`, neither square nor symmetric."""
    rows, columns = np.mgrid[:13, :17]
    planes = [rows * 9 + columns * (5 + channel) for channel in range(channels)]
    return MedicalImage(np.stack(planes).astype(dtype), format=format)
