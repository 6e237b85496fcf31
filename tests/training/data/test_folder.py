from __future__ import annotations

import errno
import shutil
from pathlib import Path
from typing import Literal

import nibabel
import numpy as np
import pytest
from PIL import Image

from caps_med.errors import InvalidInput, InvalidParameter
from caps_med.images import Normalization
from training.data import Preparation, load_source, open_dataset
from training.data.interpretation import Interpretation
from training.data.samples import UNLABELLED


def test_pictures_become_samples(discs: Path, store: Path) -> None:
    source = load_source(open_dataset(discs), store)
    assert (len(source.training), len(source.validation)) == (5, 1)
    assert source.binary
    assert source.labels == {0: "background", 1: "label 1"}
    assert source.plane is None
    assert source.spacing_mm is None and source.slice_mm is None
    sample = source.training[0]
    assert sample["image"].shape == sample["label"].shape == (1, 72, 80)
    assert sample["image"].min() == 0
    assert sample["image"].max() == 1
    assert set(np.unique(sample["label"])) == {0, 1}


def volume(folder: Path, name: str, ids: tuple[int, ...], zooms: float = 1.0) -> None:
    for kind in ("images", "labels"):
        (folder / kind).mkdir(exist_ok=True)
    rng = np.random.default_rng([*name.encode()])
    label = np.zeros((16, 20, 10), np.int16)
    for i, value in enumerate(ids):
        label[2 + 4 * i : 5 + 4 * i, 5:15, 2:8] = value
    image = label * 10 + rng.normal(0, 1, label.shape)
    affine = np.diag([-zooms, zooms, 2.0, 1.0])
    image_file, label_file = folder / "images" / name, folder / "labels" / name
    nibabel.save(nibabel.Nifti1Image(image.astype(np.float32), affine), image_file)
    nibabel.save(nibabel.Nifti1Image(label, affine), label_file)


def test_volumes_become_labelled_axial_slices(tmp_path: Path, store: Path) -> None:
    for i in range(5):
        volume(tmp_path, f"v{i}.nii.gz", (1, 4))
    source = load_source(open_dataset(tmp_path), store)
    assert (len(source.training), len(source.validation)) == (24, 6)
    assert source.summary.startswith("24 slices to train on, 6 held out, labels background, ")
    assert list(source.labels) == [0, 1, 4]
    assert source.plane == "axial"
    assert source.spacing_mm == (1.0, 1.0) and source.slice_mm == 2.0
    assert source.training[0]["image"].shape == (1, 20, 16)
    assert set(np.unique(source.training[0]["label"])) == {0, 1, 2}


@pytest.mark.parametrize("dims", [2, 3])
def test_what_is_not_labelled_has_no_class(
    tmp_path: Path, store: Path, dims: Literal[2, 3]
) -> None:
    for i in range(5):
        volume(tmp_path, f"v{'x' * i}.nii.gz", (4, 9))
    file = tmp_path / "labels" / "v.nii.gz"
    nothing = nibabel.load(file)
    array = np.full(nothing.shape, 9, np.int16)
    nibabel.save(nibabel.Nifti1Image(array, nothing.affine), file)
    dataset = open_dataset(tmp_path, interpretation=Interpretation(ignored=9))
    assert dataset.card is not None
    assert [one.label for one in dataset.card.classes] == [0, 4]
    assert dataset.card.unlabelled == pytest.approx((3200 + 4 * 180) / (5 * 3200))
    (found,) = dataset.findings
    assert (found.code, found.what) == ("empty_label", "is not labelled anywhere")
    source = load_source(dataset, store, Preparation(spatial_dims=dims))
    assert source.labels == {0: "background", 4: "label 4"} and source.partly_labelled
    samples = [*source.training, *source.validation]
    assert len(samples) == (4 * 6 if dims == 2 else 4)  # not the case without any label
    expected = nibabel.load(tmp_path / "labels" / "vx.nii.gz").get_fdata()
    for sample in samples:
        unlabelled = sample["label"] == UNLABELLED
        assert unlabelled.sum() == (expected == 9).sum() / (6 if dims == 2 else 1)
        assert set(np.unique(sample["label"])) == {0, 1, UNLABELLED}
    array = np.where(expected == 4, 65535, expected).astype(np.uint16)
    nibabel.save(nibabel.Nifti1Image(array, nothing.affine), tmp_path / "labels" / "vx.nii.gz")
    dataset = open_dataset(tmp_path, interpretation=Interpretation(ignored=9))
    with pytest.raises(InvalidInput, match=r"vx.nii.gz: holds the label id 65535: use a smaller"):
        load_source(dataset, store)


