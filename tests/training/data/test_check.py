from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import nibabel
import numpy as np
import pytest
from PIL import Image

from caps_med.errors import InvalidInput
from caps_med.images import MedicalImage
from caps_med.images.image import STACK_AFFINE
from tests.images.codecs.test_dicom_segments import content_of, of_highdicom
from tests.training.data.pairs import (
    LAYOUTS,
    draw_pairs,
    save_volume,
    two_folders,
    write,
)
from training.data import Dataset, open_dataset
from training.data.check.findings import CODES

PAIRS = draw_pairs(6)
SIDE = np.diag([-1.0, 1.0, 2.0, 1.0])


def volumes(root: Path) -> Path:
    """Four labelled volumes."""
    rng = np.random.default_rng(0)
    for name in "abcd":
        label = np.zeros((8, 9, 5), np.uint8)
        label[2:6, 2:6, 1:4] = 1
        image = label * 100 + rng.integers(0, 50, label.shape)
        save_volume(image.astype(np.int16), SIDE, root / "images" / f"{name}.nii.gz")
        save_volume(label, SIDE, root / "labels" / f"{name}.nii.gz")
    return root


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    return two_folders("images", "labels")(tmp_path / "data", PAIRS)


def codes(report: Dataset) -> list[tuple[str, str]]:
    return [(found.code, found.file) for found in report.findings]


def image(i: int) -> str:
    return f"images/axon-{i:02}.png"


def label(i: int) -> str:
    return f"labels/axon-{i:02}.png"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def save(array: object, path: Path) -> None:
    Image.fromarray(np.asarray(array, np.uint8)).save(path)


def colour(root: Path) -> None:
    save(np.random.default_rng(0).integers(0, 255, (20, 28, 3)), root / label(2))


def nan(root: Path) -> None:
    array = PAIRS["axon-02"][0].astype(np.float32)
    array[3, 3] = np.nan
    (root / image(2)).unlink()
    np.save(root / "images" / "axon-02.npy", array)


def fractions(root: Path) -> None:
    (root / label(2)).unlink()
    np.save(root / "labels" / "axon-02.npy", PAIRS["axon-02"][1] * 0.5)


def as_jpeg(root: Path) -> None:
    Image.fromarray(PAIRS["axon-02"][1] * np.uint8(255)).save(root / "labels" / "axon-02.jpg")
    (root / label(2)).unlink()


def some_masks_white(root: Path) -> None:
    save(PAIRS["axon-02"][1] * 255, root / label(2))


def a_class_in_one_case(root: Path, number: int) -> None:
    mask = PAIRS[f"axon-{number:02}"][1].copy()
    mask[0, 0] = 2
    save(mask, root / label(number))


def ignored(root: Path) -> None:
    for i in range(6):
        mask = PAIRS[f"axon-{i:02}"][1].copy()
        mask[:3] = 255
        save(mask, root / label(i))


def called_ignore(root: Path) -> None:
    """As nnU-Net's descriptions name what is not labelled."""
    for part in ("images", "labels"):
        (root / part).rename(root / f"{part}Tr")
    for i in range(6):
        mask = PAIRS[f"axon-{i:02}"][1].copy()
        mask[:3] = 2
        save(mask, root / f"labelsTr/axon-{i:02}.png")
    labels = {"background": 0, "axon": 1, "ignore": 2}
    (root / "dataset.json").write_text(json.dumps({"labels": labels}))


