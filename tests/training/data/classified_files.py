"""Classified images on disk in every layout: scikit-learn's digits, 8 x 8 pixels."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sklearn.datasets import load_digits

Bytes = NDArray[np.uint8]


class Digits(NamedTuple):
    """Pictures ``[N, 8, 8]`` and their classes ``[N]``."""

    pictures: Bytes
    classes: Bytes


def digits(count: int, kinds: int = 10, start: int = 0) -> Digits:
    """The first `count` digits below `kinds`, from `start` on."""
    found = load_digits()
    chosen = np.flatnonzero(found.target < kinds)[start : start + count]
    pictures = (found.images[chosen] * 255 / 16).round().astype(np.uint8)
    return Digits(pictures, found.target[chosen].astype(np.uint8))


def write_idx(file: Path, array: Bytes) -> None:
    """One IDX file as MNIST's, gzipped if it is called so."""
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    content = header + array.tobytes()
    file.write_bytes(gzip.compress(content) if file.suffix == ".gz" else content)


def idx(folder: Path, train: Digits, test: Digits) -> Path:
    """IDX files, named as MNIST's."""
    for part, found in (("train", train), ("t10k", test)):
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", found.pictures)
        write_idx(folder / f"{part}-labels-idx1-ubyte", found.classes)
    return folder


def medmnist(folder: Path, train: Digits, test: Digits) -> Path:
    """An npz file as MedMNIST's, labels ``[N, 1]``."""
    file = folder / "digitmnist.npz"
    np.savez(
        file,
        train_images=train.pictures,
        train_labels=train.classes[:, None],
        test_images=test.pictures,
        test_labels=test.classes[:, None],
    )
    return file


def class_folders(folder: Path, train: Digits, test: Digits) -> Path:
    """A folder per class in ``train`` and ``test``."""
    for part, found in (("train", train), ("test", test)):
        _write_pictures(folder, found, lambda i, k, part=part: f"{part}/{k}/{i:04}.png")  # type: ignore[misc]
    return folder


def findings_folders(folder: Path, train: Digits, test: Digits) -> Path:
    """`class_folders` of three kinds of digits under the names of findings."""
    class_folders(folder, train, test)
    for part in ("train", "test"):
        for number, name in enumerate(("benign", "malignant", "normal tissue")):
            (folder / part / str(number)).rename(folder / part / name)
    return folder


def csv_list(folder: Path, train: Digits, test: Digits) -> Path:
    """A table with the columns image, class and split."""
    rows = _listed(folder, train, test)
    with (folder / "list.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["image", "class", "split"])
        writer.writeheader()
        writer.writerows(rows)
    return folder / "list.csv"


def json_list(folder: Path, train: Digits, test: Digits) -> Path:
    """A JSON list of the same, whose classes are numbers."""
    rows = [{**row, "class": int(row["class"])} for row in _listed(folder, train, test)]
    (folder / "list.json").write_text(json.dumps(rows))
    return folder / "list.json"


#: Every layout: writes two parts of digits below a folder and returns the path to open.
LAYOUTS: Mapping[str, Callable[[Path, Digits, Digits], Path]] = {
    "IDX": idx,
    "MedMNIST": medmnist,
    "folders": class_folders,
    "CSV": csv_list,
    "JSON": json_list,
}


def _listed(folder: Path, train: Digits, test: Digits) -> list[dict[str, str]]:
    rows = []
    for part, found in (("train", train), ("test", test)):
        names = _write_pictures(folder, found, lambda i, _, part=part: f"{part}-{i:04}.png")  # type: ignore[misc]
        rows += [
            {"image": name, "class": str(k), "split": part}
            for name, k in zip(names, found.classes, strict=True)
        ]
    return rows


def _write_pictures(folder: Path, found: Digits, name: Callable[[int, int], str]) -> list[str]:
    names = [name(i, int(k)) for i, k in enumerate(found.classes)]
    for file, picture in zip(names, found.pictures, strict=True):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / file)
    return names
