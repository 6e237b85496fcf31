"""Images with classes: every layout, the division into parts, and what is wrong with them."""

from __future__ import annotations

import gzip
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import typer
from PIL import Image
from typer.testing import CliRunner

from caps_med.errors import InvalidInput, InvalidParameter
from caps_med.images import Normalization, read_image
from caps_med.preprocessing import PicturePreprocessing
from tests.images.dicom_files import dataset as dicom
from tests.images.dicom_files import encoded
from tests.training.data.classified_files import (
    LAYOUTS,
    Digits,
    class_folders,
    csv_list,
    digits,
    idx,
    write_idx,
)
from training.cli import data as data_command
from training.data import Dataset
from training.data.classified import ClassifiedDataset, load_classified, open_classified
from training.data.classified.dataset import find_classified
from training.data.classified.split import folds_of, hold_out_share, strata_of
from training.data.opening import open_any
from training.engine.run_folder import RunFolder

TRAIN, TEST = digits(40, kinds=3), digits(12, kinds=3, start=40)
PICTURES = PicturePreprocessing(size=(8, 8), normalization=Normalization(window=(0, 255)))


def contents(found: Digits) -> list[tuple[int, bytes]]:
    pairs = zip(found.classes.tolist(), found.pictures, strict=True)
    return sorted((k, picture.tobytes()) for k, picture in pairs)


def codes(dataset: ClassifiedDataset) -> set[str]:
    return {found.code for found in dataset.findings}


def test_dicom_files_of_one_patient_id_are_of_one_patient(tmp_path: Path) -> None:
    for name, patient in (("a/0", "17"), ("a/1", "18"), ("b/0", "17"), ("b/1", None)):
        file = tmp_path / f"{name}.dcm"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(encoded(dicom(np.eye(8, dtype=np.uint8), PatientID=patient)))
    groups = {image.name: image.group for image in open_classified(tmp_path).images}
    assert len(set(groups.values())) == 2 and "17" not in groups.values()
    assert [name for name, group in groups.items() if group] == ["a/0.dcm", "b/0.dcm"]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
class TestEachLayout:
    def test_its_images_and_classes_are_found(
        self, layout: Callable[[Path, Digits, Digits], Path], tmp_path: Path
    ) -> None:
        dataset = open_classified(layout(tmp_path, TRAIN, TEST))
        assert dataset.trainable and not dataset.findings
        assert dataset.classes == ("0", "1", "2") and dataset.exclusive
        assert (len(dataset.of("train")), len(dataset.of("test"))) == (40, 12)
        assert dataset.card is not None
        assert [c.parts for c in dataset.card.classes] == [
            {"test": int((TEST.classes == k).sum()), "train": int((TRAIN.classes == k).sum())}
            for k in range(3)
        ]
        assert dataset.card.eight_bits and dataset.card.sizes.median == (8, 8)

    def test_training_never_sees_the_test_part(
        self, layout: Callable[[Path, Digits, Digits], Path], tmp_path: Path
    ) -> None:
        (tmp_path / "data").mkdir()
        dataset = open_classified(layout(tmp_path / "data", TRAIN, TEST))
        source = load_classified(dataset, tmp_path / "store", PICTURES, 0.25, 0)
        given = Digits(source.pictures[:, 0], source.targets.argmax(1).astype(np.uint8))
        assert contents(given) == contents(TRAIN)
        assert len(source.training) + len(source.validation) == 40
        held_out = np.bincount(source.validation.chosen_targets.argmax(1))
        assert np.abs(held_out - np.bincount(TRAIN.classes) / 4).max() <= 0.5


def test_the_validation_part_of_the_data_is_the_one_held_out(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "data", TRAIN, TEST)
    (folder / "test").rename(folder / "val")
    source = load_classified(open_classified(folder), tmp_path / "store", PICTURES, 0.5, 0)
    assert source.held_out == {n for n in source.names if n.startswith("val/")}


