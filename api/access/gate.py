"""Access control: every route that is not open needs a key with the right scope."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from api.access.keys import Key, StoredKeys
from api.access.live import KeysUnavailable, LiveKeys
from api.access.rates import Rates
from api.access.rights import note_key
from api.access.tokens import Tokens
from api.paths import MONAI_LABEL
from api.problems import FORBIDDEN, RATE_LIMITED, STORAGE, UNAUTHORIZED, problem
from api.record import note

#: In the scope of a request: whether its key may do everything; absent if none is needed.
ADMIN = "caps_med.admin"
#: Any valid key is sufficient.
ANY = "any"
_READING = ("GET", "HEAD", "OPTIONS")


def scope_of(method: str, path: str) -> str | None:
    """The scope that a request needs; None if it is open.

    Reading outside /v1 and /metrics is open: the page, the OpenAPI document, liveness, readiness.
    Every route under /v1 needs a key, also those added later.
    """
    parts = [part for part in path.split("/") if part]
    first = parts[0].lower() if parts else ""
    if first == "metrics":
        return ANY
    if first in MONAI_LABEL:
        return _scope_of_monai_label(first, path)
    if first != "v1":
        return None if method in _READING else "admin"
    second = parts[1].lower() if len(parts) > 1 else ""
    if second == "training-jobs":
        return "train"
    if second == "archives":
        return "archive"
    if second == "projects":
        return "train" if parts[-1].lower() == "learn" else "infer"  # of its own projects
    if second == "inference-jobs" and method == "DELETE":
        return "infer"  # of its own jobs
    return "infer" if method in (*_READING, "POST") else "admin"


def _scope_of_monai_label(first: str, path: str) -> str | None:
    """Of the MONAI Label protocol; open is only how to log in."""
    if first == "auth":
        return None if path.rstrip("/") in ("/auth", "/auth/token") else ANY
    return "train" if first == "train" else "infer"


class Gate:
    """ASGI middleware: 401 without a key, 403 without its scope, 429 for too many requests, 503 if
    the keys cannot be read.

    Args:
        keys: once it has held a key, one is needed; before that, anyone on this machine may call.
        tokens: that stand for a key; None if there are none.
        required: a key is needed even if there is none.
        per_minute: requests per minute of a key that has no rate of its own.
        replicas: services that share the calls of each key; this one lets its part through.
        hosts: accepted ``Host`` names; empty for any. Without keys this prevents DNS rebinding.
        origins: sites whose pages may call, besides the service's own.
    """

    def __init__(
        self, app: ASGIApp, *, keys: LiveKeys, tokens: Tokens | None, required: bool,
        per_minute: int, replicas: int, hosts: Sequence[str], origins: Sequence[str],
    ) -> None:  # fmt: skip
        self.app, self._keys, self._tokens, self._required = app, keys, tokens, required
        self._per_minute, self._replicas, self._rates = per_minute, replicas, Rates()
        self._hosts, self._origins = frozenset(hosts), frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer it here."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        refusal = await self._refusal(scope, Headers(scope=scope))
        await (refusal or self.app)(scope, receive, send)

    async def _refusal(self, scope: Scope, headers: Headers) -> JSONResponse | None:
        method, path = scope["method"], scope["path"]
        note_key(None)
        if refusal := self._foreign(method, headers):
            return refusal
        needed = scope_of(method, path)
        if needed is None:
            return None
        try:
            keys = await self._keys.current()
        except KeysUnavailable:
            detail = "the keys cannot be read: the operator must look into the log"
            return problem(STORAGE, detail, {"Retry-After": "5"})
        self._required = self._required or keys.ever
        if not self._required:
            return None
        key = self._key(_presented(headers), keys)
        if key is None:
            return problem(
                UNAUTHORIZED,
                "send a valid key: Authorization: Bearer KEY, or X-API-Key: KEY",
                {"WWW-Authenticate": 'Bearer realm="caps_med"'},
            )
        note(who=f"{key.name} {key.id}")
        note_key(key, lambda: self._stays(_presented(headers)))
        scope[ADMIN] = key.may("admin")
        if needed != ANY and not key.may(needed):
            return problem(FORBIDDEN, f"this key lacks the scope {needed!r}")
        return self._too_often(key)

    async def _stays(self, text: str) -> bool:
        """Whether what was presented still stands for a key."""
        try:
            return self._key(text, await self._keys.current()) is not None
        except KeysUnavailable:
            return False

    def _key(self, text: str, keys: StoredKeys) -> Key | None:
        found = keys.find(text)
        if found is None and self._tokens is not None:
            return self._tokens.find(text, keys)
        return found

    def _too_often(self, key: Key) -> JSONResponse | None:
        allowed = key.per_minute or self._per_minute
        seconds = self._rates.wait(key.id, max(1.0, allowed / self._replicas))
        if seconds == 0:
            return None
        detail = f"this key may send {allowed} requests a minute"
        return problem(RATE_LIMITED, detail, {"Retry-After": str(seconds)})

    def _foreign(self, method: str, headers: Headers) -> JSONResponse | None:
        host = headers.get("host", "")
        if self._hosts and (_parts(f"//{host}").hostname or "") not in self._hosts:
            return problem(FORBIDDEN, "this service does not answer to that host name")
        origin = headers.get("origin")
        if method in _READING or origin is None or origin in self._origins:
            return None
        if host and _parts(origin).netloc == host:
            return None
        return problem(FORBIDDEN, "pages of another site may not call this service")


def is_admin(request: Request) -> bool:
    """Whether the key of this request may do everything; false if no key is needed."""
    return bool(request.scope.get(ADMIN, False))


def _parts(text: str) -> SplitResult:
    """The parts of an address; empty ones if it is not valid."""
    try:
        return urlsplit(text)
    except ValueError:
        return urlsplit("")


def _presented(headers: Headers) -> str:
    scheme, _, credentials = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return credentials.strip()
    return headers.get("x-api-key", "")
