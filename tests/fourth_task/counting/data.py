"""Images, and ``counts.csv`` with the columns image and count."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor

from caps_med import read_image
from caps_med.errors import CapsMedError, InvalidParameter
from caps_med.images import LabelCode, MedicalImage, Normalization
from caps_med.preprocessing import PicturePreprocessing, unit_pictures
from training.data.check.findings import Finding
from training.tasks.opening import Opening, Understanding

LIST = "counts.csv"
PICTURES = PicturePreprocessing(size=(24, 24), normalization=Normalization(window=(0, 255)))


class CountCard(BaseModel):
    """What the data are."""

    images: int
    fewest: int
    most: int


@dataclass(frozen=True)
class CountedImages:
    """A folder of counted images, read and checked."""

    path: Path
    images: Mapping[str, MedicalImage]
    counts: Mapping[str, int]
    findings: Sequence[Finding]

    layout = f"images listed in {LIST}"
    error = ""
    strangers = ()
    sheet = None

    @property
    def codes(self) -> Mapping[int, LabelCode]:
        """None."""
        return {}

    @property
    def data(self) -> str:
        """As given."""
        return str(self.path)

    @property
    def name(self) -> str:
        """Of the folder."""
        return self.path.name

    @property
    def recipe_values(self) -> Mapping[str, Any]:
        """The folder."""
        return {"data": self.data}

    @property
    def trainable(self) -> bool:
        """Whether there are no errors."""
        return not self.findings

    @property
    def card(self) -> CountCard | None:
        """None without images."""
        numbers = [self.counts[name] for name in self.images]
        if not numbers:
            return None
        return CountCard(images=len(numbers), fewest=min(numbers), most=max(numbers))


def open_counts(path: Path) -> CountedImages:
    """Read the list and all its images."""
    images, counts, findings = {}, {}, []
    with (path / LIST).open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            name, count = row["image"], row["count"]
            try:
                if not count.isdecimal():
                    raise InvalidParameter(f"count {count!r}: must be a whole number")
                images[name], counts[name] = read_image(path / name), int(count)
            except CapsMedError as error:
                fix = f"correct it, or remove its line from {LIST}"
                findings.append(
                    Finding(severity="error", code="unusable", file=name, what=str(error), fix=fix)
                )
    return CountedImages(path, images, counts, findings)


def _find(path: Path) -> CountedImages | None:
    return open_counts(path) if (path / LIST).is_file() else None


def _open(data: str | Path, _: Understanding) -> CountedImages:
    if (found := _find(Path(data))) is None:
        raise InvalidParameter(f"{data}: there is no {LIST} with columns image and count")
    return found


OPENING = Opening(_open, find=_find)


@dataclass(frozen=True)
class CountedSource:
    """What is trained on; every fourth image is held out."""

    name: str
    pictures: Tensor
    counts: Tensor
    names: Sequence[str]

    @property
    def labels(self) -> Mapping[int, str]:
        """What the number is of."""
        return {0: "cells"}

    @property
    def description(self) -> str:
        """Content of the data."""
        return f"{len(self.names)} images of {self.name}"

    summary = description
    given_folds: Sequence[frozenset[str]] = ()

    @property
    def training(self) -> Sequence[int]:
        """Indices of the images to train on."""
        return [k for k in range(len(self.names)) if k % 4]

    @property
    def validation(self) -> Sequence[int]:
        """Indices of the images held out."""
        return range(0, len(self.names), 4)

    @property
    def held_out(self) -> frozenset[str]:
        """Names of the images held out."""
        return frozenset(self.names[k] for k in self.validation)

    def training_name(self, index: int) -> str:
        """Of a training image."""
        return self.names[index]

    def card_values(self) -> Mapping[str, Any]:
        """What the card says of the data."""
        details = {"pictures": PICTURES.model_dump(mode="json"), "largest": int(self.counts.max())}
        return {"labels": self.labels, "details": details}

    def folds(self, count: int) -> Sequence[CountedSource]:
        """There are none."""
        raise InvalidParameter(f"folds={count}: counting has no cross-validation")


def load(dataset: CountedImages, _: Path, __: object) -> CountedSource:
    """The images as the network takes them."""
    names = sorted(dataset.images)
    pictures = [torch.from_numpy(PICTURES(dataset.images[name]).copy()) for name in names]
    counts = torch.tensor([float(dataset.counts[name]) for name in names])
    return CountedSource(dataset.name, unit_pictures(torch.stack(pictures)), counts, names)
