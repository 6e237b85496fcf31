"""The brain tumour slices of figshare, on small files of their layout."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.typing import NDArray

from caps_med.errors import CapsMedError
from caps_med.preprocessing import PicturePreprocessing
from training.data import Dataset
from training.data.classified import load_classified, open_classified
from training.data.classified.figshare import TUMOURS, SliceRef, read_slice
from training.data.opening import open_any

MATLAB = b"MATLAB 7.3 MAT-file, Platform: PCWIN64, Created on: Sun Nov 22 2015 HDF5 schema 1.00 ."


def write_mat(
    file: Path, label: float, patient: str, change: Callable[[h5py.File], None] | None = None
) -> NDArray[np.int16]:
    """A file as MATLAB writes ``save -v7.3``: columns first, text as numbers, a header before."""
    pixels = np.random.default_rng(len(file.name)).integers(0, 9000, (10, 14), np.int16)
    with h5py.File(file, "w", userblock_size=512) as mat:
        group = mat.create_group("cjdata")
        group["image"] = pixels.T
        group["label"] = np.array([[label]], np.float64)
        group["PID"] = np.array([[ord(letter)] for letter in patient], np.uint16)
        group["tumorMask"] = np.zeros((14, 10), np.uint8)
        if change is not None:
            change(mat)
    with file.open("r+b") as content:
        content.write(MATLAB)
    return pixels


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two patients for each tumour, with two slices each, in two folders, and the folds."""
    for number in range(12):
        part = tmp_path / "tumours" / ("1-8" if number < 8 else "9-12")
        part.mkdir(parents=True, exist_ok=True)
        write_mat(part / f"{number + 1}.mat", number // 4 + 1, f"MR{100 + number // 2}")
    with h5py.File(tmp_path / "tumours" / "cvind.mat", "w", userblock_size=512) as folds:
        folds["cvind"] = np.ones((12, 1))
    return tmp_path / "tumours"


def test_slices_tumours_and_patients(folder: Path) -> None:
    dataset = open_classified(folder)
    assert dataset.layout == "MATLAB files of slices (brain tumours, figshare)"
    assert dataset.classes == TUMOURS and dataset.trainable, dataset.findings
    assert [image.name for image in dataset.images][7:10] == [
        "1-8/8.mat",
        "9-12/9.mat",
        "9-12/10.mat",
    ]
    assert [image.classes[0] for image in dataset.images] == [k // 4 for k in range(12)]
    assert dataset.images[5].group == "MR102"
    pixels = write_mat(folder / "1-8" / "3.mat", 1, "MR101")
    np.testing.assert_array_equal(dataset.read(dataset.images[2]).array[0], pixels)


def test_patients_are_not_divided(folder: Path, tmp_path: Path) -> None:
    size = PicturePreprocessing(size=(10, 14))
    source = load_classified(open_classified(folder), tmp_path / "store", size, 0.5, seed=0)
    groups = [
        {source.groups[i] for i in part.indices} for part in (source.training, source.validation)
    ]
    assert groups[0] and groups[1] and not groups[0] & groups[1]


def replaced(name: str, value: Any) -> Callable[[h5py.File], None]:  # noqa: ANN401
    """A change of a file: another value in the place of an array."""

    def change(mat: h5py.File) -> None:
        del mat[f"cjdata/{name}"]
        mat[f"cjdata/{name}"] = value

    return change


def huge(mat: h5py.File) -> None:
    del mat["cjdata/image"]
    mat.create_dataset("cjdata/image", (2**20, 2**20), np.int16, chunks=(64, 64))


def huge_label(mat: h5py.File) -> None:
    del mat["cjdata/label"]
    mat.create_dataset("cjdata/label", (2**20, 2**20), np.float64, chunks=(64, 64))


def elsewhere(mat: h5py.File) -> None:
    del mat["cjdata/image"]
    mat.create_dataset("cjdata/image", (14, 10), np.int16, external=[("/etc/passwd", 0, 280)])


def virtual(mat: h5py.File) -> None:
    del mat["cjdata/image"]
    layout = h5py.VirtualLayout((14, 10), np.int16)
    layout[:] = h5py.VirtualSource("other.mat", "cjdata/image", (14, 10))
    mat.create_virtual_dataset("cjdata/image", layout)


def reference(mat: h5py.File) -> None:
    found = np.array([[mat["cjdata"].ref]], h5py.ref_dtype)
    replaced("label", found)(mat)


#: What a hostile or damaged file holds -> what is said of it.
LABELS = {
    "is 7": (replaced("label", np.array([[7.0]])), "its label is 7, but must be 1, 2 or 3"),
    "is NaN": (replaced("label", np.array([[np.nan]])), "its label is nan"),
    "is empty": (replaced("label", np.zeros((0, 0))), "its label is 0"),
    "is a link": (replaced("label", h5py.ExternalLink("other.mat", "/label")), "to another place"),
    "leads in a circle": (replaced("label", h5py.SoftLink("/cjdata/label")), "to another place"),
    "is a group": (lambda mat: replaced("label", mat["cjdata"])(mat), "label is not an array"),
    "is a reference": (reference, "label holds object: numbers are needed"),
    "is huge": (huge_label, "has 1099511627776 values: at most 1"),
}
IMAGES = {
    "has one axis": (replaced("image", np.zeros(9)), r"shape \(9,\): \[H, W\] is needed"),
    "is huge": (huge, "voxels"),
    "is elsewhere": (elsewhere, "image is stored in another file"),
    "is virtual": (virtual, "image is stored in another file"),
    "is text": (replaced("image", "pixels"), "image holds object: numbers are needed"),
    "is missing": (lambda mat: mat["cjdata"].__delitem__("image"), "image is missing"),
}


@pytest.mark.parametrize("what", LABELS)
def test_a_label_that_is_none_is_told(folder: Path, what: str) -> None:
    change, told = LABELS[what]
    write_mat(folder / "1-8" / "2.mat", 1, "MR100", change)
    dataset = open_classified(folder)
    assert len(dataset.images) == 11
    [unusable] = dataset.unusable
    assert unusable.path.name == "2.mat" and told in unusable.what
    assert not dataset.trainable


@pytest.mark.parametrize("what", IMAGES)
def test_an_image_that_is_none_is_told(tmp_path: Path, what: str) -> None:
    change, told = IMAGES[what]
    write_mat(tmp_path / "1.mat", 1, "MR100", change)
    with pytest.raises(CapsMedError, match=told):
        read_slice(SliceRef(tmp_path / "1.mat"))


@pytest.mark.parametrize("patient", ["", "\0", "a\nb"])
def test_a_patient_without_a_name_is_told(folder: Path, patient: str) -> None:
    letters = np.array([[ord(letter)] for letter in patient] or [[0]], np.uint16)
    write_mat(folder / "1-8" / "2.mat", 1, "x", replaced("PID", letters))
    assert "names no patient" in open_classified(folder).unusable[0].what


def test_a_truncated_file_is_told(folder: Path) -> None:
    file = folder / "1-8" / "2.mat"
    file.write_bytes(file.read_bytes()[:700])
    assert "truncated or corrupt" in open_classified(folder).unusable[0].what


def test_other_matrices_are_no_slices(tmp_path: Path) -> None:
    (tmp_path / "a.mat").write_bytes(b"MATLAB 5.0 MAT-file" + bytes(1000))
    assert "Supported layouts" in open_classified(tmp_path).error


def test_a_matrix_beside_images_and_label_maps_is_no_slice(discs: Path, tmp_path: Path) -> None:
    matrix = Path(shutil.copytree(discs, tmp_path / "discs")) / "scanner.mat"
    with h5py.File(matrix, "w", userblock_size=512) as mat:
        mat["settings"] = np.ones(3)
    with matrix.open("r+b") as content:
        content.write(MATLAB)
    found = open_any(matrix.parent)
    assert isinstance(found, Dataset) and len(found.cases) == 6
    assert found.strangers == (matrix,)
