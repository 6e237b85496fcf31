"""Errors and warnings of pydicom and its decoders, kept inside this library."""

from __future__ import annotations

import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from pydicom.config import disable_value_validation

from caps_med.errors import CapsMedError, InputTooLarge, InvalidInput

#: Warnings are silenced for the whole process: one at a time.
_ONE = threading.Lock()
_LOG = logging.getLogger("pydicom")


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress pydicom's warnings, which quote values of the file, also in its log."""
    with _ONE, warnings.catch_warnings(), disable_value_validation():
        warnings.simplefilter("ignore")
        logged, _LOG.disabled = _LOG.disabled, True
        try:
            yield
        finally:
            _LOG.disabled = logged


@contextmanager
def parsing(what: str, advice: str) -> Iterator[None]:
    """Turn whatever a parser or decoder raises into one of this library's errors.

    Args:
        what: named at the beginning of the message.
        advice: how to convert the file to one that can be read.

    Raises:
        InputTooLarge: there is too little memory.
        InvalidInput: anything else that is not one of this library's errors.
    """
    try:
        with quiet():
            yield
    except CapsMedError:
        raise
    except MemoryError as error:
        raise InputTooLarge(f"{what}: too large to decode: crop it") from error
    except Exception as error:  # pydicom and its decoders raise nearly every type
        raise InvalidInput(
            f"{what}: the file is cut or broken, or a variant that is not read: {advice}"
        ) from error
