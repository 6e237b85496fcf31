"""Numbers and sizes in the sentences that people read."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

#: Pattern of a text that looks like what it is: without line breaks and other control characters,
#: and those of Unicode that cannot be seen or turn the direction of what follows.
ONE_LINE = (
    r"^[^\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]*$"
)


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun: "1 case", "2 cases"; `plural` if it is not the noun with an s.

    >>> counted(1, "warning"), counted(0, "warning"), counted(1200, "class", "classes")
    ('1 warning', '0 warnings', '1,200 classes')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def listed(names: Sequence[str], most: int) -> str:
    """Names separated by commas; if there are more than `most`, with the number of the others.

    >>> listed(["a", "b"], 2), listed(["a", "b", "c"], 2)
    ('a, b', 'a, b and 1 more')
    """
    left = len(names) - most
    return ", ".join(names[:most]) + (f" and {left} more" if left > 0 else "")


def as_text(name: str) -> str:
    r"""A name of a file as it can be written into tables: bytes that are no text with an escape.

    >>> print(as_text("n\udce9"))  # a byte that is no text in UTF-8, as from an old archive
    n\udce9
    """
    return name.encode(errors="backslashreplace").decode()


def shell_command(words: Iterable[str]) -> str:
    r"""Words as the command that they are in a shell, as text: bytes that are none, as its escapes.

    >>> print(shell_command(["caps-med", "train", "--data", "my n\udce9"]))
    caps-med train --data $'my n\xe9'
    """
    return " ".join(map(_shell_word, words))


def _shell_word(word: str) -> str:
    if word == as_text(word):
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{escaped.encode(errors='surrogateescape').decode(errors='backslashreplace')}'"


def choose_one(count: int, what: str) -> str:
    """How to choose one of several volumes or pictures in a file, in each interface.

    >>> choose_one(3, "page")
    'choose one page of 0 to 2 with --volume N (Python: read_image(..., index=N), HTTP: ?volume=N)'
    """
    return (
        f"choose one {what} of 0 to {count - 1} with --volume N (Python: read_image(..., index=N), "
        "HTTP: ?volume=N)"
    )


def size_text(sizes: Iterable[float], unit: str) -> str:
    """Array-order sizes (slice, row, column) in the usual notation, x first.

    >>> size_text((189, 233, 197), "voxels")
    '197 × 233 × 189 voxels'
    """
    return " × ".join(f"{size:g}" for size in reversed([*sizes])) + f" {unit}"


def measure_text(value: float) -> str:
    """A volume or an area: whole from 100 on, with three significant digits below, all written out.

    >>> measure_text(1234.6), measure_text(12.345), measure_text(64), measure_text(9.8e-07)
    ('1235', '12.3', '64', '0.00000098')
    """
    return f"{value:.0f}" if value >= 100 else f"{Decimal(f'{value:.3g}'):f}"


def reason(error: Mapping[str, Any]) -> str:
    """Pydantic's message for one error, without the name of the exception that a validator raised.

    >>> reason({"msg": "Value error, must be even"})
    'must be even'
    >>> reason({"msg": "String should match", "ctx": {"pattern": ONE_LINE}})
    'must be one line, without control characters and others that cannot be seen'
    """
    if error.get("ctx", {}).get("pattern") == ONE_LINE:
        return "must be one line, without control characters and others that cannot be seen"
    return str(error["msg"]).removeprefix("Value error, ")
