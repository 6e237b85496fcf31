from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from caps_med.images import read_image
from tests.images.codecs.test_dicom_seg import series
from tests.images.dicom_files import SERIES
from tests.training.data.pairs import draw_pairs, save_pages, save_volume, two_folders
from training.data import open_dataset
from training.data.cases import FileRef
from training.data.layouts import discover
from training.data.reading import BrokenCase, encoding_of, read_case
from training.data.stacks import pictures_in, read_reference

PAIRS = draw_pairs(3)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([{0, 1}, {0}], {}),
        ([{0, 255}, {0}], {0: 0, 255: 1}),
        ([{255}], {0: 0, 255: 1}),
        ([{0, 1}, {0, 255}], {0: 0, 1: 1, 255: 1}),
        ([{0, 65535}, {0, 255}, {1}], {0: 0, 1: 1, 255: 1, 65535: 1}),
        ([{0, 1, 255}, {0, 255}], {}),
        ([{0, 255, 65535}], {}),
        ([{0, 255}, {0, 3}], {}),
        ([{0, 1, 2}], {}),
        ([{0}], {}),
        ([], {}),
    ],
)
def test_masks_are_distinguished_from_class_ids(
    values: list[set[int]], expected: dict[int, int]
) -> None:
    assert encoding_of(values) == expected


def test_a_named_255_is_a_class() -> None:
    assert encoding_of([{0, 255}], names=[0, 255]) == {}


def test_a_palette_picture_holds_ids(tmp_path: Path) -> None:
    two_folders("images", "labels")(tmp_path, PAIRS)
    for i, (_, mask) in enumerate(PAIRS.values()):
        picture = Image.fromarray(mask * np.uint8(3))
        picture.putpalette([0, 0, 0, 9, 9, 9, 255, 0, 0, 0, 255, 0])
        picture.save(tmp_path / "labels" / f"axon-{i:02}.png")
    cases = open_dataset(tmp_path)
    _, label = cases.read(cases.cases[0])
    assert set(np.unique(label.array)) == {0, 3}


def test_colour_images_keep_their_channels(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    two_folders("images", "labels")(tmp_path, PAIRS)
    pixels = rng.integers(0, 255, (20, 28, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "images" / "axon-00.png")
    cases = open_dataset(tmp_path)
    image, _ = cases.read(cases.cases[0])
    np.testing.assert_array_equal(image.array, np.moveaxis(pixels, -1, 0))


@pytest.mark.parametrize("unit", ["micron", ""])
def test_pages_of_a_label_map_are_slices_where_those_of_its_image_are(
    unit: str, tmp_path: Path
) -> None:
    """Fiji describes its pages; label maps of most other programs are pages and nothing else."""
    volume = np.random.default_rng(0).integers(0, 9, (5, 6, 7), np.uint8)
    for folder in ("images", "labels"):
        (tmp_path / folder).mkdir()
    tifffile.imwrite(
        tmp_path / "images" / "a.tif", volume, imagej=True, resolution=(4, 4),
        metadata={"axes": "ZYX", "spacing": 0.5, "unit": unit},
    )  # fmt: skip
    save_pages(volume, tmp_path / "labels" / "a.tif")
    cases = open_dataset(tmp_path)
    (case,) = cases.cases
    image, label = cases.read(case)
    lengths = [0.00025, 0.00025, 0.0005] if unit else [1, 1, 1]
    assert image.spacing == pytest.approx(lengths)
    for one in (label, cases.read_label(case)):
        np.testing.assert_array_equal(one.affine, image.affine)
        np.testing.assert_array_equal(one.array, image.array)
    save_pages(volume[:4], tmp_path / "labels" / "a.tif")
    (unpaired,) = discover(tmp_path).unpaired
    assert unpaired.what == (
        "is a single picture or volume, or corrupt, while a.tif contains 4 pictures"
    )


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_volume_of_one_slice_is_a_picture(axis: int, tmp_path: Path) -> None:
    shape = [6, 7, 8]
    shape[axis] = 1
    volume = np.random.default_rng(0).integers(0, 9, shape, np.uint8)
    for kind in ("images", "labels"):
        save_volume(volume, np.diag([-1.0, -1, 1, 1]), tmp_path / kind / "a.nii.gz")
    cases = open_dataset(tmp_path)
    image, label = cases.read(cases.cases[0])
    assert image.spatial_dims == 2
    np.testing.assert_array_equal(image.array, label.array)
    assert sorted(image.array.ravel()) == sorted(volume.ravel())


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_single_slice_keeps_its_place_where_a_model_needs_it(axis: int, tmp_path: Path) -> None:
    """Also beside a label map that is a picture, and one stored in another order."""
    shape = [6, 7, 8]
    shape[axis] = 1
    volume = np.random.default_rng(0).integers(0, 9, shape, np.uint8)
    affine = np.diag([-2.0, -3, 4, 1])
    for name in "ab":
        save_volume(volume, affine, tmp_path / "images" / f"{name}.nii.gz")
    save_volume(volume[::-1, ::-1, ::-1], -affine, tmp_path / "labels" / "a.nii.gz")
    cases = open_dataset(tmp_path)
    picture, *_ = read_case(cases.cases[0])
    Image.fromarray(picture.array[0]).save(tmp_path / "labels" / "b.png")
    cases = open_dataset(tmp_path)
    assert len(cases.cases) == 2
    for case in cases.cases:
        image, label = cases.read(case, flat=False)
        assert label.kind == "labels" and image.array.shape == label.array.shape == (1, *shape)
        np.testing.assert_array_equal(image.array[0], volume)
        np.testing.assert_array_equal(label.array[0], volume)
        np.testing.assert_array_equal(image.affine, affine)
        np.testing.assert_array_equal(label.affine, affine)


def test_an_image_and_its_label_map_must_match(tmp_path: Path) -> None:
    two_folders("images", "labels")(tmp_path, PAIRS)
    Image.fromarray(np.zeros((9, 9), np.uint8)).save(tmp_path / "labels" / "axon-01.png")
    cases = open_dataset(tmp_path)
    with pytest.raises(
        BrokenCase, match=r"axon-01.png has size \(20, 28\), but its label map \(9, 9\)"
    ):
        cases.read(cases.cases[1])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int32, np.float32])
