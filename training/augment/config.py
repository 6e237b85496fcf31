"""What the user asked for, and the folder in which it is done."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from caps_med.errors import InvalidParameter
from training.atomic import write_text
from training.labelmaps.shapes import TOLERANCE
from training.labelmaps.symmetry import Symmetries

#: Where the loop departs from what a recipe's values would be: batches do not follow from the
#: memory that happens to be free, and segmenters are small enough to train several.
GENERATOR: Mapping[str, Any] = {"batch_size": 4}
SEGMENTER: Mapping[str, Any] = {
    "epochs": 8,
    "steps": 50,
    "batch_size": 4,
    "network": "unet",
    "features": [16, 16, 32, 64, 128, 16],
}


class AugmentOrder(BaseModel):
    """Everything that the result follows from.

    Attributes:
        data: labelled images.
        count: synthetic images that are kept.
        seed: of all that is drawn and trained.
        model: a generator of the repository; None trains one.
        judge_model: a segmentation model that judges; None trains one.
        threshold: Dice from which an image is kept; None follows from the judge's held-out scores.
        train_segmenter: whether segmenters are trained with and without the synthetic images.
        segmenter_seeds: how many of each.
        test: labelled images to compare them on; None sets a fifth of the data aside.
        tolerance, symmetries: of the new label maps' shapes.
        generator, judge, segmenter: recipe values that are not the usual ones.
        command: as typed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: str
    count: int = Field(ge=1)
    seed: int = Field(default=0, ge=0)
    model: str | None = None
    judge_model: str | None = None
    threshold: float | None = Field(default=None, ge=0, le=1)
    train_segmenter: bool = False
    segmenter_seeds: int = Field(default=3, ge=1)
    test: str | None = None
    tolerance: float = Field(default=TOLERANCE, ge=0)
    symmetries: Symmetries = "auto"
    generator: Mapping[str, Any] = Field(default_factory=dict)
    judge: Mapping[str, Any] = Field(default_factory=dict)
    segmenter: Mapping[str, Any] = Field(default_factory=dict)
    command: str = ""

    @property
    def test_apart(self) -> bool:
        """Whether a part of the data is set aside for the comparison."""
        return self.train_segmenter and self.test is None


class Workshop:
    """The output folder, and what is done of it.

    ``images/``, ``labels/``, ``manifest.json``, ``report.html`` and ``sheet.png`` are the result,
    ``models/`` the repository of what was trained, ``.work/`` all else. Each stage ends with a file
    ``.work/done/STAGE.json`` that holds what later stages need of it; a run that is started again
    takes up the first stage without one.
    """

    def __init__(self, out: Path) -> None:
        self.out, self.work, self.models = out, out / ".work", out / "models"

    def open(self, order: AugmentOrder) -> bool:
        """Begin, or go on; whether there is something to go on with.

        Raises:
            InvalidParameter: the folder holds something else, or followed another order.
        """
        file = self.work / "order.json"
        asked = order.model_dump(mode="json")
        if not file.exists():
            if self.out.exists() and any(p for p in self.out.iterdir() if p != self.work):
                raise InvalidParameter(f"--out {self.out}: is not empty; name another folder")
            write_text(file, json.dumps(asked, indent=2) + "\n")
            return False
        before = json.loads(file.read_text(encoding="utf-8"))
        keys = [k for k in asked if k != "command" and before.get(k) != asked[k]]
        if keys:
            changed = "; ".join(f"{k}: {before.get(k)} -> {asked[k]}" for k in keys)
            raise InvalidParameter(
                f"--out {self.out}: was begun with other values ({changed}); give the same ones to "
                "go on, or name another folder"
            )
        self._tidy()
        return True

    def _tidy(self) -> None:
        """Remove what a killed process was writing: files and models under names of no meaning."""
        for folder in (self.out, self.out / "images", self.out / "labels"):
            for draft in folder.glob(".*.*.????????????????"):
                draft.unlink()
        for draft in self.models.glob("*/.draft-*"):
            shutil.rmtree(draft)

    def once(self, stage: str, work: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """The result of a stage: as it was kept, or by doing it now."""
        file = self.work / "done" / f"{stage}.json"
        if not file.exists():
            write_text(file, json.dumps(work(), indent=2) + "\n")
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return found