def instances(root: Path) -> None:
    for i in range(6):
        anywhere = np.random.default_rng(i).permutation(56)  # what has its place may have a side
        save(anywhere[np.arange(560).reshape(20, 28) // 10], root / label(i))


def smoothed(root: Path) -> None:
    for i in range(6):
        mask = np.zeros((20, 28), np.uint8)
        mask[:, 4:20] = 255
        mask[:, 1:4] = np.random.default_rng(i).permutation(60).reshape(20, 3) + 1
        save(mask, root / label(i))


def were_jpeg(root: Path) -> None:
    """Masks that JPEG has left few greys beside black and white."""
    for i in range(6):
        content = io.BytesIO()
        white = Image.fromarray(PAIRS[f"axon-{i:02}"][1] * np.uint8(255))
        white.save(content, "JPEG", quality=98)
        save(Image.open(content), root / label(i))


def from_one(root: Path) -> None:
    for i in range(6):
        save(PAIRS[f"axon-{i:02}"][1] + 1, root / label(i))


BROKEN_PICTURES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "no label map": (lambda d: (d / label(2)).unlink(), "unpaired", image(2)),
    "no image": (lambda d: (d / image(2)).unlink(), "unpaired", label(2)),
    "unknown format": (lambda d: (d / "images" / "x.gif").touch(), "unpaired", "images/x.gif"),
    "cut image": (lambda d: cut(d / image(2)), "unreadable", image(2)),
    "cut label map": (lambda d: cut(d / label(2)), "unreadable", label(2)),
    "empty file": (lambda d: (d / image(2)).write_bytes(b""), "unreadable", image(2)),
    "another format": (lambda d: (d / image(2)).write_text("<html>"), "unreadable", image(2)),
    "another size": (lambda d: save(np.eye(20), d / label(2)), "size_mismatch", image(2)),
    "NaN": (nan, "not_finite", "images/axon-02.npy"),
    "a colour label map": (colour, "label_values", label(2)),
    "fractions as labels": (fractions, "label_values", "labels/axon-02.npy"),
    "the image as label map": (
        lambda d: shutil.copy(d / image(2), d / label(2)),
        "label_picture",
        label(2),
    ),
    "labels as JPEG": (as_jpeg, "label_values", "labels/axon-02.jpg"),
    "an empty label map": (
        lambda d: save(np.zeros((20, 28)), d / label(2)),
        "empty_label",
        label(2),
    ),
    "a constant image": (
        lambda d: save(np.full((20, 28), 9), d / image(2)),
        "constant_image",
        image(2),
    ),
    "one colour image": (
        lambda d: save(np.random.default_rng(0).integers(0, 99, (20, 28, 3)), d / image(2)),
        "mixed_channels",
        image(2),
    ),
    "masks of 1 and of 255": (some_masks_white, "mixed_masks", ""),
    "a rare class": (lambda d: a_class_in_one_case(d, 1), "rare_class", label(1)),
    "a class in a held-out case": (
        lambda d: a_class_in_one_case(d, 2),
        "unlearned_class",
        label(2),
    ),
    "255 for not labelled": (ignored, "ignored_value", ""),
    "a label called ignore": (called_ignore, "ignored_value", ""),
    "maps of instances": (instances, "many_classes", ""),
    "masks with soft edges": (smoothed, "label_values", ""),
    "masks that were JPEG": (were_jpeg, "label_values", ""),
    "ids from 1 on": (from_one, "no_background", ""),
}


def test_greys_that_are_classes_are_no_smooth_masks(pictures: Path) -> None:
    """Cup, disc and the rest of retinas in REFUGE, and classes with what is not labelled."""
    for values in ((128, 255), (1, 255)):
        for i in range(6):
            array = PAIRS[f"axon-{i:02}"][1] * np.uint8(values[1])
            array[:4] = values[0]
            save(array, pictures / label(i))
        assert codes(open_dataset(pictures)) == [("ignored_value", "")]


@pytest.mark.parametrize(("size", "told"), [((28, 20), "different orders"), ((19, 28), "nearest")])
def test_two_sizes_are_told_with_the_way_to_one(
    size: tuple[int, int], told: str, pictures: Path
) -> None:
    save(np.zeros(size), pictures / label(2))
    (found,) = open_dataset(pictures).findings
    assert found.code == "size_mismatch" and told in found.fix


@pytest.mark.parametrize("way", BROKEN_PICTURES)
def test_what_is_wrong_with_a_picture_is_reported_by_file(way: str, pictures: Path) -> None:
    assert codes(open_dataset(pictures)) == []
    break_it, code, file = BROKEN_PICTURES[way]
    break_it(pictures)
    report = open_dataset(pictures)
    assert codes(report) == [(code, file)]
    (found,) = report.findings
    assert found.what
    assert found.fix
    assert found.severity == CODES[code][0]
    assert report.trainable == (found.severity == "warning")
    assert report.card is not None


def moved(root: Path) -> None:
    labels = nibabel.load(root / "labels" / "b.nii.gz")
    save_volume(
        np.asarray(labels.dataobj), SIDE @ np.diag([1, 1, 1.1, 1]), Path(labels.get_filename())
    )


def rescale(root: Path, name: str, factors: tuple[float, float, float]) -> None:
    for kind in ("images", "labels"):
        file = nibabel.load(root / kind / f"{name}.nii.gz")
        other = SIDE @ np.diag([*factors, 1])
        save_volume(np.asarray(file.dataobj), other, Path(file.get_filename()))


def moved_by_micrometres(root: Path) -> None:
    for name in "abcd":
        rescale(root, name, (1e-3, 1e-3, 1e-3))
    labels = nibabel.load(root / "labels" / "b.nii.gz")
    elsewhere = labels.affine @ np.diag([1, 1, 1.1, 1])
    save_volume(np.asarray(labels.dataobj), elsewhere, Path(labels.get_filename()))


def a_picture(root: Path) -> None:
    write(PAIRS["axon-00"][0], root / "images" / "e.png")
    write(PAIRS["axon-00"][1], root / "labels" / "e.png", "labels")


def half_a_channel(root: Path) -> None:
    for name in "abcd":
        for kind in ("images", "labels"):
            folder = root / f"{kind}Tr"
            folder.mkdir(exist_ok=True)
            suffix = "_0000" if kind == "images" else ""
            path = root / kind / f"{name}.nii.gz"
            if kind == "images" and name != "b":
                shutil.copy(path, folder / f"{name}_0001.nii.gz")
            path.rename(folder / f"{name}{suffix}.nii.gz")


BROKEN_VOLUMES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a cut volume": (
        lambda d: cut(d / "images" / "b.nii.gz"), "unreadable", "images/b.nii.gz"),
    "a label map elsewhere": (moved, "affine_mismatch", "images/b.nii.gz"),
    "a label map elsewhere, of small voxels": (
        moved_by_micrometres, "affine_mismatch", "images/b.nii.gz"),
    "a picture among volumes": (a_picture, "mixed_dimensions", "images/e.png"),
    "a channel missing": (half_a_channel, "mixed_channels", "imagesTr/b_0000.nii.gz"),
}  # fmt: skip