def test_pages_keep_their_values(dtype: type[np.generic], tmp_path: Path) -> None:
    pages = np.random.default_rng(0).integers(0, 250, (3, 5, 6)).astype(dtype)
    if dtype == np.uint16:
        pages *= np.uint16(200)
    save_pages(pages, tmp_path / "a.tif")
    assert pictures_in(tmp_path / "a.tif") == 3
    for i, page in enumerate(pages):
        read = read_reference(FileRef(tmp_path / "a.tif", i), "image")
        np.testing.assert_array_equal(read.array[0], page)


@pytest.mark.parametrize(
    "shape", [(3, 5, 6), (3, 5, 6, 1), (3, 1, 5, 6), (3, 5, 6, 3), (3, 3, 5, 6)]
)
def test_stacks_of_arrays_are_read_one_picture_at_a_time(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    stack = np.random.default_rng(0).normal(0, 1, shape).astype(np.float32)
    np.save(tmp_path / "a.npy", stack)
    read = read_reference(FileRef(tmp_path / "a.npy", 1), "image").array
    assert read.shape == (3 if shape.count(3) == 2 else 1, 5, 6)
    assert sorted(read.ravel()) == sorted(stack[1].ravel())


def test_a_corrupt_stack_is_reported(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((4, 5, 6)))
    data = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(data[:300])
    with pytest.raises(ValueError, match=r"a\.npy: truncated or corrupt"):
        read_reference(FileRef(tmp_path / "a.npy", 0), "image")
    np.save(tmp_path / "b.npy", np.array([None]), allow_pickle=True)
    with pytest.raises(ValueError, match=r"b\.npy: truncated or corrupt"):
        read_reference(FileRef(tmp_path / "b.npy", 0), "image")


def folder_of(root: Path, name: str) -> Path:
    """For a series."""
    folder = root / "images" / name
    folder.mkdir(parents=True)
    return folder


def test_segments_of_a_dicom_seg_are_one_label_by_their_name(tmp_path: Path) -> None:
    """Numbers differ from file to file, slices without labels are left out, one series each."""
    drawn = {}
    for name, names in (("a", {1: "liver", 2: "tumor"}), ("b", {1: "Tumor", 2: "liver"})):
        folder = series(folder_of(tmp_path, name), SeriesInstanceUID=f"{SERIES}.{ord(name)}")
        image = read_image(folder)
        ids = np.zeros(image.array.shape, np.uint8)
        ids[0, 1:4, 0:2, 1], ids[0, 5, 4, 1] = 1, 2
        (tmp_path / "labels").mkdir(exist_ok=True)
        seg = replace(image.with_array(ids, kind="labels"), names=names)
        seg.save(tmp_path / "labels" / f"{name}.dcm")
        drawn[name] = ids if name == "a" else np.array([0, 2, 1], np.uint8)[ids]
    dataset = open_dataset(tmp_path)
    assert dataset.labels == {0: "background", 1: "liver", 2: "tumor"}
    assert dataset.codes[2].type.meaning == "Neoplasm"
    for case in dataset.cases:
        image, label = dataset.read(case)
        np.testing.assert_array_equal(label.array, drawn[case.name])
        np.testing.assert_array_equal(label.affine, image.affine)
        assert dataset.read_label(case).spatial_shape == (5, 7)  # one slice alone is a picture


def test_a_dicom_seg_of_another_series_is_reported(tmp_path: Path) -> None:
    image = read_image(series(folder_of(tmp_path, "a")))
    elsewhere = replace(image, affine=image.affine @ np.diag([2.0, 1, 1, 1]))
    ids = np.ones(image.array.shape, np.uint8)
    (tmp_path / "labels").mkdir()
    elsewhere.with_array(ids, kind="labels").save(tmp_path / "labels" / "a.dcm")
    (case,) = open_dataset(tmp_path).cases
    with pytest.raises(BrokenCase, match=r"are not those of the image .*: resample it onto"):
        read_case(case)
