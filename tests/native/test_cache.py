"""The cache of compiled kernels never makes routing fail."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba
import pytest

from caps_med.native import cache
from caps_med.native.cache import cache_on_disk


def compiled() -> Any:  # noqa: ANN401 - a dispatcher of Numba, which has no types
    @numba.njit  # type: ignore[untyped-decorator]
    def double(number: int) -> int:
        return 2 * number

    cache_on_disk(double)
    return double


@pytest.fixture(autouse=True)
def _fresh_warnings() -> Iterator[None]:
    cache._warn.cache_clear()
    yield
    cache._warn.cache_clear()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Numba itself finds no folder; temporary files have `tmp_path`."""
    own = (cache._TemporaryCacheLocator,)
    monkeypatch.setattr(cache._Implementation, "_locator_classes", own)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_what_is_cached_is_loaded(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert compiled()(21) == 42
    again = compiled()
    assert again(21) == 42
    assert sum(again.stats.cache_hits.values()) == 1
    assert not caplog.records


@pytest.mark.parametrize("ending", ["nbi", "nbc"])
@pytest.mark.parametrize("content", [b"", b"damaged"])
def test_a_damaged_cache_is_compiled_over(
    ending: str, content: bytes, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert compiled()(21) == 42
    (file,) = folder.rglob(f"*.{ending}")
    file.write_bytes(content)
    assert compiled()(21) == 42
    assert "cannot be read" in caplog.text


def test_a_cache_that_cannot_be_written_is_done_without(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert compiled()(21) == 42
    (index,) = folder.rglob("*.nbi")
    index.unlink()
    index.mkdir()
    function = compiled()
    assert [function(21), function(21)] == [42, 42]
    assert "cannot be cached (Is a directory)" in caplog.text


def test_temporary_files_are_the_next_place(
    no_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert compiled()(21) == 42
    (index,) = no_folder.rglob("*.nbi")
    assert index.relative_to(no_folder).parts[0] == f"caps-med-numba-{os.getuid()}"
    assert (no_folder / index.relative_to(no_folder).parts[0]).stat().st_mode & 0o777 == 0o700
    assert not caplog.records


def test_a_folder_that_others_may_write_is_not_used(
    no_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Numba unpickles what it finds there."""
    home = no_folder / f"caps-med-numba-{os.getuid()}"
    home.mkdir()
    home.chmod(0o777)
    assert compiled()(21) == 42
    assert not any(home.iterdir())
    (record,) = caplog.records
    assert record.getMessage().startswith("there is no writable folder for compiled routing kernel")