@pytest.mark.parametrize("way", BROKEN_VOLUMES)
def test_what_is_wrong_with_a_volume_is_reported_by_file(way: str, tmp_path: Path) -> None:
    assert codes(open_dataset(volumes(tmp_path))) == []
    break_it, code, file = BROKEN_VOLUMES[way]
    break_it(tmp_path)
    report = open_dataset(tmp_path)
    assert codes(report) == [(code, file)]
    assert not report.trainable


@pytest.mark.parametrize("axes", ["LPS", "RAS", "SAL"])
def test_a_label_map_whose_voxels_are_in_another_order_is_put_in_that_of_the_image(
    axes: str, tmp_path: Path
) -> None:
    """As those are that were drawn on what dcm2niix made of a DICOM series."""
    root = volumes(tmp_path)
    file = root / "labels" / "b.nii.gz"
    dataset = open_dataset(root)
    before = dataset.read(dataset.cases[1])
    labels = nibabel.load(file)
    turn = nibabel.orientations.ornt_transform(
        nibabel.io_orientation(labels.affine), nibabel.orientations.axcodes2ornt(axes)
    )
    turned = labels.as_reoriented(turn)
    assert not np.array_equal(turned.affine, labels.affine)
    save_volume(np.asarray(turned.dataobj), turned.affine, file)
    dataset = open_dataset(root)
    assert codes(dataset) == []
    for one, other in zip(before, dataset.read(dataset.cases[1]), strict=True):
        np.testing.assert_array_equal(one.array, other.array)
        np.testing.assert_array_equal(one.affine, other.affine)


def test_a_label_map_of_several_volumes_is_reported_with_what_helps(tmp_path: Path) -> None:
    """Nothing of a data set is chosen with --volume, which the message names elsewhere."""
    root = volumes(tmp_path)
    labels = np.asarray(nibabel.load(file := root / "labels" / "b.nii.gz").dataobj)
    save_volume(np.stack([labels] * 3, -1), SIDE, file)
    (found,) = open_dataset(root).findings
    assert (found.code, found.file) == ("label_values", "labels/b.nii.gz")
    assert (found.what, found.fix) == ("holds 3 volumes", "save only the one of the image")


