"""Compiled kernels on disk, wherever they can be written, without ever causing a failure.

Numba caches in ``NUMBA_CACHE_DIR``, beside the source file or in the user's cache folder, and
raises an error if it can write to none of them, as in a container with a read-only file system.
Here the folder for temporary files is tried next; without any, kernels are compiled at each start.
With a damaged cache or a full disk, kernels are just compiled again.
"""

from __future__ import annotations

import logging
import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from numba.core.caching import CompileResultCacheImpl, FunctionCache, UserWideCacheLocator
from numba.core.runtime import rtsys

log = logging.getLogger(__name__)


class _TemporaryCacheLocator(UserWideCacheLocator):
    """A private folder among the temporary files: whoever writes there can run code here."""

    def __init__(self, py_func: Callable[..., Any], py_file: str) -> None:
        super().__init__(py_func, py_file)
        user = os.getuid() if hasattr(os, "getuid") else 0
        self._home = Path(tempfile.gettempdir(), f"caps-med-numba-{user}")
        self._cache_path = str(self._home / self.get_suitable_cache_subpath(py_file))

    @classmethod
    def from_function(
        cls, py_func: Callable[..., Any], py_file: str
    ) -> _TemporaryCacheLocator | None:
        """A locator, or None if there is no writable folder for temporary files."""
        with suppress(OSError):
            return cast("_TemporaryCacheLocator | None", super().from_function(py_func, py_file))
        return None

    def ensure_cache_path(self) -> None:
        """Create the folder.

        Raises:
            OSError: it cannot be written, or others may write to it.
        """
        with suppress(FileExistsError):
            self._home.mkdir(mode=0o700)
        status = self._home.lstat()
        theirs = hasattr(os, "getuid") and status.st_uid != os.getuid()
        if theirs or not stat.S_ISDIR(status.st_mode) or status.st_mode & 0o022:
            raise PermissionError(f"{self._home} is not a folder of this user alone")
        super().ensure_cache_path()


class _Implementation(CompileResultCacheImpl):
    _locator_classes = (*CompileResultCacheImpl._locator_classes, _TemporaryCacheLocator)


class _ForgivingCache(FunctionCache):
    """Numba's cache of one function; any exception means that nothing is in the cache."""

    _impl_class = _Implementation

    def load_overload(self, sig: Any, target_context: Any) -> Any:  # noqa: ANN401 - Numba's own
        """The compiled function, or None.

        Numba's own method first imports everything it can compile, which takes longer than all the
        rest; compiled functions only need its runtime.
        """
        try:
            rtsys.initialize(target_context)
            with self._guard_against_spurious_io_errors():
                return self._load_overload(sig, target_context)
        except Exception as error:
            _warn(f"the cache of compiled routing kernels cannot be read ({_said(error)})")
            return None

    def save_overload(self, sig: Any, data: Any) -> None:  # noqa: ANN401
        """Save the compiled function if possible."""
        try:
            super().save_overload(sig, data)
        except Exception as error:
            _warn(f"compiled routing kernels cannot be cached ({_said(error)})")


def cache_on_disk(compiled: Any) -> None:  # noqa: ANN401 - a dispatcher of Numba, which has no types
    """Cache Numba's compiled code for this function, if there is a folder for it."""
    try:
        compiled._cache = _ForgivingCache(compiled.py_func)
    except RuntimeError:  # no folder
        _warn("there is no writable folder for compiled routing kernels")


def _said(error: Exception) -> str:
    return getattr(error, "strerror", None) or type(error).__name__


@lru_cache  # the kernels of a process all meet the same trouble
def _warn(what: str) -> None:
    log.warning("%s: each start compiles for some seconds; set NUMBA_CACHE_DIR", what)
