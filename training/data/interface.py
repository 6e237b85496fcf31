"""What the training of every task needs to know about its data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, Protocol, Self

from pydantic import BaseModel

from caps_med.images import LabelCode, MedicalImage
from training.data.check.findings import Finding


class TrainingData(Protocol):
    """A data set on disk, checked before anything is trained."""

    @property
    def data(self) -> str:
        """The name or path, as given."""

    @property
    def name(self) -> str:
        """Of the data set."""

    @property
    def recipe_values(self) -> Mapping[str, Any]:
        """Recipe values that say what the data are and how they are understood; those that a task's
        recipe does not have do not concern it.
        """

    @property
    def codes(self) -> Mapping[int, LabelCode]:
        """Label id -> what the label stands for, where the data say it."""

    @property
    def findings(self) -> Sequence[Finding]:
        """All problems, errors first."""

    @property
    def trainable(self) -> bool:
        """Whether there are no errors."""


class CheckedData(TrainingData, Protocol):
    """A data set as `caps-med data check` shows it."""

    @property
    def layout(self) -> str:
        """How its files are laid out, in words."""

    @property
    def error(self) -> str:
        """Why nothing could be read; empty if something was."""

    @property
    def card(self) -> BaseModel | None:
        """What the data are; None if nothing was read."""

    @property
    def strangers(self) -> Sequence[Path]:
        """Files that are no images."""

    @property
    def sheet(self) -> MedicalImage | None:
        """A contact sheet."""


class TrainingSource(Protocol):
    """What is trained on, and what is held out for validation."""

    @property
    def name(self) -> str:
        """Of the data set."""

    @property
    def description(self) -> str:
        """Content, origin and licence of the data."""

    @property
    def summary(self) -> str:
        """What there is to learn from, in one line."""

    @property
    def training(self) -> Sized:
        """What is trained on."""

    @property
    def validation(self) -> Sized:
        """What is held out."""

    @property
    def held_out(self) -> frozenset[str]:
        """Names of the cases or images held out."""

    @property
    def labels(self) -> Mapping[int, str]:
        """Label id -> name."""

    def training_name(self, index: int) -> str:
        """Name of a training sample, for messages."""

    def card_values(self) -> Mapping[str, Any]:
        """What a model card says about the data."""

    @property
    def given_folds(self) -> Sequence[frozenset[str]]:
        """The groups held out in each fold that the data give; empty if they give none."""

    def folds(self, count: int) -> Sequence[Self]:
        """The parts of a cross-validation: the given folds, if there are as many.

        Raises:
            InvalidParameter: there is too little for so many, or a given fold cannot be used.
        """
