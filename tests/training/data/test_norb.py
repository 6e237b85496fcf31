"""smallNORB's binary matrices, on small files of their layout."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from caps_med.errors import InputTooLarge, InvalidInput
from caps_med.preprocessing import PicturePreprocessing
from training.data.classified import load_classified, open_classified
from training.data.classified.arrays import read_array
from training.data.classified.norb import CATEGORIES

MAGIC = {"uint8": 0x1E3D4C55, "int32": 0x1E3D4C54, "float32": 0x1E3D4C51, "int16": 0x1E3D4C56}
TOYS = {"training": (4, 6), "testing": (0, 1)}


def write_matrix(file: Path, array: NDArray[np.generic]) -> None:
    """Magic number, axes, sizes (three at least), numbers; gzipped if it is called so."""
    sizes = [*array.shape, *(1,) * (3 - array.ndim)]
    header = np.array([MAGIC[array.dtype.name], array.ndim, *sizes], "<i4").tobytes()
    content = header + array.tobytes()
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)


def write_norb(folder: Path, zipped: str = "", info: bool = True) -> NDArray[np.uint8]:
    """Two toys of each category in each part, two views of each; the training images."""
    for part, name in (("training", "46789"), ("testing", "01235")):
        stem = folder / f"smallnorb-5x{name}x9x18x6x2x96x96-{part}"
        toys = [(k, toy) for k in range(5) for toy in TOYS[part] for _ in range(2)]
        images = np.random.default_rng(len(name + part)).integers(0, 255, (20, 2, 12, 12), np.uint8)
        write_matrix(Path(f"{stem}-dat.mat{zipped}"), images)
        write_matrix(Path(f"{stem}-cat.mat{zipped}"), np.array([k for k, _ in toys], np.int32))
        if info:
            about = np.array([[toy, 0, 2, 1] for _, toy in toys], np.int32)
            write_matrix(Path(f"{stem}-info.mat{zipped}"), about)
        if part == "training":
            first = images
    return first


@pytest.mark.parametrize("zipped", ["", ".gz"])
def test_images_categories_toys_and_parts(tmp_path: Path, zipped: str) -> None:
    images = write_norb(tmp_path, zipped)
    dataset = open_classified(tmp_path)
    assert dataset.layout == "binary matrices of smallNORB" and dataset.classes == CATEGORIES
    assert [len(dataset.of(part)) for part in ("train", "test")] == [20, 20]
    third = dataset.of("train")[6]
    assert third.name == "training-06" and third.group == "human 6" and third.classes == (1,)
    np.testing.assert_array_equal(dataset.read(third).array, images[6])
    assert dataset.trainable, dataset.findings


def test_training_and_validation_see_different_toys(tmp_path: Path) -> None:
    (tmp_path / "norb").mkdir()
    write_norb(tmp_path / "norb")
    source = load_classified(
        open_classified(tmp_path / "norb"),
        tmp_path / "store",
        PicturePreprocessing(size=(12, 12), channels=2),
        validation=0.3,
        seed=0,
    )
    groups = [
        {source.groups[i] for i in part.indices} for part in (source.training, source.validation)
    ]
    assert groups[0] and groups[1] and not groups[0] & groups[1]


def test_without_info_each_image_is_on_its_own(tmp_path: Path) -> None:
    write_norb(tmp_path, info=False)
    assert {image.group for image in open_classified(tmp_path).images} == {""}


@pytest.mark.parametrize("dtype", MAGIC)
def test_matrices_of_each_type(tmp_path: Path, dtype: str) -> None:
    array = np.arange(24).reshape(2, 3, 2, 2).astype(dtype)
    write_matrix(tmp_path / "x.mat", array)
    found = read_array(tmp_path / "x.mat")
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"MATLAB 5.0 MAT-file",
        np.array([MAGIC["uint8"], 4, 9, 9, 9], "<u4").tobytes(),
        np.array([MAGIC["uint8"], 2**31, 2, 2, 2], "<u4").tobytes(),
        np.array([MAGIC["uint8"], 1, 9, 1, 1], "<u4").tobytes() + b"12345678",
    ],
)
def test_damaged_matrices_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.mat").write_bytes(content)
    with pytest.raises(InvalidInput, match=r"x\.mat: "):
        read_array(tmp_path / "x.mat")


def test_a_matrix_larger_than_the_limits_is_refused_before_it_is_read(tmp_path: Path) -> None:
    header = np.array([MAGIC["uint8"], 3, 2**31, 2**31, 2**31], "<u4")
    (tmp_path / "x.mat").write_bytes(header.tobytes())
    with pytest.raises(InputTooLarge, match="2147483648 x 2147483648 x 2147483648 are"):
        read_array(tmp_path / "x.mat")


def test_files_that_do_not_belong_together_are_told(tmp_path: Path) -> None:
    write_norb(tmp_path)
    (stem,) = {p.name.removesuffix("-dat.mat") for p in tmp_path.glob("*training-dat.mat")}
    write_matrix(tmp_path / f"{stem}-info.mat", np.zeros((3, 4), np.int32))
    write_matrix(tmp_path / f"{stem}-cat.mat", np.full(20, 7, np.int32))
    next(tmp_path.glob("*testing-dat.mat")).unlink()
    unusable = [finding.what for finding in open_classified(tmp_path).findings]
    text = " ".join(unusable)
    assert "has the shape (3, 4) for 20 images" in text
    assert "does not hold a category from 0 to 4 for each of 20 images" in text
    assert "has no dat.mat and cat.mat of the same part" in text