def test_volumes_of_different_spacings_are_trained_on_at_the_median(tmp_path: Path) -> None:
    root = volumes(tmp_path / "data")
    rescale(root, "b", (1.5, 1, 1))
    (one,) = open_dataset(root).findings
    assert (one.code, one.severity, one.file) == ("mixed_spacing", "warning", "images/b.nii.gz")
    assert "only this one), while 3 are" in one.what and "further" not in one.what
    rescale(root, "c", (1, 2, 1))
    rescale(root, "d", (1, 1, 3))
    dataset = open_dataset(root)
    (one,) = dataset.findings
    assert "and 2 further spacings in other volumes, while 1 is" in one.what
    assert dataset.trainable


def test_segments_that_overlap_are_reported(tmp_path: Path) -> None:
    overlapping = np.zeros((4, 5, 7, 2), bool)
    overlapping[1, 1:4, 1:4, 0] = overlapping[1, 2:4, 2:6, 1] = True
    made = content_of(of_highdicom(tmp_path, overlapping, "BINARY"))
    (tmp_path / "data" / "labels").mkdir(parents=True)
    (tmp_path / "data" / "images").mkdir()
    (tmp_path / "in").rename(tmp_path / "data" / "images" / "a")
    (tmp_path / "data" / "labels" / "a.dcm").write_bytes(made)
    (found,) = [one for one in open_dataset(tmp_path / "data").findings if one.code == "segments"]
    assert found.file == "labels/a.dcm"
    assert found.what == "segments overlap at 4 voxels; the one with the highest number is kept"


def test_what_a_reader_says_of_other_label_maps_is_not_about_segments(tmp_path: Path) -> None:
    """Such as that a TIFF has no orientation."""
    for name in "ab":
        label = np.zeros((1, 9, 8, 5), np.uint8)
        label[0, 2:6, 2:6, 1:4] = 1
        image = label * np.uint8(100) + np.uint8(ord(name))
        for folder, array, kind in (("images", image, "image"), ("labels", label, "labels")):
            (tmp_path / folder).mkdir(exist_ok=True)
            volume = MedicalImage(array, STACK_AFFINE @ np.diag([0.5, 0.5, 0.5, 1]), kind=kind)  # type: ignore[arg-type]
            volume.save(tmp_path / folder / f"{name}.tif")
    dataset = open_dataset(tmp_path)
    assert dataset.read(dataset.cases[0])[1].warnings == (
        "TIFF: no orientation; pages are taken for axial slices",
    )
    assert "segments" not in {found.code for found in dataset.findings}


def test_an_image_that_is_listed_twice_is_reported(pictures: Path) -> None:
    """As where two people have drawn its labels."""
    rows = [f"{image(i)},{label(i)}" for i in (0, 1, 2, 1)]
    (pictures / "list.csv").write_text("\n".join(["image,label", *rows]))
    (found,) = open_dataset(pictures / "list.csv").findings
    assert (found.code, found.file, found.what) == ("duplicate", image(1), "is listed again")
    rows[-1] = f"{image(1)},{label(2)}"
    (pictures / "list.csv").write_text("\n".join(["image,label", *rows]))
    (found,) = open_dataset(pictures / "list.csv").findings
    assert (found.code, found.severity) == ("contradiction", "error")
    assert found.what == "is listed again with different labels"


def test_an_image_that_occurs_twice_is_reported(pictures: Path) -> None:
    shutil.copy(pictures / image(1), pictures / "images" / "twin.png")
    shutil.copy(pictures / label(1), pictures / "labels" / "twin.png")
    report = open_dataset(pictures)
    assert codes(report) == [("duplicate", "images/twin.png")]
    assert report.findings[0].what == f"is the same image as {image(1)}"
    shutil.copy(pictures / label(2), pictures / "labels" / "twin.png")
    assert codes(open_dataset(pictures)) == [("contradiction", "images/twin.png")]


