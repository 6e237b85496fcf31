"""Data sets of classified images: opened by path, and checked only once per process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from caps_med.errors import CapsMedError, InvalidInput
from caps_med.images import LabelCode, MedicalImage
from caps_med.wording import as_text
from training.data.check.check import quiet_libraries
from training.data.check.findings import Finding
from training.data.classified.check import ClassCard, ClassReport, check
from training.data.classified.images import ClassifiedImage, ClassifiedImages
from training.data.classified.layouts import LAYOUTS, SUPPORTED, Layout, discover, hint
from training.data.classified.reading import read
from training.data.opened import Opened
from training.data.unsupported import UNSUPPORTED, unsupported


@dataclass(frozen=True)
class ClassifiedDataset(ClassifiedImages):
    """Images and their classes; created by `open_classified`.

    Attributes:
        data: the path, as given.
    """

    data: str = ""

    @cached_property
    def _report(self) -> ClassReport:
        return check(self)

    @property
    def codes(self) -> Mapping[int, LabelCode]:
        """None: classes are no segments."""
        return {}

    @property
    def recipe_values(self) -> dict[str, str]:
        """See `TrainingData`."""
        return {"data": as_text(self.data)}

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All problems, errors first; first access reads every file."""
        return self._report.findings

    @property
    def trainable(self) -> bool:
        """Whether there are no errors."""
        return all(found.severity != "error" for found in self.findings)

    @property
    def card(self) -> ClassCard | None:
        """Statistics; None if no image is readable."""
        return self._report.card

    @property
    def sheet(self) -> MedicalImage | None:
        """A picture of some images of each class; None if no image is readable."""
        return self._report.sheet

    def read(self, image: ClassifiedImage) -> MedicalImage:
        """One image ``[C, *S]``.

        Raises:
            CapsMedError: it cannot be read.
        """
        return read(image.image)

    def targets(self, images: Sequence[ClassifiedImage]) -> NDArray[np.uint8]:
        """``[N, J]``, 1 for the classes of each of these images."""
        targets = np.zeros((len(images), len(self.classes)), np.uint8)
        for row, image in zip(targets, images, strict=True):
            row[list(image.classes)] = 1
        return targets


_opened: Opened[ClassifiedDataset] = Opened(ClassifiedImages)


def find_classified(path: Path, layouts: Sequence[Layout] = LAYOUTS) -> ClassifiedDataset | None:
    """The classified images at a path, checked when first needed; None if no layout applies.

    Opening it again in the same process returns the same object while its files are unchanged.
    """
    try:
        with quiet_libraries():
            found = discover(path, layouts)
    except (CapsMedError, OSError) as error:
        found = ClassifiedImages(path.name, path, "unreadable", (), (), error=str(error))
    if found is None:
        return None
    known = vars(found)
    return _opened.same_or(
        str(path.absolute()),
        found,
        lambda: ClassifiedDataset(**known, data=str(path)),
    )


def open_classified(data: str | Path) -> ClassifiedDataset:
    """Open classified images by path; for the layouts see `training.data.classified.layouts`.

    What has no supported layout can be opened too: this is reported as a finding.

    Raises:
        InvalidInput: the path does not exist.
    """
    path = Path(data)
    if not path.exists():
        raise InvalidInput(f"{data}: no such folder, list or archive of classified images")
    return find_classified(path) or nothing_found(path, SUPPORTED)


def nothing_found(path: Path, *supported: str, hinted: str = "") -> ClassifiedDataset:
    """A data set without images, whose error says what is there and what is supported.

    Args:
        supported: see `unsupported`.
        hinted: what is amiss if the data are of another kind; a sentence.
    """
    error = unsupported(path, *supported, hint=f"{hinted} {hint(path)}".strip())
    return ClassifiedDataset(path.name, path, UNSUPPORTED, (), (), error=error, data=str(path))