def test_an_id_of_what_is_not_labelled_that_is_mistyped_or_named(tmp_path: Path) -> None:
    for i in range(5):
        volume(tmp_path, f"v{'x' * i}.nii.gz", (4, 9))
    dataset = open_dataset(tmp_path, interpretation=Interpretation(ignored=8))
    found, _ = dataset.findings  # the other is of two labels that lie side by side
    assert (found.code, found.what) == ("absent_label", "8 (unlabelled): in no label map")
    named = Interpretation(labels={9: "Ignore"})
    found, _ = open_dataset(tmp_path, interpretation=named).findings
    assert found.code == "ignored_value" and "segmentation leaves it out" in found.what
    dataset = open_dataset(tmp_path, interpretation=named.with_ignored())
    assert dataset.ignored == 9 and not dataset.labels and not dataset.findings


def test_ids_and_classes_beyond_what_is_stored_are_refused(tmp_path: Path, store: Path) -> None:
    labels = np.arange(2**16 - 16 * 17, 2**16 + 16).reshape(16, 18, 1)
    for kind, array in (("images", labels % 251), ("labels", labels)):
        (tmp_path / kind).mkdir()
        for name in "ab":
            found = nibabel.Nifti1Image(array.astype(np.int32), np.eye(4))
            nibabel.save(found, tmp_path / kind / f"{name}.nii")
    with pytest.raises(InvalidInput, match=r"label id 65551.*up to 65535"):
        load_source(open_dataset(tmp_path), store)
    for file in (tmp_path / "labels").iterdir():
        nibabel.save(nibabel.Nifti1Image((labels % 300).astype(np.int32), np.eye(4)), file)
    with pytest.raises(InvalidInput, match="287 different labels, but at most 255"):
        load_source(open_dataset(tmp_path), store)


