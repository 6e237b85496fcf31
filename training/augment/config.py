"""The configuration of a run, and the folder that holds its result and state."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from caps_med.bundles.drafts import remove_left
from caps_med.drafts import remove_drafts
from caps_med.errors import InvalidParameter
from caps_med.wording import listed
from training.atomic import write_text
from training.engine.recipe import Seed
from training.labelmaps.shapes import TOLERANCE
from training.labelmaps.symmetry import Symmetries

#: Recipe values other than the planned ones: batch sizes that do not depend on the free memory,
#: and segmenters small enough to train several.
GENERATOR: Mapping[str, Any] = {"batch_size": 4}
SEGMENTER: Mapping[str, Any] = {
    "epochs": 8,
    "steps": 50,
    "batch_size": 4,
    "network": "unet",
    "features": [16, 16, 32, 64, 128, 16],
}
#: Cases that a message names.
NAMED = 3
#: The stage that looks at the data. All later ones are based on them.
CHECK = "check"


class AugmentConfig(BaseModel):
    """Everything that determines the result.

    Attributes:
        data: the labelled images: a folder or a list.
        count: synthetic images to keep.
        seed: of sampling and training.
        model: the generator, a model of the repository; None trains one.
        judge_model: the judge, a segmentation model of the repository; None trains one.
        threshold: lowest Dice of a kept image; None derives it from the judge's held-out scores.
        train_segmenter: whether to measure the benefit: train segmenters with and without the
            synthetic images.
        segmenter_seeds: trainings of each.
        test: labelled images to test the segmenters on; None sets a fifth of the data aside.
        tolerance, symmetries: of the new label maps; see `training.labelmaps.deform.Geometries`.
        generator, judge, segmenter: overrides of their recipes.
        command: the command line, for the records.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: str
    count: int = Field(ge=1)
    seed: Seed = 0
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
    def holds_out_test(self) -> bool:
        """Whether a part of the data is set aside as test images."""
        return self.train_segmenter and self.test is None


class AugmentFolder:
    """The output folder of a run.

    ``images/``, ``labels/``, ``manifest.json``, ``report.html`` and ``sheet.png`` are the result,
    ``models/`` is the repository of the trained models, ``.work/`` holds everything else. A
    finished stage leaves its result in ``.work/done/STAGE.json``; a restarted run continues with
    the first stage that has none.
    """

    def __init__(self, out: Path) -> None:
        self.out, self.work, self.models = out, out / ".work", out / "models"
        self.runs = self.work / "runs"

    def open(self, config: AugmentConfig) -> bool:
        """Start or continue a run; returns whether there was one to continue.

        Raises:
            InvalidParameter: the folder holds other files, or a run of another configuration.
        """
        file = self.work / "order.json"
        wanted = config.model_dump(mode="json")
        if not self._begun():
            if self.out.exists() and any(p for p in self.out.iterdir() if p != self.work):
                raise InvalidParameter(
                    f"--out {self.out}: the folder is not empty; name another folder"
                )
            shutil.rmtree(self.work / "done", ignore_errors=True)
            write_text(file, json.dumps(wanted, indent=2) + "\n")
            return False
        before = json.loads(file.read_text(encoding="utf-8"))
        keys = [k for k in wanted if k != "command" and before.get(k) != wanted[k]]
        if keys:
            changed = "; ".join(f"{k}: {before.get(k)} -> {wanted[k]}" for k in keys)
            raise InvalidParameter(
                f"--out {self.out}: was started with other values ({changed}); give the same "
                "values to continue, or name another folder"
            )
        self._tidy()
        return True

    def _begun(self) -> bool:
        """Whether data and values have been accepted: before, others may be given instead."""
        return any(file.stem != CHECK for file in (self.work / "done").glob("*.json"))

    def require_cases(self, cases: Mapping[str, Mapping[str, str]]) -> None:
        """Refuse to go on with other data: what was trained on could be tested on.

        Args:
            cases: part of the data -> case -> its group.

        Raises:
            InvalidParameter: they are not those that the run began with.
        """
        before = self.once("cases", lambda: cases)
        if before == cases:
            return
        was, now = ({name for part in each.values() for name in part} for each in (before, cases))
        changes = [
            f"{what} {listed(sorted(names), NAMED)}"
            for what, names in (("added:", now - was), ("missing:", was - now))
            if names
        ]
        raise InvalidParameter(
            f"--out {self.out}: the data have changed since the run began "
            f"({'; '.join(changes) or 'their groups or parts differ'}), so images that were "
            "trained on could be tested on: restore the data, or name another folder"
        )

    def _tidy(self) -> None:
        """Delete temporary files and unfinished models of a killed process."""
        for folder in (self.out, self.out / "images", self.out / "labels"):
            remove_drafts(folder)
        for home in self.models.glob("*/"):
            remove_left(home, age=0)  # nobody else writes here: the folder is locked

    def once(self, stage: str, work: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """The saved result of a stage; runs `work` if there is none."""
        file = self.work / "done" / f"{stage}.json"
        if not file.exists():
            write_text(file, json.dumps(work(), indent=2) + "\n")
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return found
