"""The outcome of each case: ``cases.json`` for programs, ``cases.csv`` for spreadsheets."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from caps_med.batch.inputs import Skipped
from caps_med.batch.places import write_text
from caps_med.inference import LabelMeasures
from caps_med.spreadsheet import csv_text

if TYPE_CHECKING:
    from caps_med.batch.places import Place

JSON_NAME, CSV_NAME = "cases.json", "cases.csv"
_MEASURES = ("volume", "fraction", "objects", "confidence")


@dataclass(frozen=True)
class CaseResult:
    """The outcome of one case.

    Attributes:
        case: its name.
        input: the file or folder.
        fingerprint: of the input's files; shows whether they have been replaced since.
        outputs: file relative to the output folder -> size in bytes.
        error: why it failed; None if it succeeded.
        seconds: from reading to writing.
        warnings: from the reader and the model.
        unit: of the measures' volumes, ``mm3`` or ``pixels``; None if nothing is measured.
        labels: the measures of each label.
        values: more columns of the table, such as the predicted class and all probabilities.
    """

    case: str
    input: str
    fingerprint: str = ""
    outputs: Mapping[str, int] = field(default_factory=dict)
    error: str | None = None
    seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    unit: str | None = None
    labels: tuple[LabelMeasures, ...] = ()
    values: Mapping[str, str | float] = field(default_factory=dict)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> CaseResult:
        """From an entry of ``cases.json``."""
        labels = tuple(LabelMeasures(**each) for each in values["labels"])
        return cls(**{**values, "labels": labels, "warnings": tuple(values["warnings"])})

    def as_dict(self) -> dict[str, Any]:
        """The entry of ``cases.json``."""
        return {**asdict(self), "labels": [one.as_dict() for one in self.labels]}

    def is_complete(self, size_of: Callable[[str], int | None]) -> bool:
        """Whether it succeeded, and all its outputs still exist as they were written.

        Args:
            size_of: the size of a file in the output folder, None if it does not exist.
        """
        return self.error is None and all(
            size_of(name) == size for name, size in self.outputs.items()
        )


def write_tables(
    folder: Place,
    made_by: Mapping[str, Any],
    results: Sequence[CaseResult],
    skipped: Sequence[Skipped],
) -> None:
    """Write both tables; each appears whole.

    Args:
        made_by: what determines the outputs: command, model, weights and settings.
    """
    document = {
        **made_by,
        "cases": [result.as_dict() for result in results],
        "skipped": [asdict(one) for one in skipped],
    }
    write_text(folder / JSON_NAME, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    write_text(folder / CSV_NAME, _csv(made_by, results))


def read_table(folder: Place, made_by: Mapping[str, Any]) -> dict[str, CaseResult]:
    """Case name -> result of an earlier run, if made by the same model and settings."""
    try:
        document = json.loads((folder / JSON_NAME).read_text(encoding="utf-8"))
        if any(document.get(key) != value for key, value in made_by.items()):
            return {}
        results = [CaseResult.from_dict(each) for each in document["cases"]]
    except (OSError, ValueError, TypeError, KeyError, AttributeError):  # none, or not ours
        return {}
    return {result.case: result for result in results}


def _csv(made_by: Mapping[str, Any], results: Sequence[CaseResult]) -> str:
    """One line per case; the measures of each label have columns like ``grey matter volume``."""
    names = dict.fromkeys(one.name for result in results for one in result.labels)
    columns = [f"{name} {measure}" for name in names for measure in _MEASURES]
    columns += dict.fromkeys(name for result in results for name in result.values)
    heading = ["case", "input", "outputs", "model", "version", "seconds", "warnings", "error"]
    rows: list[dict[str, Any]] = []
    for result in results:
        row: dict[str, Any] = {
            "case": result.case,
            "input": result.input,
            "outputs": "; ".join(result.outputs),
            "model": made_by["model"],
            "version": made_by["version"],
            "seconds": result.seconds,
            "warnings": "; ".join(result.warnings),
            "error": result.error,
        }
        if names:
            row["unit"] = result.unit
        row |= result.values
        for one in result.labels:
            row |= {f"{one.name} {measure}": one.as_dict()[measure] for measure in _MEASURES}
        rows.append(row)
    return csv_text([*heading, *(["unit"] if names else []), *columns], rows)
