"""What the key of the current request may do, for checks that depend on more than its path."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import ContextVar

from api.access.keys import Key
from api.problems import FORBIDDEN, Refusal

_key: ContextVar[Key | None] = ContextVar("key", default=None)
_stays: ContextVar[Callable[[], Awaitable[bool]] | None] = ContextVar("stays", default=None)


def note_key(key: Key | None, stays: Callable[[], Awaitable[bool]] | None = None) -> None:
    """Remember the key of this request; None if none is needed.

    Args:
        stays: whether the request would still be let in.
    """
    _key.set(key)
    _stays.set(stays)


async def still_allowed() -> bool:
    """Whether the key of this request, whose answer takes long, has not been revoked meanwhile."""
    stays = _stays.get()
    return stays is None or await stays()


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