def test_a_disk_that_was_full_does_not_spoil_what_is_prepared_next(
    discs: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the list of what is prepared, written last, only a part fits."""

    def full(self: Path, content: str | bytes) -> None:
        with self.open("wb") as file:
            file.write(content[:9].encode() if isinstance(content, str) else content[:9])
        raise OSError(errno.ENOSPC, "No space left on device", str(self))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match="No space left"):
            load_source(open_dataset(discs), store)
    assert len(load_source(open_dataset(discs), store).training) == 5


def test_what_was_being_deleted_when_the_process_ended_is_not_taken_for_whole(
    discs: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_source(open_dataset(discs), store)

    def interrupted(folder: Path, **_: object) -> None:
        next(folder.glob("*.image.npy")).unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            load_source(open_dataset(discs), store, Preparation(spatial_dims=3))
    source = load_source(open_dataset(discs), store)
    for samples in (source.training, source.validation):
        assert all(sample["image"].size for sample in samples)


def test_one_volume_holds_out_slices(tmp_path: Path, store: Path) -> None:
    volume(tmp_path, "only.nii.gz", (1,))
    source = load_source(open_dataset(tmp_path), store)
    assert (len(source.training), len(source.validation)) == (5, 1)


def test_of_two_pictures_one_is_trained_on(tmp_path: Path, store: Path) -> None:
    source = load_source(open_dataset(pictures(tmp_path, "11")), store)
    assert source.summary.startswith("1 slice to train on, 1 held out")


@pytest.mark.parametrize("dims", [2, 3])
def test_volumes_of_one_patient_are_held_out_whole(
    dims: Literal[2, 3], tmp_path: Path, store: Path
) -> None:
    """Neighbouring slices are nearly the same."""
    rows = ["image,label,patient"]
    for name in "abc":
        volume(tmp_path, f"{name}.nii.gz", (1,))
        rows.append(f"images/{name}.nii.gz,labels/{name}.nii.gz,p1")
    (tmp_path / "list.csv").write_text("\n".join(rows))
    dataset = open_dataset(tmp_path / "list.csv")
    source = load_source(dataset, store, Preparation(spatial_dims=dims))
    assert source.held_out == {"c"}
    assert set(source.groups) == {"a", "b", "c"}


def test_other_spacings_are_resampled_to_the_first(tmp_path: Path, store: Path) -> None:
    volume(tmp_path, "a.nii.gz", (1,))
    volume(tmp_path, "b.nii.gz", (1,), zooms=1.5)
    source = load_source(open_dataset(tmp_path), store)
    assert source.spacing_mm == (1.0, 1.0)
    assert source.training[0]["image"].shape == (1, 20, 16)
    assert source.validation[0]["image"].shape == (1, 30, 24)
    share = [float(s[0]["label"].mean()) for s in (source.training, source.validation)]
    assert share[0] == pytest.approx(share[1], rel=0.2)


def test_labels_that_resampling_loses_are_those_of_the_model_all_the_same(
    tmp_path: Path, store: Path
) -> None:
    volume(tmp_path, "a.nii.gz", (1,))
    volume(tmp_path, "b.nii.gz", (1,), zooms=0.25)
    file = tmp_path / "labels" / "b.nii.gz"
    scan = nibabel.load(file)
    label = np.array(scan.dataobj)
    label[0, 0, 5] = 2
    nibabel.save(nibabel.Nifti1Image(label, scan.affine), file)
    source = load_source(open_dataset(tmp_path), store)
    assert source.spacing_mm == (1.0, 1.0)
    assert not any((sample["label"] == 2).any() for sample in source.samples), "it is not lost"
    assert list(source.labels) == [0, 1, 2]


def test_a_registered_data_set_takes_no_other_preparation(tmp_path: Path) -> None:
    ranks = Preparation(normalization=Normalization(ranks=True))
    with pytest.raises(InvalidParameter, match="preparation: mni152 has its own"):
        load_source(open_dataset("mni152"), tmp_path, ranks)


def test_missing_folder_is_named(tmp_path: Path, store: Path) -> None:
    with pytest.raises(InvalidInput, match=r"no such folder or list .* data set is mni152"):
        load_source(open_dataset(tmp_path / "nowhere"), store)
    with pytest.raises(InvalidInput, match=r"Found: nothing\.\n.*label maps:\n  images/a.png"):
        load_source(open_dataset(tmp_path), store)


def copy(discs: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(discs, tmp_path / "data"))


def test_unpaired_file_is_named(discs: Path, tmp_path: Path, store: Path) -> None:
    folder = copy(discs, tmp_path)
    (folder / "labels" / "case3.png").unlink()
    with pytest.raises(InvalidInput, match=r"without a counterpart: case3\.png"):
        load_source(open_dataset(folder), store)


def test_other_size_is_named(discs: Path, tmp_path: Path, store: Path) -> None:
    folder = copy(discs, tmp_path)
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(folder / "labels" / "case2.png")
    with pytest.raises(
        InvalidInput, match=r"case2.png has size \(72, 80\), but its label map \(8, 8\)"
    ):
        load_source(open_dataset(folder), store)


def test_empty_labels_are_refused(discs: Path, tmp_path: Path, store: Path) -> None:
    folder = copy(discs, tmp_path)
    for path in (folder / "labels").iterdir():
        Image.fromarray(np.zeros((72, 80), np.uint8)).save(path)
    with pytest.raises(InvalidInput, match="every label map is empty"):
        load_source(open_dataset(folder), store)


def pictures(folder: Path, labelled: str) -> Path:
    """Pictures in order; those of ``1`` have a label."""
    for kind in ("images", "labels"):
        (folder / kind).mkdir(parents=True)
    rng = np.random.default_rng(0)
    for number, has in enumerate(labelled):
        mask = np.zeros((24, 24), np.uint8)
        mask[8:16, 8:16] = int(has)
        noise = rng.integers(0, 99, mask.shape)
        for kind, array in (("images", noise + 100 * mask), ("labels", mask)):
            Image.fromarray(array.astype(np.uint8)).save(folder / kind / f"c{number:02}.png")
    return folder


@pytest.mark.parametrize(
    "labelled, held_out",
    [
        ("1111100000", {"c02", "c07"}),
        ("0000011111", {"c07", "c02"}),
        ("0000000011", {"c09", "c02", "c07"}),  # as of the two with labels alone, and every fifth
        ("11", {"c01"}),
    ],
)
def test_pictures_without_labels_are_learned_from_and_held_out_apart(
    tmp_path: Path, store: Path, labelled: str, held_out: set[str]
) -> None:
    source = load_source(open_dataset(pictures(tmp_path / "data", labelled)), store)
    assert len(source.samples) == len(labelled)
    assert source.held_out == held_out
    most = labelled.count("1")
    for fold in source.folds(most):
        assert any(sample["label"].any() for sample in fold.validation)
    with pytest.raises(InvalidParameter, match=f"folds={most + 1}: 2 to {most} are possible"):
        source.folds(most + 1)


def test_one_labelled_picture_among_others_is_too_few(tmp_path: Path, store: Path) -> None:
    dataset = open_dataset(pictures(tmp_path / "data", "0100"))
    with pytest.raises(InvalidInput, match="too few labelled slices to hold some out"):
        load_source(dataset, store)
    assert [found.code for found in dataset.findings if found.severity == "error"] == [
        "one_labelled"
    ]
    assert not dataset.trainable


def test_volumes_without_labels_are_held_out_apart(tmp_path: Path, store: Path) -> None:
    for number, ids in enumerate([(0, 1), (0, 1), (0,), (0, 1), (0, 1)]):
        volume(tmp_path, f"v{number}.nii.gz", ids)
    source = load_source(open_dataset(tmp_path), store, Preparation(spatial_dims=3))
    assert source.held_out == {"v4"}  # the third of five would be the one without
    assert [bool(sample["label"].any()) for sample in source.samples] == [True] * 4 + [False]
    assert source.unlabelled == {"v2"}
    for fold in source.folds(4):
        assert any(sample["label"].any() for sample in fold.validation)


def test_one_labelled_volume_among_others_is_too_few(tmp_path: Path, store: Path) -> None:
    for name, ids in (("a.nii.gz", (0, 1)), ("b.nii.gz", (0,))):
        volume(tmp_path, name, ids)
    dataset = open_dataset(tmp_path)
    assert not dataset.trainable
    with pytest.raises(InvalidInput, match="too few labelled volumes to hold some out"):
        load_source(dataset, store, Preparation(spatial_dims=3))
