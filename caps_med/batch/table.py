"""What came of each case: ``cases.json`` for programs, ``cases.csv`` for spreadsheets."""

from __future__ import annotations

import csv
import io
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from caps_med.batch.inputs import Skipped
from caps_med.inference import LabelMeasures

JSON_NAME, CSV_NAME = "cases.json", "cases.csv"
_MEASURES = ("volume", "fraction", "objects", "confidence")


@dataclass(frozen=True)
class CaseResult:
    """What came of one case.

    Attributes:
        case: its name.
        input: the file or folder.
        fingerprint: of the input's files; tells whether they were replaced since.
        outputs: file below the output folder -> size in bytes.
        error: why it failed; None if it is done.
        seconds: from reading to writing.
        warnings: of the reader and the model.
        unit: of the measures' volumes, ``mm3`` or ``pixels``; None where nothing is measured.
        labels: the measures of each label.
        values: more columns of the table, such as a class and the probability of each.
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

    def is_complete(self, folder: Path) -> bool:
        """Whether it is done, and all its outputs are in the folder as they were written."""
        return self.error is None and all(
            (folder / name).is_file() and (folder / name).stat().st_size == size
            for name, size in self.outputs.items()
        )


def write_tables(
    folder: Path,
    made_by: Mapping[str, Any],
    results: Sequence[CaseResult],
    skipped: Sequence[Skipped],
) -> None:
    """Write both tables; each appears whole.

    Args:
        made_by: what decides the outputs: command, model, weights and settings.
    """
    document = {
        **made_by,
        "cases": [_as_dict(result) for result in results],
        "skipped": [asdict(one) for one in skipped],
    }
    write_text(folder / JSON_NAME, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    write_text(folder / CSV_NAME, _csv(made_by, results))


def read_table(folder: Path, made_by: Mapping[str, Any]) -> dict[str, CaseResult]:
    """Case name -> result of an earlier run, if that was made by the same model and settings."""
    try:
        document = json.loads((folder / JSON_NAME).read_text(encoding="utf-8"))
        if any(document.get(key) != value for key, value in made_by.items()):
            return {}
        results = [CaseResult.from_dict(each) for each in document["cases"]]
    except (OSError, ValueError, TypeError, KeyError):  # none, or not ours
        return {}
    return {result.case: result for result in results}


def _as_dict(result: CaseResult) -> dict[str, Any]:
    return {**asdict(result), "labels": [one.as_dict() for one in result.labels]}


def _csv(made_by: Mapping[str, Any], results: Sequence[CaseResult]) -> str:
    """One line a case; the measures of each label have columns like ``grey matter volume``."""
    names = dict.fromkeys(one.name for result in results for one in result.labels)
    columns = [f"{name} {measure}" for name in names for measure in _MEASURES]
    columns += dict.fromkeys(name for result in results for name in result.values)
    heading = ["case", "input", "outputs", "model", "version", "seconds", "warnings", "error"]
    file = io.StringIO()
    writer = csv.DictWriter(file, [*heading, *(["unit"] if names else []), *columns])
    writer.writeheader()
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
        writer.writerow({key: _inert(value) for key, value in row.items()})
    return file.getvalue()


def _inert(value: object) -> object:
    """Text that a spreadsheet would take for a formula, marked as text (CWE-1236)."""
    formula = isinstance(value, str) and value.startswith(("=", "+", "-", "@"))
    return f"'{value}" if formula else value


def write_text(path: Path, text: str) -> None:
    """Write a file that appears whole or not at all."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        draft.write_text(text, encoding="utf-8", newline="")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
