"""Verdicts as tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypedDict

from benchmarks.dicom.judging import Verdict

RESULTS = ("right", "refused", "no picture", "wrong", "alone")
#: The text between these lines of the page is replaced.
MARKS = "<!-- tables -->", "<!-- end of tables -->"
_HEAD = "| collection | " + " | ".join(RESULTS) + " |\n|---|" + "---:|" * len(RESULTS)


class Summary(TypedDict):
    """What is kept of many verdicts.

    Keys:
        collections: collection -> result -> how many.
        refusals: reason, and which references read it -> how many.
        chosen: how many of the right ones hold several volumes, of which one is chosen.
    """

    collections: dict[str, dict[str, int]]
    refusals: dict[str, int]
    chosen: int


def summary(verdicts: Mapping[str, Sequence[Verdict]]) -> Summary:
    """Counts of the verdicts by collection, and of the reasons of refusal."""
    refusals = Counter(
        f"{_general(one.reason)} [read by {one.references or 'neither'}]"
        for group in verdicts.values()
        for one in group
        if one.result == "refused"
    )
    return {
        "collections": {
            name: {result: sum(one.result == result for one in group) for result in RESULTS}
            for name, group in verdicts.items()
        },
        "refusals": dict(refusals.most_common()),
        "chosen": sum(
            one.volumes > 0 and one.result == "right"
            for group in verdicts.values()
            for one in group
        ),
    }


def tables(found: Mapping[str, Summary]) -> str:
    """The tables of files and of series, in Markdown."""
    return "\n".join(line for what, one in found.items() for line in _lines(what, one))


def _lines(what: str, found: Summary) -> Iterator[str]:
    yield f"## {what.capitalize()}\n"
    yield _HEAD
    totals: Counter[str] = Counter()
    for name, counts in found["collections"].items():
        yield _row(name, counts)
        totals.update(counts)
    yield _row("**all**", totals)
    pictures = totals.total() - totals["no picture"]
    yield f"\n{totals['right']} of {pictures} with pictures are read correctly; {found['chosen']}"
    yield "of these hold several volumes, one of which is chosen.\n"
    yield "| reason of refusal | |\n|---|---:|"
    yield from (f"| {reason} | {count} |" for reason, count in found["refusals"].items())
    yield ""


def _row(name: str, counts: Mapping[str, int]) -> str:
    return f"| {name} | " + " | ".join(str(counts.get(result, 0)) for result in RESULTS) + " |"


#: Where the advice of a message begins: after a colon that is neither that of its first word
#: (``DICOM: ``) nor in brackets, or with the list of the formats.
_ADVICE = re.compile(r"(?<=.{6}): (?![^(]*\))| \(allowed")


def _general(reason: str) -> str:
    """A reason without the names and numbers of one file, and without the advice after it."""
    whole = re.sub(r"^[^:]+: (?=DICOM:)", "", reason)
    return re.sub(r"\b\d+(\.\d+)*\b", "N", _ADVICE.split(whole)[0]).replace("|", "/")


def written(text: str, found: Mapping[str, Summary]) -> str:
    """A page's text with these tables between its marks."""
    before, _, rest = text.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    return f"{before}{MARKS[0]}\n\n{tables(found)}\n{MARKS[1]}{after}"
