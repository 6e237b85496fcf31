"""What a proxy says of a request, if it is one that the operator trusts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

#: The header with the id of a request, which its answer repeats.
REQUEST_ID = "X-Request-ID"
_NAME = REQUEST_ID.lower().encode()
#: What may be an id in logs and in headers.
_ID = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:-]{7,63}")
#: In the scope of a request: the id that a trusted proxy gave it.
_GIVEN = "caps_med.request_id"


class Forwarded:
    """ASGI middleware that takes scheme, client and id of a request from trusted proxies alone.

    They say them in ``X-Forwarded-Proto``, ``X-Forwarded-For`` and ``X-Request-ID``. Others are not
    believed: ids in the audit log are not for clients to choose.

    Args:
        proxies: addresses and networks, as ``10.0.0.0/8``.
    """

    def __init__(self, app: ASGIApp, proxies: Sequence[str]) -> None:
        self.app = ProxyHeadersMiddleware(app, list(proxies))  # type: ignore[arg-type]  # Uvicorn's own ASGI types

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on as the proxy got it."""
        if scope["type"] == "http":
            peer = scope.get("client")
            given = [value for name, value in scope["headers"] if name == _NAME]
            trusted = peer is not None and peer[0] in self.app.trusted_hosts
            if trusted and len(given) == 1 and _ID.fullmatch(given[0]):
                scope[_GIVEN] = given[0].decode()
        await self.app(scope, receive, send)  # type: ignore[arg-type]  # as above


def given_id(scope: Scope) -> str | None:
    """The id that a trusted proxy gave this request, if any."""
    found: str | None = scope.get(_GIVEN)
    return found
