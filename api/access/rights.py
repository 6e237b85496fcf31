"""What the key of the current request may do, for checks that depend on more than its path."""

from __future__ import annotations

from contextvars import ContextVar

from api.access.keys import Key
from api.problems import FORBIDDEN, Refusal

_key: ContextVar[Key | None] = ContextVar("key", default=None)


def note_key(key: Key | None) -> None:
    """Remember the key of this request; None if none is needed."""
    _key.set(key)


def require_scope(scope: str) -> None:
    """Check that the request may do this; work that belongs to none may.

    Raises:
        Refusal: its key lacks the scope (403).
    """
    key = _key.get()
    if key is not None and not key.may(scope):
        raise Refusal(
            FORBIDDEN,
            f"this request needs a key with the scope {scope!r}, which yours does not have",
        )
