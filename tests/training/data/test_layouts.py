from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from caps_med.errors import InvalidInput, InvalidParameter
from tests.images.dicom_files import dataset, directory_file, encoded, placed
from tests.training.data.pairs import (
    LAYOUTS,
    Pairs,
    draw_pairs,
    masks_of_objects,
    nnunet,
    npy_stacks,
    one_folder,
    save_pages,
    save_volume,
    tiff_stacks,
    two_folders,
    write,
)
from training.data import load_source, open_dataset
from training.data.check.card import DataCard
from training.data.interpretation import Interpretation
from training.data.layouts import discover
from training.data.opening import open_any
from training.evaluation.object_ids import ids_are_objects

PAIRS = draw_pairs()


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> DataCard:
    root = two_folders("images", "labels")(tmp_path_factory.mktemp("plain"), PAIRS)
    found = open_dataset(root).card
    assert found is not None
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
def test_equal_data_have_equal_cards_in_every_layout_and_format(
    layout: str, card: DataCard, tmp_path: Path
) -> None:
    report = open_dataset(LAYOUTS[layout](tmp_path, PAIRS))
    assert report.findings == ()
    assert len(report.cases) == 24
    assert report.card == card


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_reads_to_the_same_pixels(layout: str, tmp_path: Path) -> None:
    pairs = dict(list(PAIRS.items())[:11])
    cases = open_dataset(LAYOUTS[layout](tmp_path, pairs))
    for case, (image, mask) in zip(cases.cases, pairs.values(), strict=True):
        read, label = cases.read(case)
        np.testing.assert_array_equal(read.array[0], image)
        np.testing.assert_array_equal(label.array[0], mask)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_relative_path_finds_the_same_cases(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    path = LAYOUTS[layout](tmp_path / "data", dict(list(PAIRS.items())[:3]))
    monkeypatch.chdir(tmp_path)
    found, wanted = discover(path.relative_to(tmp_path)), discover(path)
    assert not found.unpaired
    assert [case.name for case in found.cases] == [case.name for case in wanted.cases]
    for case, other in zip(found.cases, wanted.cases, strict=True):
        assert [ref.path.resolve() for ref in case.images] == [ref.path for ref in other.images]


def test_a_decathlon_description_by_its_own_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    LAYOUTS["Decathlon"](tmp_path / "data", PAIRS)
    monkeypatch.chdir(tmp_path)
    assert len(discover(Path("data/dataset.json")).cases) == len(PAIRS)


def test_names_of_labels_and_channels_come_from_the_description(tmp_path: Path) -> None:
    cases = discover(nnunet(tmp_path, PAIRS))
    assert cases.labels == {0: "background", 1: "axon"}
    assert cases.channels == ("light",)
    assert cases.layout == "nnU-Net"


def test_odd_names_in_a_description_are_passed_over(tmp_path: Path) -> None:
    nnunet(tmp_path, PAIRS)
    labels = {"background": 0, "region": [1, 2], "9" * 5000: "x", "axon": 1, "true": True}
    channels = {str(i): f"c{i}" for i in range(12)}
    described = {"labels": labels, "channel_names": channels}
    (tmp_path / "dataset.json").write_text(json.dumps(described))
    cases = discover(tmp_path)
    assert cases.labels == {0: "background", 1: "axon"}
    assert cases.channels == tuple(channels.values())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter every folder")
def test_a_folder_that_may_not_be_entered_is_reported(tmp_path: Path) -> None:
    two_folders("images", "labels")(tmp_path, PAIRS)
    (tmp_path / "images" / "more").mkdir(mode=0)
    assert unpaired(tmp_path) == {"more": "cannot be opened: Permission denied"}


def test_two_folders_in_each_of_several(tmp_path: Path) -> None:
    """As COVID-19 Radiography has them for each finding, and others for each patient."""
    pairs = list(PAIRS.items())
    for place, folder in enumerate(("Viral Pneumonia", "COVID", "p1", "p2", "test")):
        some = {f"s{n}": pair for n, (_, pair) in enumerate(pairs[2 * place : 2 * place + 2])}
        two_folders("images", "masks")(tmp_path / folder, some)
    write(PAIRS["axon-00"][0], tmp_path / "overview" / "a.png")
    cases = discover(tmp_path)
    assert [(case.name, case.group) for case in cases.cases] == [
        ("COVID/s0", ""),
        ("COVID/s1", ""),
        ("Viral Pneumonia/s0", ""),
        ("Viral Pneumonia/s1", ""),
        ("p1/s0", "p1"),
        ("p1/s1", "p1"),
        ("p2/s0", "p2"),
        ("p2/s1", "p2"),
    ]
    assert cases.unpaired == () and cases.layout.startswith("folders COVID/images/ and COVID/masks")


@pytest.fixture
def squares(tmp_path: Path) -> Path:
    """Three squares, the last of which overlaps the second, as masks of five images."""
    for name in "abcde":
        write(PAIRS["axon-00"][0] + ord(name), tmp_path / name / "images" / f"{name}.png")
        for number, (top, left) in enumerate(((1, 1), (8, 8), (11, 9))):
            mask = np.zeros((20, 28), np.uint8)
            mask[top : top + 5, left : left + 5] = 255
            write(mask, tmp_path / name / "masks" / f"{number}.png", "labels")
    return tmp_path


def test_masks_of_objects_are_merged_and_keep_their_ids(squares: Path) -> None:
    (squares / "c" / "masks" / "Thumbs.db").touch()
    dataset = open_dataset(squares)
    assert dataset.layout == "one mask for each object, as in a/masks/"
    assert dataset.recipe_values["instances"] == "binary" and dataset.labels[1] == "object"
    assert {(f.code, f.file, f.severity) for f in dataset.findings} == {
        ("overlap", f"{name}/masks", "warning") for name in "abcde"
    }
    assert dataset.findings[0].what.startswith("8 voxels in the masks of several objects")
    _, label, ids = dataset.read_with_ids(dataset.cases[0])
    assert [int((ids.array == number).sum()) for number in range(1, 5)] == [25, 17, 25, 0]
    np.testing.assert_array_equal(label.array, ids.array > 0)
    assert ids_are_objects(dataset.cases)
    apart = open_dataset(squares, interpretation=Interpretation("borders"))
    assert np.unique(apart.read_label(apart.cases[0]).array).tolist() == [0, 1, 2]
    with pytest.raises(InvalidParameter, match="ignore_label=2: masks of one object each have no"):
        open_dataset(squares, interpretation=Interpretation(ignored=2))
    before = dataset.fingerprint()
    (squares / "d" / "masks" / "2.png").unlink()
    assert open_dataset(squares).fingerprint() != before


def test_folders_of_masks_of_objects_that_cannot_be_used_are_reported(squares: Path) -> None:
    two = np.zeros((20, 28), np.uint8)
    two[1, 1:3] = 1, 2
    write(two, squares / "a" / "masks" / "3.png", "labels")
    write(two[1:], squares / "b" / "masks" / "3.png", "labels")
    for mask in (squares / "c" / "masks").iterdir():
        mask.unlink()
    write(two, squares / "d" / "images" / "second.png")
    write(two, squares / "f" / "images" / "f.png")
    found = {f.file: f.what for f in open_dataset(squares).findings if f.severity == "error"}
    assert found == {
        "a/masks/3.png": "should be the mask of one object, but holds 2 values above 0",
        "b/masks/0.png": "has size (20, 28), but 3.png (19, 28)",
        "c/images/c.png": "has no masks in masks/",
        "d": "has 2 images, but the others have one",
        "f": "has no folders of images and masks",
    }


def test_masks_of_objects_in_parts(tmp_path: Path) -> None:
    pairs = list(PAIRS.items())
    for part, some in (("stage1_train", pairs[:4]), ("val", pairs[4:6]), ("test", pairs[6:8])):
        masks_of_objects(tmp_path / part, dict(some))
    dataset = open_dataset(tmp_path)
    assert [case.part for case in dataset.cases] == ["train"] * 4 + ["validation"] * 2
    assert dataset.findings == ()


def test_masks_of_classes_are_not_taken_for_those_of_objects(squares: Path) -> None:
    for folder in squares.iterdir():
        for old, new in (("0.png", "liver.png"), ("1.png", "tumour.png"), ("2.png", "cyst.png")):
            (folder / "masks" / old).rename(folder / "masks" / new)
    error = "the names cyst, liver, tumour, like classes rather than objects: merge"
    with pytest.raises(InvalidInput, match=error):
        discover(squares)


def test_linked_folders_are_read_like_others(tmp_path: Path) -> None:
    """A folder of a patient may be elsewhere; one that contains itself has an end."""
    pairs = dict(zip(("p1/0", "p1/1", "p2/0", "p3/0"), PAIRS.values(), strict=False))
    elsewhere = two_folders("images", "labels")(tmp_path / "elsewhere", pairs)
    for kind in ("images", "labels"):
        (tmp_path / "data" / kind).mkdir(parents=True)
        for patient in ("p1", "p2", "p3"):
            (tmp_path / "data" / kind / patient).symlink_to(elsewhere / kind / patient)
        (elsewhere / kind / "p3" / "back").symlink_to(tmp_path / "data" / kind)
    cases = discover(tmp_path / "data")
    assert [case.name for case in cases.cases] == ["p1/0", "p1/1", "p2/0", "p3/0"]
    assert cases.unpaired == () and cases.cases[0].group == "p1"


def test_several_channels_are_joined_in_order(tmp_path: Path) -> None:
    affine = np.diag([-1.0, 1, 3, 1])
    rng = np.random.default_rng(0)
    channels = rng.integers(0, 99, (2, 6, 7, 5), np.uint8)
    for channel, volume in enumerate(channels):
        save_volume(volume, affine, tmp_path / "imagesTr" / f"head_{channel:04}.nii.gz")
    save_volume(channels[0] % 3, affine, tmp_path / "labelsTr" / "head.nii.gz")
    cases = open_dataset(tmp_path)
    image, label = cases.read(cases.cases[0])
    np.testing.assert_array_equal(image.array, channels)
    np.testing.assert_array_equal(label.array[0], channels[0] % 3)
    assert image.spacing == (1, 1, 3)


@pytest.mark.parametrize("below", ["", "{}/"])
def test_files_beside_one_label_map_are_channels(below: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name in ("p1", "p2"):
        for part in ("t1", "t2", "flair"):
            write(rng.integers(0, 9, (5, 6)), tmp_path / f"{below.format(name)}{name}_{part}.npy")
        write(
            rng.integers(0, 2, (5, 6)), tmp_path / f"{below.format(name)}{name}_seg.npy", "labels"
        )
    cases = open_dataset(tmp_path)
    assert cases.channels == ("flair", "t1", "t2")
    assert [case.name.rpartition("/")[2] for case in cases.cases] == ["p1", "p2"]
    assert cases.read(cases.cases[1])[0].array.shape == (3, 5, 6)
    write(rng.integers(0, 9, (5, 6)), tmp_path / f"{below.format('p3')}p3_t1.npy")
    write(rng.integers(0, 2, (5, 6)), tmp_path / f"{below.format('p3')}p3_seg.npy", "labels")
    write(rng.integers(0, 9, (5, 6)), tmp_path / "other.npy")
    assert unpaired(tmp_path) == {
        "p3_seg.npy": "lacks channels that other cases have: flair, t2",
        "other.npy": "has no label map of the same name",
    }


def test_one_scan_beside_its_label_map_needs_no_common_word(tmp_path: Path) -> None:
    for name in ("p1", "p2"):
        write(PAIRS["axon-00"][0], tmp_path / name / "t1.png")
        write(PAIRS["axon-00"][1], tmp_path / name / "seg.png", "labels")
    cases = discover(tmp_path)
    assert [case.name for case in cases.cases] == ["p1", "p2"]
    assert (cases.channels, cases.unpaired) == (("t1",), ())


def test_folders_that_are_not_clear_are_reported(tmp_path: Path) -> None:
    for name in ("images", "masks", "1st_manual"):
        (tmp_path / name).mkdir()
    with pytest.raises(InvalidInput, match="could contain the label maps: 1st_manual, masks"):
        discover(tmp_path)
    (tmp_path / "labels").mkdir()
    assert discover(tmp_path).layout == "folders images/ and labels/"


def test_the_fourth_axis_of_a_decathlon_volume_is_channels(tmp_path: Path) -> None:
    affine = np.diag([-1.0, 1, 3, 1])
    channels = np.random.default_rng(0).integers(0, 99, (6, 7, 5, 4)).astype(np.int16)
    save_volume(channels, affine, tmp_path / "imagesTr" / "BRATS_0001.nii.gz")
    save_volume(channels[..., 0] % 3, affine, tmp_path / "labelsTr" / "BRATS_0001.nii.gz")
    entry = {"image": "./imagesTr/BRATS_0001.nii.gz", "label": "./labelsTr/BRATS_0001.nii.gz"}
    (tmp_path / "dataset.json").write_text(json.dumps({"training": [entry]}))
    cases = open_dataset(tmp_path)
    image, _ = cases.read(cases.cases[0])
    np.testing.assert_array_equal(image.array, np.moveaxis(channels, -1, 0))
    np.testing.assert_array_equal(image.affine, affine)


def test_the_older_nnunet_description_lists_cases_without_channels(tmp_path: Path) -> None:
    nnunet(tmp_path, PAIRS)
    entries = [
        {"image": f"./imagesTr/{n}.nii.gz", "label": f"./labelsTr/{n}.nii.gz"} for n in PAIRS
    ]
    (tmp_path / "dataset.json").write_text(json.dumps({"training": entries, "labels": {"1": "d"}}))
    cases = discover(tmp_path)
    assert (len(cases.cases), cases.unpaired) == (24, ())
    assert cases.labels == {1: "d"}


def test_parts_of_one_whole_are_one_group(tmp_path: Path) -> None:
    names = ["p1_slice01", "p1_slice02", "p2_slice01", "p2_slice02"]
    pairs = dict(zip(names, PAIRS.values(), strict=False))
    cases = discover(two_folders("images", "labels")(tmp_path / "a", pairs)).cases
    assert [case.grouped for case in cases] == ["p1", "p1", "p2", "p2"]
    pairs = dict(zip(["p1/0", "p1/1", "p2/0", "p3/0"], PAIRS.values(), strict=False))
    cases = discover(two_folders("images", "labels")(tmp_path / "b", pairs)).cases
    assert [case.grouped for case in cases] == ["p1", "p1", "p2/0", "p3/0"]
    names = ["benign/0", "benign/1", "Normal cases/2", "p1/malignant/3", "p1/4", "p2/covid-19/5"]
    pairs = dict(zip(names, PAIRS.values(), strict=False))
    cases = discover(two_folders("images", "labels")(tmp_path / "findings", pairs)).cases
    assert {case.name: case.group for case in cases if case.group} == {
        "p1/malignant/3": "p1",
        "p1/4": "p1",
    }
    listed = [
        {"image": f"b/{i}.png", "label": f"c/{i}.png", "patient": patient}
        for i, patient in enumerate((0, 0, "P1", ""))
    ]
    two_folders("b", "c")(tmp_path, dict(zip("0123", PAIRS.values(), strict=False)))
    (tmp_path / "list.json").write_text(json.dumps(listed))
    cases = discover(tmp_path / "list.json").cases
    assert [case.grouped for case in cases] == ["0", "0", "P1", "3"]


def test_folders_without_numbers_that_are_groups_are_told(tmp_path: Path) -> None:
    """They may be kinds of images, of which all of one would be held out."""
    told = "a folder is one group, which is held out as a whole: adenoma (12 cases), polyp (12"
    for first, second, groups, what in (
        ("polyp", "adenoma", 2, told), ("p1", "p2", 2, ""), ("benign", "normal", 24, "")
    ):  # fmt: skip
        pairs = enumerate(PAIRS.items())
        below = {f"{(first, second)[k % 2]}/{name}": pair for k, (name, pair) in pairs}
        dataset = open_dataset(two_folders("images", "labels")(tmp_path / first, below))
        assert len(dataset.groups) == groups
        found = {one.code: one.what for one in dataset.findings}
        assert found.get("folder_groups", "").startswith(what)
        assert ("folder_groups" in found) == bool(what)


def test_cases_of_one_name_are_told_apart_and_stay_with_their_patient(tmp_path: Path) -> None:
    """Also where another case has the name that they would get, or the patient that of a case."""
    names = ["s1/a", "s2/a", "s1/a-1", "s1/a-1-1", "s2/p_slice1", "s2/p_slice2"]
    two_folders("images", "labels")(tmp_path, dict(zip(names, PAIRS.values(), strict=False)))
    patients = ["x", "y", "", "", "p_slice1", "p_slice1"]
    rows = [f"images/{n}.png,labels/{n}.png,{p}" for n, p in zip(names, patients, strict=True)]
    (tmp_path / "list.csv").write_text("\n".join(["image,label,patient", *rows]))
    cases = discover(tmp_path / "list.csv").cases
    assert [(case.name, case.grouped) for case in cases] == [
        ("a-1", "a-1"),
        ("a-1-1", "a-1-1"),
        ("a-2", "x"),
        ("a-3", "y"),
        ("p_slice1", "p_slice1"),
        ("p_slice2", "p_slice1"),
    ]


def of_patients(folder: Path, *patients: str | None) -> Path:
    """Series ``s0``, ``s1``, ... of one slice each, of these Patient IDs."""
    for i, patient in enumerate(patients):
        image, mask = PAIRS[f"axon-{i:02}"]
        series = folder / "images" / f"s{i}" / "IM1"
        series.parent.mkdir(parents=True)
        series.write_bytes(encoded(dataset(image, **placed(2.0), PatientID=patient)))
        write(mask, folder / "labels" / f"s{i}.png", "labels")
    return folder


def test_sessions_and_runs_of_a_bids_subject_are_one_group(tmp_path: Path) -> None:
    """In folders of their own, and beside each other in one."""
    for number, (subject, session) in enumerate(itertools.product(("01", "02"), ("a", "b"))):
        folder = tmp_path / f"sub-{subject}" / f"ses-{session}" / "anat"
        for run in range(1 + number % 2):
            stem = f"sub-{subject}_ses-{session}_run-{run}_T1w"
            write(PAIRS["axon-00"][0], folder / f"{stem}.png")
            write(PAIRS["axon-00"][1], folder / f"{stem}_mask.png", "labels")
    assert [case.grouped for case in discover(tmp_path).cases] == ["sub-01"] * 3 + ["sub-02"] * 3
    for file in [*tmp_path.rglob("*.png")]:
        folder = tmp_path / "flat" / ("labels" if "mask" in file.name else "images")
        folder.mkdir(parents=True, exist_ok=True)
        file.rename(folder / file.name)
    flat = discover(tmp_path / "flat")
    assert [case.grouped for case in flat.cases] == ["sub-01"] * 3 + ["sub-02"] * 3


def test_dicom_series_of_one_patient_are_one_group(tmp_path: Path) -> None:
    """They could be on both sides of the split; the ID itself is told nobody."""
    cases = discover(of_patients(tmp_path / "a", "17", "18", "17", None, "")).cases
    assert [case.grouped for case in cases] == ["s0", "s1", "s0", "s3", "s4"]
    replaced = discover(of_patients(tmp_path / "b", "id", "id")).cases
    assert [case.grouped for case in replaced] == ["s0", "s1"]
    mixed = discover(of_patients(tmp_path / "c", "ANONYMOUS", "17", "Anonymous ", "0", "0")).cases
    assert [case.grouped for case in mixed] == ["s0", "s1", "s2", "s3", "s3"]


def test_a_patient_id_joins_groups_that_names_say(tmp_path: Path) -> None:
    folder = of_patients(tmp_path, "17", None, "17", None, "18")
    for old, new in zip(range(5), ("a_z1", "a_z2", "b_z1", "b_z2", "c"), strict=True):
        (folder / "images" / f"s{old}").rename(folder / "images" / new)
        (folder / "labels" / f"s{old}.png").rename(folder / "labels" / f"{new}.png")
    assert [case.grouped for case in discover(folder).cases] == ["a", "a", "a", "a", "c"]


def test_the_patient_id_of_a_series_is_found_behind_folders_and_the_directory_of_a_cd(
    tmp_path: Path,
) -> None:
    images = of_patients(tmp_path, "17", "18", "17", "17") / "images"
    (images / "s2" / "A").mkdir()
    (images / "s3" / "DICOMDIR").write_bytes(directory_file(1))
    assert [case.grouped for case in discover(tmp_path).cases] == ["s0", "s1", "s0", "s0"]


def test_other_files_in_the_folder_of_a_series_do_not_matter(tmp_path: Path) -> None:
    of_patients(tmp_path, "17", "18")
    (tmp_path / "images" / "s0" / "A note.txt").write_text("of the scanner")
    assert [case.name for case in discover(tmp_path).cases] == ["s0", "s1"]


def test_label_maps_named_as_bids_has_them(tmp_path: Path) -> None:
    for subject in ("sub-01", "sub-02"):
        write(PAIRS["axon-00"][0], tmp_path / subject / "anat" / f"{subject}_T1w.png")
        write(PAIRS["axon-00"][1], tmp_path / subject / "anat" / f"{subject}_dseg.png", "labels")
    found = discover(tmp_path)
    assert [case.grouped for case in found.cases] == ["sub-01", "sub-02"]
    assert found.channels == ("t1w",) and found.unpaired == ()


def test_groups_of_a_list_stay_whatever_the_patient_ids(tmp_path: Path) -> None:
    of_patients(tmp_path, "17", "17", "18")
    entries = [
        {"image": f"images/s{i}", "label": f"labels/s{i}.png", "group": group}
        for i, group in enumerate("xyy")
    ]
    (tmp_path / "list.json").write_text(json.dumps(entries))
    cases = discover(tmp_path / "list.json").cases
    assert [case.grouped for case in cases] == ["x", "y", "y"]


def test_pages_of_one_stack_are_one_group_among_several_stacks(tmp_path: Path) -> None:
    images = [image for image, _ in PAIRS.values()]
    masks = [mask for _, mask in PAIRS.values()]
    for name, start in (("a", 0), ("b", 12)):
        save_pages(images[start : start + 12], tmp_path / "images" / f"{name}.tif")
        save_pages(masks[start : start + 12], tmp_path / "labels" / f"{name}.tif")
    cases = discover(tmp_path).cases
    assert [case.grouped for case in cases] == ["a"] * 12 + ["b"] * 12
    alone = tmp_path / "alone"
    alone.mkdir()
    assert len({case.grouped for case in discover(tiff_stacks(alone, PAIRS)).cases}) == 24


def test_stacks_of_different_lengths_are_reported(tmp_path: Path) -> None:
    npy_stacks(tmp_path, PAIRS)
    np.save(tmp_path / "axons_mask_train.npy", np.zeros((23, 20, 28)))
    cases = discover(tmp_path)
    assert cases.cases == ()
    assert (
        cases.unpaired[0].what
        == "contains 24 pictures, while axons_mask_train.npy contains 23 pictures"
    )


def test_label_maps_of_colour_pictures_may_be_an_array_without_a_colour_axis(
    tmp_path: Path,
) -> None:
    """As a volume is, which they are beside grey pictures in an array of three axes."""
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (4, 16, 20, 3), np.uint8)
    labels = rng.integers(0, 2, (4, 16, 20), np.uint8)
    for kind, array in (("images", pictures), ("labels", labels)):
        (tmp_path / kind).mkdir()
        np.save(tmp_path / kind / "a.npy", array)
    found = open_dataset(tmp_path)
    read = [found.read(case) for case in found.require_complete().cases]
    assert np.array_equal([label.array[0] for _, label in read], labels)
    assert np.array_equal([np.moveaxis(image.array, 0, -1) for image, _ in read], pictures)
    np.save(tmp_path / "labels" / "a.npy", labels[:3])
    assert unpaired(tmp_path) == {"a.npy": "contains 4 pictures, while a.npy contains 3 pictures"}
    np.save(tmp_path / "images" / "a.npy", labels)
    np.save(tmp_path / "labels" / "a.npy", labels)
    assert [case.label.index for case in discover(tmp_path).cases] == [None]


def unpaired(root: Path) -> dict[str, str]:
    return {one.path.name: one.what for one in discover(root).unpaired}


def test_what_has_no_counterpart_is_reported(tmp_path: Path) -> None:
    pairs: Pairs = dict(list(PAIRS.items())[:5])
    two_folders("images", "labels")(tmp_path, pairs)
    (tmp_path / "images" / "axon-01.png").unlink()
    (tmp_path / "labels" / "axon-02.png").unlink()
    (tmp_path / "images" / "old.gif").write_bytes(b"GIF8")
    (tmp_path / "images" / "notes.txt").write_text("made on Monday")
    (tmp_path / "images" / ".DS_Store").write_bytes(b"\0")
    write(PAIRS["axon-03"][1], tmp_path / "labels" / "axon-03_mask.png", "labels")
    found = unpaired(tmp_path)
    assert found.pop("old.gif").startswith("is not in a supported format (nifti, ")
    assert found == {
        "axon-01.png": "has no image of the same name",
        "axon-02.png": "has no label map of the same name",
        "axon-03_mask.png": "has no image of the same name",
    }
    fixes = {one.path.name: one.fix for one in discover(tmp_path).unpaired}
    assert fixes["axon-02.png"].endswith("has another name, like axon-01, give both the same name")
    with pytest.raises(InvalidInput, match=r"without a counterpart: axon-02.png, .* has no label"):
        open_dataset(tmp_path).require_complete()


def test_dicom_files_are_known_by_their_content(tmp_path: Path) -> None:
    for i, name in enumerate(["1.2.840.17", "1.2.840.18", "b.IMA"]):
        write(np.eye(5, dtype=np.uint8), tmp_path / "labels" / f"{name.removesuffix('.IMA')}.png")
        (tmp_path / "images").mkdir(exist_ok=True)
        content = encoded(dataset(np.full((5, 5), i, np.uint8)))
        (tmp_path / "images" / name).write_bytes(content)
    cases = discover(tmp_path)
    assert [case.name for case in cases.cases] == ["1.2.840.17", "1.2.840.18", "b"]
    assert cases.unpaired == ()


def test_two_label_maps_for_one_image_are_reported(tmp_path: Path) -> None:
    write(PAIRS["axon-00"][0], tmp_path / "images" / "a.png")
    for word in ("_mask", "_seg"):
        write(PAIRS["axon-00"][1], tmp_path / "labels" / f"a{word}.png", "labels")
    assert unpaired(tmp_path)["a.png"] == "shares its name with a_mask.png, a_seg.png"


@pytest.mark.parametrize("labels", ["", "labels"])
def test_further_label_maps_of_an_image_are_to_be_merged(labels: str, tmp_path: Path) -> None:
    """As BUSI has them; without them, what they show would be learned as background."""
    write(PAIRS["axon-00"][0], tmp_path / ("images" if labels else "") / "a (1).png")
    for number in ("", "_1", "_2"):
        write(PAIRS["axon-00"][1], tmp_path / labels / f"a (1)_mask{number}.png", "labels")
    found = {one.path.name: (one.what, one.fix) for one in discover(tmp_path).unpaired}
    told = (
        "is named like one of several label maps of an image",
        "merge them into one file: a case has one label map",
    )
    assert found == {"a (1)_mask_1.png": told, "a (1)_mask_2.png": told}


@pytest.mark.parametrize("name", ["list.json", "list.csv"])
def test_missing_files_of_a_list_are_reported(name: str, tmp_path: Path) -> None:
    path = LAYOUTS[f"{name[5:].upper()} list"](tmp_path, PAIRS)
    (tmp_path / "b" / "axon-07.png").unlink()
    assert unpaired(path) == {"axon-07.png": "is named in entry 8 of the list but does not exist"}
    os.mkfifo(tmp_path / "b" / "axon-07.png")
    told = "is named in entry 8 of the list but is a pipe or a device"
    assert unpaired(path) == {"axon-07.png": told}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("list.json", "{", "cannot be read as JSON"),
        ("list.json", "[" * 10**5, "cannot be read as JSON"),
        ("list.json", "3", "contains no list of cases: write"),
        ("list.json", '{"training": {"a": 1}}', "training must be a list"),
        ("list.json", '{"training": [1]}', "training must be a list"),
        ("list.csv", "file,answer\na,b\n", "its columns: file, answer"),
        ("list.csv", "", "needs a header row with the columns image and label"),
        ("list.csv", "", "or, of images with classes, image and class, and one row per case"),
        ("list.txt", "a b", "a file that is not a .json or .csv list"),
        ("dataset.json", "[]", "must be an object"),
    ],
)
def test_a_broken_description_is_reported(
    name: str, text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidInput, match=message):
        discover(tmp_path if name == "dataset.json" else tmp_path / name)