def test_other_processes_open_the_pictures_where_they_are(tmp_path: Path) -> None:
    """Every fold on a cluster was sent a copy of them."""
    dataset = open_classified(idx(tmp_path, digits(40), digits(10, start=40)))
    large = PicturePreprocessing(size=(64, 64))
    source = load_classified(dataset, tmp_path / "store", large, 0.2, 0)
    assert len(source.training) == 30  # which is kept with the source
    sent = pickle.dumps(source)
    assert len(sent) < source.pictures.nbytes / 5
    found = pickle.loads(sent)  # noqa: S301 - our own
    np.testing.assert_array_equal(found.pictures, source.pictures)
    assert found.training_name(0) == source.training_name(0)
    assert found.folds(2)[0].held_out == source.folds(2)[0].held_out


def test_runs_beside_the_classes_are_none(tmp_path: Path) -> None:
    for file in ("cat/a.png", "dog/a.png", "runs/pets/pictures/epoch-0001.png"):
        (tmp_path / file).parent.mkdir(parents=True)
        Image.fromarray(TRAIN.pictures[0]).save(tmp_path / file)
    RunFolder(tmp_path / "runs" / "pets").planned.touch()
    assert open_classified(tmp_path).classes == ("cat", "dog")


def test_the_first_fold_of_a_list_is_the_part_held_out(tmp_path: Path) -> None:
    path = csv_list(tmp_path, TRAIN, TEST)
    head, *rows = path.read_text().splitlines()
    folds = [f"{row},{2 + n % 9}" for n, row in enumerate(rows)]
    path.write_text("\n".join([f"{head},fold", *folds]))
    dataset = open_classified(path)
    assert (len(dataset.of("validation")), len(dataset.of("train"))) == (5, 35)
    source = load_classified(dataset, tmp_path / "store", PICTURES, 0.2, 0)
    given = [{image.name for image in dataset.images if image.folds == (k,)} for k in range(9)]
    assert [fold.held_out for fold in source.folds(9)] == given
    assert sum(map(len, given)) == 40 and len(source.folds(4)) == 4
    assert [image.name for image in dataset.of("test")] == [
        image.name for image in open_classified(csv_list(tmp_path, TRAIN, TEST)).of("test")
    ]


def test_images_of_one_patient_stay_together() -> None:
    groups = [f"patient {k // 4}" for k in range(80)]
    strata = np.array([k % 2 for k in range(80)])
    for seed in range(5):
        held_out = hold_out_share(strata, groups, 0.2, seed)
        assert 8 <= held_out.sum() <= 24
        sides = {(group, bool(out)) for group, out in zip(groups, held_out, strict=True)}
        assert len(sides) == 20, "a patient on both sides"
    folds = folds_of(strata, groups, 5, seed=1)
    assert set(folds) == set(range(5))
    assert len(set(zip(groups, folds, strict=True))) == 20
    with pytest.raises(InvalidParameter, match="folds=21: only 20 images or patients"):
        folds_of(strata, groups, 21, seed=1)
    with pytest.raises(InvalidParameter, match="folds=1: at least 2 are needed"):
        folds_of(strata, groups, 1, seed=1)


def test_of_few_patients_one_is_held_out() -> None:
    strata, groups = np.arange(30) % 2, [f"patient {number % 3}" for number in range(30)]
    held_out = hold_out_share(strata, groups, 0.1, 0)
    assert held_out.sum() == 10
    assert len({group for group, out in zip(groups, held_out, strict=True) if out}) == 1
    with pytest.raises(InvalidParameter, match=r"of one patient, .*add images of another"):
        hold_out_share(strata, ["one"] * 30, 0.1, 0)


@pytest.mark.parametrize(
    ("share", "patients"), [(0.1, 2), (0.4, 8), (0.6, 12), (0.8, 16), (0.99, 19)]
)
def test_the_share_of_patients_is_the_one_asked_for(share: float, patients: int) -> None:
    groups = [f"patient {number // 4}" for number in range(80)]
    held_out = hold_out_share(np.arange(80) % 2, groups, share, 0)
    assert len({group for group, out in zip(groups, held_out, strict=True) if out}) == patients
    assert held_out.sum() == 4 * patients


def test_classes_of_fewer_images_than_folds_are_divided() -> None:
    strata, groups = np.arange(18) % 3, [f"patient {number // 2}" for number in range(18)]
    held_out = hold_out_share(strata, groups, 0.1, 0)
    assert 2 <= held_out.sum() <= 6 and set(strata[~held_out]) == {0, 1, 2}
    with pytest.raises(InvalidParameter, match="folds=7: no class has more than 6 images"):
        folds_of(strata, groups, 7, seed=0)
    assert not hold_out_share(np.arange(5), [*"abcde"], 0.1, 0).any(), "one image of each class"


