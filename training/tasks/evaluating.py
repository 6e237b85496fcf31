"""What the evaluation of every task takes and gives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from caps_med.inference import Model
from training.data.interpretation import Interpretation
from training.progress import EVALUATING, tracked


class Noted(Protocol):
    """A summary as a pydantic model."""

    @property
    def notes(self) -> Sequence[str]:
        """What a reader should know before believing the numbers."""

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        """For JSON."""


@dataclass(frozen=True)
class Request:
    """An evaluation.

    Attributes:
        data: the labelled images.
        models: of one task; the first is compared with the others.
        out: the folder for the files.
        seed: of confidence intervals and of what is drawn at random.
        interpretation: how label maps are to be understood.
        images: of a synthesis model: images of each label map.
        segmenter: of a synthesis model: a segmentation model, for the geometry.
        tolerance: of a segmentation model: that of the surface Dice, in mm or pixels; None for the
            longest side of a voxel.
        predictions: of a segmentation task: name -> folder of label maps that another program has
            predicted.
        changed: of a classification model: images that are changed and attacked.
    """

    data: Path
    models: Sequence[Model]
    out: Path
    seed: int
    interpretation: Interpretation
    images: int
    segmenter: Model | None
    changed: int
    tolerance: float | None
    predictions: Mapping[str, Path]

    def evaluating(self, items: Iterable[Any]) -> Iterable[Any]:
        """`items`, with progress; for tasks of other packages."""
        return tracked(items, EVALUATING)


@dataclass(frozen=True)
class Table:
    """A table for the terminal; the first of the headings is that of the rows' names."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str


@dataclass(frozen=True)
class Part:
    """What was found about one question.

    Attributes:
        summary: for JSON.
        tables: for the terminal.
        name: of this part in a JSON document; the first part has none, for its fields stand at the
            top.
    """

    summary: Noted
    tables: Sequence[Table]
    name: str = ""