@pytest.mark.parametrize("entry", [1, {}, {"image": 3, "label": "a"}, {"image": "a", "label": []}])
def test_an_odd_entry_of_a_list_is_reported(entry: object, tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text(json.dumps([entry]))
    (found,) = discover(tmp_path / "list.json").unpaired
    assert found.what == "entry 1 of the list does not name an image and one label map"


def test_the_error_lists_what_was_found_and_the_supported_layouts(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no such file or folder"):
        discover(tmp_path / "nowhere")
    with pytest.raises(InvalidInput, match="Found: nothing"):
        discover(tmp_path)
    write(PAIRS["axon-00"][0], tmp_path / "a.png")
    (tmp_path / "results").mkdir()
    with pytest.raises(InvalidInput, match=r"results/\. .* no label maps\.\n.*maps:\n  images/"):
        discover(tmp_path)
    write(PAIRS["axon-00"][1], tmp_path / "ground truth" / "b.png")
    with pytest.raises(InvalidInput, match=r"Found: a.png, ground truth/, results/\.\n"):
        discover(tmp_path)


def test_images_without_label_maps_are_not_taken_for_images_to_classify(tmp_path: Path) -> None:
    write(PAIRS["axon-00"][0], tmp_path / "images" / "a.png")
    error = (
        "no label maps. All images are in images/: to classify them, put the images of each class"
    )
    (found,) = open_any(tmp_path).findings
    assert error in found.what and not found.what.endswith(".")
    (found,) = open_dataset(tmp_path).findings
    assert found.what.endswith("no label maps")


def _listed(rows: list[tuple[int, str]], name: str) -> Callable[[Path], Path]:
    """A list of pictures, each with a number and the part that it is in."""

    def layout(root: Path) -> Path:
        pairs = list(PAIRS.values())
        two_folders("pictures", "truth")(root, {f"p{n}": pairs[n] for n, _ in rows})
        entries = [
            {"image": f"pictures/p{n}.png", "label": f"truth/p{n}.png", "split": part}
            for n, part in rows
        ]
        path = root / name
        if name.endswith(".csv"):
            lines = [",".join(entries[0]), *(",".join(entry.values()) for entry in entries)]
            path.write_text("\n".join(lines))
        elif name == "dataset.json":
            of = {
                key: [{k: e[k] for k in ("image", "label")} for e in entries if e["split"] == part]
                for key, part in (("training", "train"), ("validation", "val"))
            }
            path.write_text(json.dumps({**of, "labels": {"1": "axon"}}))
            return root
        else:
            path.write_text(json.dumps(entries))
        return path

    return layout


def _named_like_two_of_train() -> Pairs:
    """Two other pictures with the names of two that the tests train on."""
    pairs = list(PAIRS.items())
    return {name: pair for (name, _), (_, pair) in zip(pairs[5:7], pairs[7:9], strict=True)}


def _train_and_val(root: Path) -> Path:
    pairs = list(PAIRS.items())
    two_folders("images", "labels")(root / "train", dict(pairs[:7]))
    two_folders("images", "labels")(root / "val", _named_like_two_of_train())
    two_folders("images", "labels")(root / "test", dict(pairs[9:11]))
    return root


def _parts_below(root: Path) -> Path:
    """The folders of parts are in those of images and label maps."""
    pairs = list(PAIRS.items())
    val = _named_like_two_of_train()
    some = {"train": dict(pairs[:7]), "Val": val, "test": dict(pairs[9:11])}
    parted = {f"{part}/{n}": pair for part, found in some.items() for n, pair in found.items()}
    two_folders("images", "labels")(root, parted)
    write(pairs[11][1][0], root / "images" / "test" / "not labelled.png")
    return root


def test_names_that_two_parts_share_are_numbered_alike_in_every_process(tmp_path: Path) -> None:
    """A run is resumed by another process, in which sets have another order."""
    shared = {f"{part}/{name}": pair for part in ("train", "val") for name, pair in PAIRS.items()}
    cases = open_dataset(two_folders("images", "labels")(tmp_path, shared)).cases
    numbers = {"train": "1", "validation": "2"}
    assert len(cases) == 2 * len(PAIRS)
    assert all(case.name.endswith(f"-{numbers[str(case.part)]}") for case in cases)


def _parts_side_by_side(root: Path) -> Path:
    pairs = list(PAIRS.items())
    for part, found in (("train", pairs[:7]), ("val", pairs[7:9]), ("test", pairs[9:11])):
        (root / part).mkdir(parents=True)
        one_folder(root / part, dict(found))
    return root


def _stacks_with_val(root: Path) -> Path:
    pairs = list(PAIRS.items())
    root.mkdir()
    npy_stacks(root, dict(pairs[:7]))
    for kind, place in (("data", 0), ("mask", 1)):
        stack = np.stack([pair[place] for _, pair in pairs[7:9]])
        np.save(root / f"axons_{kind}_val.npy", stack)
    return root


def _nnunet_with_folds(root: Path) -> Path:
    """Five folds, the case before the last in none of them."""
    pairs = dict(list(PAIRS.items())[:9])
    first, *names, unnamed, last = pairs
    folds = [{"train": names, "val": [first, last]}]
    folds += [{"train": names, "val": [first, unnamed]}] * 4
    (nnunet(root, pairs) / "splits_final.json").write_text(json.dumps(folds))
    return root


def _nnunet_with_paths(root: Path) -> Path:
    """``dataset.json`` names the files, which lie beside it."""
    folder = nnunet(root, dict(list(PAIRS.items())[:9]))
    described = json.loads((folder / "dataset.json").read_text())
    named = {}
    for image in sorted((folder / "imagesTr").iterdir()):
        name = image.name.removesuffix("_0000.nii.gz")
        label = folder / "labelsTr" / f"{name}.nii.gz"
        image, label = (
            image.rename(root / f"{name}.nii.gz"),
            label.rename(root / f"{name}-l.nii.gz"),
        )
        images = [str(image.absolute() if name == "axon-00" else image.relative_to(folder))]
        named[name] = {"images": images, "label": label.name}
    (folder / "dataset.json").write_text(json.dumps({**described, "dataset": named}))
    first, *names, last = named
    folds = [{"train": names, "val": [first, last]}]
    (folder / "splits_final.json").write_text(json.dumps(folds))
    return root


def _with_fold_of_each(name: str) -> Callable[[Path], Path]:
    """A list of MONAI's Auto3DSeg or a table that says the fold of each case but one."""

    def layout(root: Path) -> Path:
        pairs = dict(list(PAIRS.items())[:9])
        two_folders("pictures", "truth")(root, pairs)
        folds = dict(zip(pairs, (10, 3, 10, 2, 2, 3, 4, 4, None), strict=True))
        entries = [
            {"image": f"pictures/{n}.png", "label": f"truth/{n}.png", "fold": fold}
            for n, fold in folds.items()
        ]
        path = root / name
        if name.endswith(".json"):
            found = [{k: v for k, v in e.items() if v is not None} for e in entries]
            path.write_text(json.dumps({"training": found, "testing": [{"image": "t.png"}]}))
        else:
            rows = [f"{e['image']},{e['label']},train,{e['fold'] or ''}" for e in entries]
            rows.append("t.png,t_seg.png,test,")
            path.write_text("\n".join(["image,label,split,fold", *rows]))
        return path

    return layout


ROWS = [(n, "val" if n in (3, 4) else "train") for n in range(9)]
WITH_TEST = [*ROWS, (9, "test"), (10, "Test")]


@pytest.mark.parametrize(
    "layout",
    [_train_and_val, _parts_below, _parts_side_by_side, _stacks_with_val,
     *(_listed(WITH_TEST, f"l.{s}") for s in ("csv", "json")),
     _listed(ROWS, "dataset.json"), _nnunet_with_folds, _nnunet_with_paths,
     *(_with_fold_of_each(f"l.{s}") for s in ("csv", "json"))],
    ids=["folders", "folders below", "side by side", "stacks", "csv", "json", "decathlon",
         "nnunet", "nnunet with paths", "folds in csv", "folds in json"],
)  # fmt: skip
def test_the_validation_part_of_the_data_is_held_out(
    layout: Callable[[Path], Path], tmp_path: Path
) -> None:
    dataset = open_dataset(layout(tmp_path / "data"))
    assert not dataset.unpaired
    source = load_source(dataset, tmp_path / "store")
    assert (len(source.training), len(source.validation)) == (7, 2)
    assert source.held_out == {c.grouped for c in dataset.cases if c.part == "validation"}
    if layout is _train_and_val:
        folders = {c.images[0].path.parent.parent.name for c in dataset.cases if c.part != "train"}
        assert folders == {"val"}
        assert dataset.layout == (
            "folders train/images/ and train/labels/, val/images/ and val/labels/"
        )


@pytest.mark.parametrize(
    "part, told", [("val", "of the validation part"), ("train", "to train on")]
)
def test_a_part_without_labels_is_an_error(part: str, told: str, tmp_path: Path) -> None:
    """Each label map alone is only warned of, as one case without labels may be."""
    pairs = list(PAIRS.items())
    for name, some in (("train", pairs[:5]), ("val", pairs[5:7])):
        masks = {n: (image, mask * (name != part)) for n, (image, mask) in some}
        two_folders("images", "labels")(tmp_path / name, masks)
    dataset = open_dataset(tmp_path)
    (error,) = (found for found in dataset.findings if found.severity == "error")
    assert (error.code, error.what) == ("unlabelled_part", f"no case {told} has labels")


def test_a_class_of_the_validation_part_alone_is_told(tmp_path: Path) -> None:
    dataset = open_dataset(_train_and_val(tmp_path / "data"))
    for case in dataset.cases:
        if case.part == "validation":
            mask = dataset.read_label(case).array[0].copy()
            mask[:3] = 2
            write(mask, case.label.path, "labels")
    found = [str(one) for one in open_dataset(tmp_path / "data").findings]
    assert (
        "warning: unlearned_class: label 2: only in held-out cases (2), so it is not learned"
        in found
    )


def _nnunet_with_three_folds(root: Path) -> Path:
    names = list(PAIRS)[:9]
    folds = [{"train": names, "val": names[k::4]} for k in range(3)]
    (nnunet(root, {n: PAIRS[n] for n in names}) / "splits_final.json").write_text(json.dumps(folds))
    return root


@pytest.mark.parametrize(
    ("layout", "held_out"),
    [(_nnunet_with_three_folds, ("048", "15", "26")),
     (_with_fold_of_each("l.json"), ("34", "15", "67", "02"))],
    ids=["nnunet", "json"],
)  # fmt: skip
def test_folds_that_the_data_give_are_followed(
    layout: Callable[[Path], Path], held_out: Sequence[str], tmp_path: Path
) -> None:
    dataset = open_dataset(layout(tmp_path / "data"))
    source = load_source(dataset, tmp_path / "store")
    names = [case.name for case in dataset.cases]
    given = [frozenset(names[int(k)] for k in fold) for fold in held_out]
    assert [fold.held_out for fold in source.folds(len(given))] == given == [*source.given_folds]
    anew = source.folds(2)
    assert sorted(name for fold in anew for name in fold.held_out) == names
    apart = replace(source, given_folds=(frozenset(names), frozenset(names[:1])))
    with pytest.raises(
        InvalidParameter, match="folds=2: fold 1 of those that the data define holds"
    ):
        apart.folds(2)
    part = dataset.subset(set(names[:5]))
    assert load_source(part, tmp_path / "part").given_folds == ()


def test_folds_of_nnunet_that_do_not_suit_its_cases_are_told(tmp_path: Path) -> None:
    folder = nnunet(tmp_path, dict(list(PAIRS.items())[:3]))
    splits = folder / "splits_final.json"
    splits.write_text(json.dumps([{"train": ["axon-00", "axon-01"], "val": ["p9"]}]))
    assert unpaired(folder) == {"splits_final.json": "names the case p9, which is not in imagesTr"}
    _nnunet_with_paths(tmp_path / "with paths")
    splits_there = tmp_path / "with paths" / "splits_final.json"
    splits_there.write_text(splits.read_text())
    told = {"splits_final.json": "names the case p9, which is not in dataset.json"}
    assert unpaired(tmp_path / "with paths") == told
    assert unpaired(tmp_path / "with paths" / "dataset.json") == told
    for content in ("{}", "[]", '[{"train": ["p1"]}]', '[{"train": "p1", "val": []}]'):
        splits.write_text(content)
        with pytest.raises(InvalidInput, match=r"splits_final\.json: must be a list of folds like"):
            discover(folder)


def test_a_group_in_two_parts_is_reported_and_held_out_as_a_whole(tmp_path: Path) -> None:
    path = _listed(ROWS, "list.json")(tmp_path / "data")
    entries = json.loads(path.read_text())
    for number, entry in enumerate(entries):
        entry["patient"] = f"patient {number // 2}"
    path.write_text(json.dumps(entries))
    dataset = open_dataset(path)
    found = [str(f) for f in dataset.findings if f.code == "shared_patient"]
    assert found == [
        f"warning: shared_patient: patient {k} is in train and validation: all of it is held out"
        for k in (1, 2)
    ]
    assert load_source(dataset, tmp_path / "store").held_out == {"patient 1", "patient 2"}


def test_where_all_is_one_part_every_fifth_group_is_held_out(tmp_path: Path) -> None:
    path = _listed([(n, "val") for n in range(9)], "list.csv")(tmp_path / "data")
    source = load_source(open_dataset(path), tmp_path / "store")
    assert (len(source.training), len(source.validation)) == (7, 2)


def test_parts_that_leave_no_patient_to_train_on_are_told_not_to_be_followed(
    tmp_path: Path,
) -> None:
    path = _listed(ROWS, "list.json")(tmp_path / "data")
    entries = json.loads(path.read_text())
    for entry in entries:
        alone = entry is entries[-1]
        entry["split"], entry["patient"] = ("val", "y") if alone else (entry["split"], "x")
    path.write_text(json.dumps(entries))
    dataset = open_dataset(path)
    assert [str(f) for f in dataset.findings if f.code == "shared_patient"] == [
        "warning: shared_patient: x is in train and validation: every patient is in validation, so "
        "the parts are ignored"
    ]
    assert load_source(dataset, tmp_path / "store").held_out == {"y"}


def test_an_unknown_part_of_a_list_is_reported(tmp_path: Path) -> None:
    path = _listed([(0, "train"), (1, "holdout")], "list.json")(tmp_path)
    assert unpaired(path) == {"p1.png": "is in the part 'holdout' in entry 2 of the list"}
