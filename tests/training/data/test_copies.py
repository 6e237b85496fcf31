"""Copies of an image: they are on one side of every split."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from caps_med.images import Normalization
from caps_med.preprocessing import PicturePreprocessing
from tests.training.data.classified_files import class_folders, digits, medmnist
from tests.training.data.pairs import draw_pairs, two_folders
from training.data import open_dataset
from training.data.classified import ClassifiedSource, load_classified, open_classified
from training.data.classified.images import groups_with_copies
from training.data.prepare import load_source
from training.data.samples import Source

PICTURES = PicturePreprocessing(size=(8, 8), normalization=Normalization(window=(0, 255)))


def copied(folder: Path, name: str, into: str, *, linked: bool = False) -> None:
    """An image, and a label map beside it if there is one, under another name, too."""
    for kind in ("images", "labels"):
        new = folder / kind / f"{into}.png"
        if linked:
            new.symlink_to(folder / kind / f"{name}.png")
        else:
            shutil.copy(folder / kind / f"{name}.png", new)


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    return two_folders("images", "labels")(tmp_path / "data", draw_pairs(6))


def together(source: Source | ClassifiedSource, *copies: str) -> bool:
    """Whether all of some images, or none, are held out."""
    groups = dict(zip(names_of(source), source.groups, strict=True))
    return len({groups[name] for name in copies}) == 1 and groups[copies[0]] != ""


def names_of(source: Source | ClassifiedSource) -> list[str]:
    if isinstance(source, ClassifiedSource):
        return list(source.names)
    return [str(source.samples.name(k)).partition(",")[0] for k in range(len(source.samples))]  # type: ignore[attr-defined]


@pytest.mark.parametrize("linked", [False, True])
def test_copies_of_a_labelled_image_are_one_group(
    linked: bool, pairs: Path, tmp_path: Path
) -> None:
    """The third of the groups is held out: its copy was trained on."""
    copied(pairs, "axon-02", "zebra", linked=linked)
    dataset = open_dataset(pairs)
    assert [found.code for found in dataset.findings] == ["duplicate"]
    source = load_source(dataset, tmp_path / "store")
    assert source.held_out == {"axon-02"}
    assert (len(source.training), len(source.validation)) == (5, 2)
    for fold in source.folds(3):
        assert together(fold, "axon-02", "zebra")


def test_files_of_one_size_with_other_content_are_no_copies(pairs: Path) -> None:
    copied(pairs, "axon-02", "zebra")
    file = pairs / "images" / "zebra.png"
    with Image.open(file) as picture:
        changed = picture.point(lambda value: 255 - value)
    changed.save(file)
    for other in (pairs / "images").iterdir():
        padded = other.read_bytes().ljust(20_000, b"\0")
        other.write_bytes(padded)  # what follows the end of a PNG is not read
    assert len(open_dataset(pairs).groups) == 7


def test_a_copy_in_the_validation_part_takes_the_other_along(pairs: Path, tmp_path: Path) -> None:
    copied(pairs, "axon-00", "copy")
    rows = [
        {"image": f"images/{n}.png", "label": f"labels/{n}.png", "part": part}
        for n, part in [(f"axon-0{i}", "train") for i in range(5)]
        + [("axon-05", "val"), ("copy", "val")]
    ]
    (pairs / "list.json").write_text(json.dumps(rows))
    dataset = open_dataset(pairs / "list.json")
    assert {found.code for found in dataset.findings} == {"duplicate", "shared_patient"}
    source = load_source(dataset, tmp_path / "store")
    assert (len(source.training), len(source.validation)) == (4, 3)


def test_black_slices_of_several_patients_do_not_join_them(pairs: Path) -> None:
    for patient in ("p1", "p2", "p3"):
        for number in range(2):
            copied(pairs, f"axon-0{number}", f"{patient}_slice{number}")
        for kind in ("images", "labels"):
            picture = pairs / kind / f"{patient}_slice0.png"
            Image.new("L", (28, 20)).save(picture)
        Image.new("L", (28, 20), int(patient[1])).save(pairs / "images" / f"{patient}_slice1.png")
    assert {"p1", "p2", "p3"} < set(open_dataset(pairs).groups)


def test_places_in_one_file_of_arrays_are_no_copies(tmp_path: Path) -> None:
    file = medmnist(tmp_path, digits(40, kinds=3), digits(6, kinds=3, start=40))
    images = open_classified(file).images
    assert not any(groups_with_copies(images))


def test_copies_alone_are_divided_as_before(pairs: Path, tmp_path: Path) -> None:
    for i in range(1, 6):
        for kind in ("images", "labels"):
            shutil.copy(pairs / kind / "axon-00.png", pairs / kind / f"axon-0{i}.png")
    source = load_source(open_dataset(pairs), tmp_path / "store")
    assert (len(source.training), len(source.validation)) == (5, 1)


def test_a_run_of_an_older_version_keeps_its_split(pairs: Path, tmp_path: Path) -> None:
    """Its prepared images say what was a group."""
    copied(pairs, "axon-02", "zebra")
    load_source(open_dataset(pairs), tmp_path / "store")
    manifest = tmp_path / "store" / "manifest.json"
    prepared = json.loads(manifest.read_text())
    prepared["cases"] = [{**case, "group": case["name"]} for case in prepared["cases"]]
    manifest.write_text(json.dumps(prepared))
    source = load_source(open_dataset(pairs), tmp_path / "store")
    assert source.held_out == {"axon-02"} and len(source.validation) == 1


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    folder = class_folders(tmp_path / "data", digits(40, kinds=3), digits(6, kinds=3, start=40))
    return folder / "train"


def test_copies_of_an_image_with_a_class_are_one_group(classes: Path, tmp_path: Path) -> None:
    """In ten copies of each of two images, some were held out and others trained on."""
    originals = [next(iter(sorted((classes / k).iterdir()))) for k in "01"]
    for file in originals:
        for number in range(10):
            shutil.copy(file, file.with_name(f"copy{number}.png"))
    dataset = open_classified(classes)
    source = load_classified(dataset, tmp_path / "store", PICTURES, 0.25, 0)
    assert sum(group != "" for group in source.groups) == 22
    for part in (source, *source.folds(3)):
        for file in originals:
            copies = {name for name in part.names if name.startswith(f"{file.parent.name}/copy")}
            assert len(copies) == 10
            held_out = part.held_out & {*copies, f"{file.parent.name}/{file.name}"}
            assert len(held_out) in (0, 11)
    manifest = tmp_path / "store" / "manifest.json"  # as of an older version
    prepared = json.loads(manifest.read_text())
    del prepared["groups"]
    manifest.write_text(json.dumps(prepared))
    before = manifest.stat().st_mtime_ns
    source = load_classified(dataset, tmp_path / "store", PICTURES, 0.25, 0)
    assert not any(source.groups) and manifest.stat().st_mtime_ns == before


def test_copies_of_two_patients_join_the_patients(classes: Path, tmp_path: Path) -> None:
    files = sorted((classes / "0").iterdir())[:6]
    rows = []
    for number, file in enumerate([*files, files[0]]):
        name = f"{number}.png"
        shutil.copy(file, classes / name)
        rows.append({"image": name, "class": "a" if number % 2 else "b", "patient": f"p{number}"})
    rows[6]["class"] = rows[0]["class"]
    (classes / "list.json").write_text(json.dumps(rows))
    dataset = open_classified(classes / "list.json")
    assert "shared_image" in {found.code for found in dataset.findings}
    source = load_classified(dataset, tmp_path / "store", PICTURES, 0.25, 0)
    assert source.groups[6] == source.groups[0] == "p0"