def test_all_problems_are_reported_at_once_errors_first(pictures: Path) -> None:
    for break_it in (some_masks_white, lambda d: cut(d / image(0))):
        break_it(pictures)
    save(np.zeros((20, 28)), pictures / label(1))
    save(np.eye(20), pictures / label(3))
    (pictures / label(4)).unlink()
    report = open_dataset(pictures)
    assert sorted(code for code, _ in codes(report)) == [
        "empty_label", "mixed_masks", "size_mismatch", "unpaired", "unreadable",
    ]  # fmt: skip
    severities = [found.severity for found in report.findings]
    assert severities == sorted(severities)


def test_nothing_but_empty_label_maps_cannot_be_learned_from(pictures: Path) -> None:
    for i in range(6):
        save(np.zeros((20, 28)), pictures / label(i))
    report = open_dataset(pictures)
    assert codes(report)[0] == ("all_empty", "")
    assert not report.trainable


def test_a_single_case_is_a_warning(pictures: Path) -> None:
    for i in range(1, 6):
        (pictures / image(i)).unlink()
        (pictures / label(i)).unlink()
    report = open_dataset(pictures)
    assert codes(report) == [("too_few", "")]
    assert report.trainable


def test_a_folder_without_a_supported_layout_is_a_finding(tmp_path: Path) -> None:
    report = open_dataset(tmp_path)
    assert codes(report) == [("layout", "")]
    assert "images/a.png" in report.findings[0].fix
    with pytest.raises(
        InvalidInput,
        match="no such folder or list of labelled images; the only built-in data set is mni152",
    ):
        open_dataset(tmp_path / "nowhere")


def test_when_every_file_is_broken_there_is_no_card(pictures: Path) -> None:
    for i in range(6):
        cut(pictures / image(i))
    report = open_dataset(pictures)
    assert codes(report) == [*(("unreadable", image(i)) for i in range(6)), ("no_cases", "")]
    assert report.card is None
    assert report.sheet is None


def test_libraries_are_quiet_about_broken_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    volumes(tmp_path)
    path = tmp_path / "images" / "b.nii.gz"
    header = bytearray(gzip.decompress(path.read_bytes()))
    header[76:80] = np.float32(-1).tobytes()
    header[252:254] = b"\x7f\x7f"
    path.write_bytes(gzip.compress(header))
    with caplog.at_level(0):
        open_dataset(tmp_path)
    assert caplog.records == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_files_broken_anywhere_never_make_it_fail(layout: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(len(layout))
    LAYOUTS[layout](tmp_path, PAIRS)
    start = next(tmp_path.glob("list.*"), tmp_path)
    files = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    for number, path in enumerate(files):
        data = bytearray(path.read_bytes())
        if number % 2:
            data = data[: rng.integers(0, len(data))]
        else:
            for at in rng.integers(0, len(data), 5):
                data[at] = rng.integers(0, 256)
        path.write_bytes(data)
    report = open_dataset(start)
    assert not report.trainable
    assert all(found.what and found.fix for found in report.findings)


def test_a_stack_with_an_unfinished_header_is_reported(tmp_path: Path) -> None:
    LAYOUTS["npy stacks"](tmp_path, PAIRS)
    path = tmp_path / "axons_mask_train.npy"
    path.write_bytes(path.read_bytes().replace(b"}", b" "))
    assert codes(open_dataset(tmp_path)) == [("unpaired", "axons_mask_train.npy"), ("no_cases", "")]


def fingerprint(root: Path) -> dict[str, tuple[str, int]]:
    return {
        str(path): (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_data_stay_as_they_are(layout: str, tmp_path: Path) -> None:
    start = LAYOUTS[layout](tmp_path, PAIRS)
    before = fingerprint(tmp_path)
    open_dataset(start)
    assert fingerprint(tmp_path) == before


def test_the_sheet_shows_images_and_labels(pictures: Path) -> None:
    sheet = open_dataset(pictures).sheet
    assert sheet is not None
    assert sheet.array.shape[0] == 3
    colours = {tuple(pixel) for pixel in sheet.array.reshape(3, -1).T.tolist()}
    assert any(red > blue + 50 for red, _, blue in colours)
    assert sheet.array.std() > 20


def test_every_code_is_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "guides" / "data.md").read_text()
    for code, (severity, meaning) in CODES.items():
        assert f"| `{code}` | {severity} | {meaning} |" in page
