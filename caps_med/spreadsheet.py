"""Tables as CSV that spreadsheets open as plain data, whatever the texts begin with."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

#: What a formula begins with (CWE-1236; OWASP, "CSV Injection").
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_text(columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    r"""A header row and the rows, as CSV (RFC 4180).

    Names of cases and classes come from files and their headers: any that a spreadsheet would run
    as a formula, in a cell or a heading, is marked as text with an apostrophe.

    >>> csv_text(["case", "=1+1"], [{"case": "@x", "=1+1": -1.5}])
    "case,'=1+1\r\n'@x,-1.5\r\n"

    Args:
        columns: the headings; keys of the rows.
        rows: a missing value is an empty cell.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow([_inert(column) for column in columns])
    for row in rows:
        writer.writerow([_inert(row.get(column)) for column in columns])
    return text.getvalue()


def _inert(value: object) -> object:
    formula = isinstance(value, str) and value.startswith(_FORMULA)
    return f"'{value}" if formula else value
