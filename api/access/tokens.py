"""Temporary tokens in place of a key, for programs that log in with a name and a password."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable

from api.access.keys import Key, StoredKeys

_TOKEN = re.compile(r"capst_(?P<id>[0-9a-f]{12})_(?P<expires>[0-9]{1,12})_(?P<mac>[0-9a-f]{64})")


class Tokens:
    """Issues and checks tokens. None is stored: each is signed with a secret of this process.

    A token ends with its time, with the process, and when its key is revoked.

    Args:
        seconds: for which a token is valid.
        clock: seconds since 1970.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.time) -> None:
        self.seconds, self._clock = seconds, clock
        self._secret = secrets.token_bytes(32)

    def issue(self, key: Key) -> str:
        """A token for a key that was presented."""
        expires = int(self._clock() + self.seconds)
        return f"capst_{key.id}_{expires}_{self._mac(key.id, expires)}"

    def find(self, text: str, keys: StoredKeys) -> Key | None:
        """The key for which a token was issued; None if token or key are not valid any more."""
        parts = _TOKEN.fullmatch(text)
        if parts is None:
            return None
        expires = int(parts["expires"])
        right = hmac.compare_digest(self._mac(parts["id"], expires), parts["mac"])
        if not right or expires <= self._clock():
            return None
        key, _ = keys.keys.get(parts["id"], (None, b""))
        return key if key is not None and key.revoked is None else None

    def _mac(self, identity: str, expires: int) -> str:
        message = f"{identity} {expires}".encode()
        return hmac.new(self._secret, message, hashlib.sha256).hexdigest()
