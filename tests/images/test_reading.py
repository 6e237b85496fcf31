"""Reading a file within a bound."""

from __future__ import annotations

import io
import time

import pytest

from caps_med.images.reading import read_at_most

_MIB = 2**20


@pytest.mark.parametrize("size", [0, 1, _MIB - 1, _MIB, _MIB + 1, 3 * _MIB])
@pytest.mark.parametrize("most", [0, 1, _MIB, 2 * _MIB, 2 * _MIB + 1, 4 * _MIB])
def test_no_more_than_that(size: int, most: int) -> None:
    content = (bytes(range(251)) * (size // 251 + 1))[:size]
    assert read_at_most(io.BytesIO(content), most) == content[:most]


def test_a_large_file_is_not_copied_for_each_piece() -> None:
    """As of a zip, whose files come in pieces: 300 MB took a minute and a half."""
    content = bytes(160 * _MIB)
    start = time.perf_counter()
    whole = b"".join([content[at : at + _MIB] for at in range(0, len(content), _MIB)])
    once = time.perf_counter() - start
    start = time.perf_counter()
    assert read_at_most(io.BytesIO(content), len(content)) == whole
    assert time.perf_counter() - start < 1 + 10 * once