def test_the_only_patient_of_a_class_is_not_held_out() -> None:
    groups = [f"patient {number // 3}" for number in range(12)]
    strata = np.array([0] * 9 + [1] * 3)
    for seed in range(8):
        assert set(strata[~hold_out_share(strata, groups, 0.25, seed)]) == {0, 1}


def test_a_choice_of_images_to_hold_out_follows_from_the_seed() -> None:
    strata, groups = np.arange(60) % 3, [""] * 60
    first, again, other = (hold_out_share(strata, groups, 0.1, seed) for seed in (0, 0, 1))
    assert (first == again).all() and (first != other).any()
    assert np.bincount(strata[first]).tolist() == [2, 2, 2]
    pairs = hold_out_share(np.arange(6) // 2, [""] * 6, 0.8, 0)
    assert pairs.reshape(3, 2).sum(1).tolist() == [1, 1, 1], "of each class one is trained on"


def test_of_several_classes_the_rarest_one_counts() -> None:
    targets = np.array([[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 0, 1], [0, 0, 0]], np.uint8)
    assert strata_of(targets).tolist() == [0, 1, 2, 2, 3]


@pytest.mark.parametrize("headings", ["Image;Diagnosis;Patient", "filename;label;subject"])
def test_several_classes_and_patients_from_a_list(tmp_path: Path, headings: str) -> None:
    for name in "abcd":
        Image.fromarray(np.full((9, 9), ord(name), np.uint8)).save(tmp_path / f"{name}.png")
    (tmp_path / "list.csv").write_text(
        f"{headings}\na.png;oedema|effusion;1\nb.png;effusion;1\nc.png;oedema;2\n"
    )
    dataset = open_classified(tmp_path / "list.csv")
    assert not dataset.exclusive and dataset.classes == ("effusion", "oedema")
    assert dataset.targets(dataset.images).tolist() == [[1, 1], [1, 0], [0, 1]]
    assert [image.group for image in dataset.images] == ["1", "1", "2"]


def test_patients_follow_from_names_as_for_segmentation(tmp_path: Path) -> None:
    """Slices of a patient are held out together, also if they are of several classes."""
    for k, picture in enumerate(TRAIN.pictures):
        folder = tmp_path / "data" / ("benign", "malignant")[k % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / f"p{k // 8}_slice{k:02}.png")
    dataset = open_classified(tmp_path / "data")
    assert dataset.card is not None and dataset.card.patients == 5
    source = load_classified(dataset, tmp_path / "store", PICTURES, 0.2, 0)
    held_out = {source.groups[i] for i in source.held_out_indices}
    assert len(held_out) == 1
    assert not held_out & {source.groups[i] for i in source.training.indices}


def test_the_name_of_a_class_is_no_patient(tmp_path: Path) -> None:
    for k, picture in enumerate(TRAIN.pictures):
        name = ("benign", "malignant")[k % 2]
        (tmp_path / name).mkdir(exist_ok=True)
        Image.fromarray(picture).save(tmp_path / name / f"{name}_patch_{k}.png")
    assert {image.group for image in open_classified(tmp_path).images} == {""}


def test_the_patient_0_of_a_list_is_a_patient(tmp_path: Path) -> None:
    rows = []
    for name, patient in (("a", 0), ("b", 0), ("c", None), ("d", 1)):
        Image.fromarray(np.full((9, 9), ord(name), np.uint8)).save(tmp_path / f"{name}.png")
        rows.append({"image": f"{name}.png", "class": name, "patient": patient})
    (tmp_path / "list.json").write_text(json.dumps(rows))
    found = open_classified(tmp_path / "list.json")
    assert [image.group for image in found.images] == ["0", "0", "", "1"]


def test_multilabel_medmnist(tmp_path: Path) -> None:
    labels = np.array([[1, 0, 1], [0, 1, 0], [0, 0, 0]], np.uint8)
    np.savez(tmp_path / "chest.npz", train_images=TRAIN.pictures[:3], train_labels=labels)
    (tmp_path / "classes.txt").write_text("atelectasis\ncardiomegaly\neffusion\n")
    dataset = open_classified(tmp_path / "chest.npz")
    assert dataset.classes == ("atelectasis", "cardiomegaly", "effusion")
    assert dataset.targets(dataset.images).tolist() == labels.tolist()


@pytest.mark.parametrize(
    ("labels", "named", "told"),
    [
        ([0, 1, -1], True, "-1 of a class: count classes from 0"),
        ([[1, 0], [0, -1], [0, 1]], False, "-1 in a row: write 1 or 0 for each class"),
        ([[1, 0], [0, 2], [0, 1]], False, "2 in a row: write 1 or 0 for each class"),
    ],
)
def test_labels_that_are_no_classes_are_refused(
    tmp_path: Path, labels: list[object], named: bool, told: str
) -> None:
    file = tmp_path / "chest.npz"
    np.savez(file, train_images=TRAIN.pictures[:3], train_labels=np.array(labels, np.int8))
    if named:
        (tmp_path / "classes.txt").write_text("atelectasis\neffusion\n")
    told_first = open_classified(file).findings[0]
    assert told_first.severity == "error" and told_first.file == "chest.npz"
    assert f"{told_first.what}: {told_first.fix}" == f"holds the label {told}"


def test_names_of_classes_that_are_not_text_are_told(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", train_images=TRAIN.pictures[:2], train_labels=np.arange(2))
    names = tmp_path / "classes.txt"
    names.write_bytes("gutartig\nb\xf6sartig\n".encode("latin-1"))
    assert f"{names}: cannot be read as text: 'utf-8'" in open_classified(tmp_path).error


def test_numbers_in_names_sort_as_numbers(tmp_path: Path) -> None:
    for k in (10, 9, 2):
        (tmp_path / f"stage {k}").mkdir()
        Image.fromarray(TRAIN.pictures[k]).save(tmp_path / f"stage {k}" / "a.png")
    assert open_classified(tmp_path).classes == ("stage 2", "stage 9", "stage 10")


class TestFindings:
    """Each fault is told by name."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "data").mkdir()
        folder = class_folders(tmp_path / "data", TRAIN, TEST)
        shutil.rmtree(folder / "test")
        return folder / "train"

    def found(self, folder: Path, code: str) -> list[str]:
        return [str(f) for f in open_classified(folder).findings if f.code == code]

    def test_the_same_image_in_two_classes(self, folder: Path) -> None:
        shutil.copy(folder / "0" / "0000.png", folder / "1" / "copy.png")
        assert self.found(folder, "class_conflict") == [
            "warning: class_conflict: 1/copy.png is the same image as 0/0000.png, but of class 1, "
            "not 0"
        ]

    def test_the_same_image_twice_in_a_class(self, folder: Path) -> None:
        shutil.copy(folder / "0" / "0000.png", folder / "0" / "copy.png")
        assert self.found(folder, "duplicate") == [
            "warning: duplicate: 0/copy.png is the same image as 0/0000.png"
        ]

    def test_an_image_that_a_list_names_twice(self, tmp_path: Path) -> None:
        Image.fromarray(TRAIN.pictures[0]).save(tmp_path / "a.png")
        rows = [{"image": "a.png", "class": name} for name in ("x", "y")]
        (tmp_path / "list.json").write_text(json.dumps(rows))
        assert self.found(tmp_path / "list.json", "class_conflict") == [
            "warning: class_conflict: a.png is listed again, but of class y, not x"
        ]

    def test_the_same_image_of_two_patients(self, folder: Path) -> None:
        for patient in ("p1", "p2"):
            (folder / "0" / patient).mkdir()
            shutil.copy(folder / "0" / "0000.png", folder / "0" / patient / "x.png")
        assert any("of another patient" in text for text in self.found(folder, "shared_image"))

    def test_the_same_image_in_the_training_and_the_test_part(self, tmp_path: Path) -> None:
        folder = idx(tmp_path, TRAIN, Digits(TRAIN.pictures[:2], TRAIN.classes[:2]))
        texts = self.found(folder, "shared_image")
        assert len(texts) == 2 and "in another part" in texts[0]

    def test_a_patient_in_two_parts(self, tmp_path: Path) -> None:
        rows = []
        for k in range(4):
            Image.fromarray(TRAIN.pictures[k]).save(tmp_path / f"{k}.png")
            part = "test" if k > 1 else "train"
            rows.append({"image": f"{k}.png", "class": k % 2, "patient": "x", "split": part})
        (tmp_path / "list.json").write_text(json.dumps(rows))
        assert self.found(tmp_path / "list.json", "shared_patient") == [
            "warning: shared_patient: the patient x is in test and train"
        ]

    def test_a_single_class(self, folder: Path) -> None:
        for other in ("1", "2"):
            shutil.rmtree(folder / other)
            (folder / other).mkdir()
        assert self.found(folder, "one_class") == [
            "error: one_class: all images belong to one class"
        ]
        assert len(self.found(folder, "empty_class")) == 2

    def test_classes_that_are_small_or_written_differently(self, folder: Path) -> None:
        for name in ("Zero", "zero "):
            (folder / name).mkdir()
            shutil.copy(folder / "0" / "0000.png", folder / name / "a.png")
        assert len(self.found(folder, "rare_class")) == 2
        assert "'Zero' and 'zero '" in self.found(folder, "similar_classes")[0]
        assert "imbalance" in codes(open_classified(folder))

    def test_an_unreadable_image(self, folder: Path) -> None:
        (folder / "0" / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
        (text,) = self.found(folder, "unreadable")
        assert "0/broken.png cannot be read" in text

    @pytest.mark.parametrize(
        ("entry", "what"),
        [
            ({"image": "a.png"}, "a.png has no class in entry 2"),
            ({"image": "a.png", "class": ""}, "a.png has no class in entry 2"),
            ({"image": "lost.png", "class": "x"}, "lost.png is named in entry 2 of the list but"),
            ({"class": "x"}, "entry 2 of the list does not name an image"),
            ({"image": "a.png", "class": "y"}, "a.png has the class 'y' in entry 2, which the li"),
            ({"image": "a.png", "class": "x", "split": "all"}, "a.png is in the part 'all' in ent"),
        ],
    )
    def test_a_wrong_entry_of_a_list(
        self, tmp_path: Path, entry: dict[str, str], what: str
    ) -> None:
        Image.fromarray(TRAIN.pictures[0]).save(tmp_path / "a.png")
        images = [{"image": "a.png", "class": "x"}, entry]
        (tmp_path / "list.json").write_text(json.dumps({"classes": ["x"], "images": images}))
        (text,) = self.found(tmp_path / "list.json", "unusable")
        assert what in text

    def test_a_folder_of_anything_else_is_told_what_is_supported(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("hello")
        (finding,) = open_classified(tmp_path).findings
        assert finding.code == "layout" and "notes.txt" in finding.what
        assert "a folder per class" in finding.fix
        with pytest.raises(InvalidInput, match="no such folder, list or archive"):
            open_classified(tmp_path / "nowhere")


class TestEitherKind:
    """`caps-med data check` tells label maps and classes apart by what is there."""

    def checked(self, path: Path, *arguments: str) -> str:
        app = typer.Typer()
        data_command.register(app)
        result = CliRunner().invoke(app, ["data", "check", str(path), *arguments])
        assert result.exit_code in (0, 1), result.output
        return result.output

    @pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
    def test_classes_are_counted(
        self, layout: Callable[[Path, Digits, Digits], Path], tmp_path: Path
    ) -> None:
        (tmp_path / "data").mkdir()
        path = layout(tmp_path / "data", TRAIN, TEST)
        text = self.checked(path, "--out", str(tmp_path / "report"))
        assert "ready to train: 0 errors, 0 warnings" in text and "52 images" in text
        card = json.loads((tmp_path / "report" / "card.json").read_text())
        assert card["parts"] == {"test": 12, "train": 40}
        assert read_image(tmp_path / "report" / "cases.png").array.shape[0] == 3

    def test_label_maps_are_not_taken_for_classes(self, discs: Path, tmp_path: Path) -> None:
        assert isinstance(open_any(discs), Dataset)
        Image.fromarray(TRAIN.pictures[0]).save(tmp_path / "a.png")
        (tmp_path / "list.csv").write_text("image,label\na.png,lost.png\n")
        assert isinstance(open_any(tmp_path / "list.csv"), Dataset)
        (tmp_path / "notes.txt").write_text("hello")
        assert not isinstance(find_classified(tmp_path), ClassifiedDataset)

    def test_images_and_label_maps_of_other_names_are_no_classes(self, tmp_path: Path) -> None:
        for kind in ("images", "labels"):
            (tmp_path / kind).mkdir()
            for k in range(5):
                Image.fromarray(TRAIN.pictures[k]).save(tmp_path / kind / f"{kind[0]}{k}.png")
        text = " ".join(self.checked(tmp_path).split())
        assert "unpaired" in text and "not ready" in text
        (tmp_path / "labels").rename(tmp_path / "masks")
        shutil.copytree(tmp_path / "images", tmp_path / "raw")
        text = " ".join(self.checked(tmp_path).split())
        assert "several folders could contain the images" in text and "not ready" in text
        assert "Some are folders of images and label maps" in open_classified(tmp_path).error
        shutil.rmtree(tmp_path / "raw")
        assert "images/ and masks/ are folders of images and" in open_classified(tmp_path).error

    def test_label_maps_beside_their_images_are_no_images_of_a_class(self, tmp_path: Path) -> None:
        """As breast ultrasound is published; one image may have several."""
        for k, name in enumerate(("cyst/a (1)", "cyst/a (2)", "tumour/a (1)", "tumour/mask")):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            Image.fromarray(TRAIN.pictures[k]).save(tmp_path / f"{name}.png")
        for name in ("cyst/a (1)_mask", "cyst/a (1)_mask_1", "tumour/a (1)_mask"):
            Image.fromarray(np.eye(8, dtype=np.uint8)).save(tmp_path / f"{name}.png")
        found = open_classified(tmp_path)
        assert len(found.images) == 4 and len(found.strangers) == 3

    def test_label_maps_in_a_folder_beside_the_images_are_none_either(self, tmp_path: Path) -> None:
        """As chest radiographs are published; ``images/`` is no patient."""
        for k, name in enumerate(("covid/images/a", "normal/images/p1/a", "normal/images/p1/b")):
            for file in (name, name.replace("images", "masks")):
                (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(TRAIN.pictures[k]).save(tmp_path / f"{file}.png")
        found = open_classified(tmp_path)
        assert [(image.name, image.group) for image in found.images] == [
            ("covid/images/a.png", ""),
            ("normal/images/p1/a.png", found.images[1].group),
            ("normal/images/p1/b.png", found.images[1].group),
        ]
        assert found.images[1].group and len(found.strangers) == 3
        assert isinstance(open_any(tmp_path), Dataset)

    @pytest.mark.parametrize(
        ("file", "told"),
        [("cats/a.png", "are in cats/"), ("a.png", "are outside folders of classes")],
    )
    def test_one_class_is_told_with_the_layouts_of_either_kind(
        self, file: str, told: str, tmp_path: Path
    ) -> None:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        Image.fromarray(TRAIN.pictures[0]).save(tmp_path / file)
        text = " ".join(self.checked(tmp_path).split())
        assert told in text and "at least two" in text and "not ready" in text
        assert "images/a.png + labels/a.png" in text and "benign/a.png + malignant/b.png" in text
        error = open_classified(tmp_path).error
        assert told in error and "malignant/b.png" in error and "labels/a.png" not in error

    def test_a_list_in_the_folder_is_found_and_named(self, tmp_path: Path) -> None:
        csv_list(tmp_path, TRAIN, TEST).rename(tmp_path / "labels.csv")
        (tmp_path / "people.csv").write_text("patient,age\n1,70\n")
        (tmp_path / "broken.json").write_text("{")
        dataset = open_classified(tmp_path)
        assert (len(dataset.images), dataset.name) == (40 + 12, tmp_path.name)
        assert dataset.layout == "CSV list of classes, labels.csv"
        assert "labels.csv" in self.checked(tmp_path)
        shutil.copy(tmp_path / "labels.csv", tmp_path / "others.csv")
        assert "labels.csv, others.csv: give the path of one" in open_classified(tmp_path).error

    def test_a_list_that_is_not_text_is_named(self, tmp_path: Path) -> None:
        listed = csv_list(tmp_path, TRAIN, TEST).rename(tmp_path / "labels.csv")
        listed.write_bytes(listed.read_bytes().replace(b"png", "\xe9".encode("latin-1"), 1))
        assert f"{listed}: cannot be read as text" in open_classified(tmp_path).error

    def test_a_list_counts_for_more_than_folders_but_less_than_label_maps(
        self, discs: Path, tmp_path: Path
    ) -> None:
        for part in ("part 1", "part 2"):
            (tmp_path / part).mkdir()
            Image.fromarray(TRAIN.pictures[0]).save(tmp_path / part / "a.png")
        (tmp_path / "m.tsv").write_text("image\tclass\npart 1/a.png\tx\npart 2/a.png\ty\n")
        assert open_classified(tmp_path).classes == ("x", "y")
        (tmp_path / "m.tsv").write_text("image\tclass\nlost/a.png\tx\n")
        assert open_classified(tmp_path).classes == ("part 1", "part 2")
        both = shutil.copytree(discs, tmp_path / "both")
        image = next((both / "images").iterdir()).name
        (both / "list.csv").write_text(f"image,class\nimages/{image},x\n")
        assert isinstance(open_any(both), Dataset)
        assert open_classified(both).classes == ("x",)

    def test_faults_are_told_and_fail(self, tmp_path: Path) -> None:
        (tmp_path / "list.csv").write_text("image,class\nlost.png,benign\n")
        text = " ".join(self.checked(tmp_path / "list.csv").split())
        assert "lost.png" in text and "not ready" in text


class TestHostileFiles:
    """They are findings and take neither memory nor time."""

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"\0\0\x08",
            b"\0\0\x08\x01\0\0\0\x05ab",
            b"\0\0\x08\x01\xff\xff\xff\xff",
            b"\0\0\x08\x04" + b"\xff" * 16,
            b"\0\0\x55\x01\0\0\0\x01a",
            b"\1\2\3\4",
        ],
    )
    @pytest.mark.parametrize("kind", ["images", "labels"])
    def test_a_damaged_idx_file(self, tmp_path: Path, content: bytes, kind: str) -> None:
        idx(tmp_path, TRAIN, TEST)
        other = {"images": "train-images-idx3-ubyte.gz", "labels": "train-labels-idx1-ubyte"}[kind]
        zipped = other.endswith(".gz")
        (tmp_path / other).write_bytes(gzip.compress(content) if zipped else content)
        dataset = open_classified(tmp_path)
        assert not dataset.trainable and "layout" in codes(dataset)

    def test_labels_of_another_number_of_pictures(self, tmp_path: Path) -> None:
        idx(tmp_path, TRAIN, TEST)
        write_idx(tmp_path / "train-labels-idx1-ubyte", TRAIN.classes[:-1])
        (finding,) = [f for f in open_classified(tmp_path).findings if f.code == "unusable"]
        assert "holds 40 pictures, but their labels have the shape (39,)" in finding.what

    def test_a_damaged_npz_file(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "x.npz", train_images=TRAIN.pictures, train_labels=TRAIN.classes)
        content = bytearray((tmp_path / "x.npz").read_bytes())
        content[200:900] = b"\xff" * 700
        (tmp_path / "x.npz").write_bytes(content)
        assert not open_classified(tmp_path / "x.npz").trainable

    def test_pickles_are_not_loaded(self, tmp_path: Path) -> None:
        labels = np.array([{"a": 1}] * 40, dtype=object)
        np.savez(tmp_path / "x.npz", train_images=TRAIN.pictures, train_labels=labels)
        (finding,) = open_classified(tmp_path / "x.npz").findings
        assert "truncated or corrupt" in finding.what

    def test_a_table_without_a_column_of_images_is_told_its_columns(self, tmp_path: Path) -> None:
        (tmp_path / "list.csv").write_text("photo;label\na.png;1\n")
        found, *_ = open_classified(tmp_path / "list.csv").findings
        assert found.fix == "its header row needs the columns image and class, but has photo, label"

    def test_a_list_that_is_no_list(self, tmp_path: Path) -> None:
        (tmp_path / "list.json").write_text("[" * 10_000)
        (finding,) = open_classified(tmp_path / "list.json").findings
        assert finding.code == "layout" and "cannot be read as JSON" in finding.what
