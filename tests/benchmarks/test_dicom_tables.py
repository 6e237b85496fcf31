"""The page of third-party DICOM files shows the results, in the words of today's messages."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from benchmarks.dicom.judging import Verdict
from benchmarks.dicom.tables import summary, written

ROOT = Path(__file__).parents[2]
RESULTS = json.loads((ROOT / "benchmarks/results/dicom.json").read_text())
#: Reasons of the tables for which nothing is refused any more.
GONE = {"only grey and RGB pictures can be read, not palettes"}


def messages() -> Iterator[str]:
    """Every text of the image readers, with N for what is filled in and for numbers."""
    for path in (ROOT / "caps_med/images").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            told = [one.value if isinstance(one, ast.Constant) else "N" for one in parts]
            if isinstance(node, (ast.JoinedStr, ast.Constant)) and isinstance(told[0], str):
                yield re.sub(r"\b\d+\b", "N", "".join(map(str, told)))


def test_the_page_shows_the_results() -> None:
    page = (ROOT / "docs/results/dicom.md").read_text()
    assert written(page, RESULTS) == page


def test_the_reasons_are_those_of_the_messages() -> None:
    known = list(messages())
    reasons = {
        re.sub(r" \[read by .*\]$", "", one).removeprefix("DICOM: ")
        for part in RESULTS.values()
        for one in part["refusals"]
    }
    assert len(reasons) > 10
    for reason in reasons - GONE:
        assert any(reason in message for message in known), reason


def test_a_reason_has_no_names_no_numbers_and_no_advice() -> None:
    told = {
        "a/1.dcm: DICOM: a mosaic (slices: side by side) is not read: use dcm2niix":
            "DICOM: a mosaic (slices: side by side) is not read",
        "DICOM: the header describes 12 bytes of pixels, there are 10":
            "DICOM: the header describes N bytes of pixels, there are N",
        "the content is of no known format (allowed: png, npy): convert it first":
            "the content is of no known format",
    }  # fmt: skip
    for reason, short in told.items():
        found = summary({"a": [Verdict("refused", reason, "pydicom")]})
        assert found["refusals"] == {f"{short} [read by pydicom]": 1}
