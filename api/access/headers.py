"""Security headers of every answer."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.paths import is_api

#: Nothing from other hosts, no plug-ins, no frames; scripts and styles only from the page's own
#: files, pictures also from the page itself (blob:).
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "connect-src 'self'",
        "img-src 'self' blob: data:",
        "style-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_ONE_YEAR = "max-age=31536000"


class SecurityHeaders:
    """ASGI middleware that adds the headers above; answers of the API are not cached.

    Redirects become relative: behind a proxy that speaks TLS the service sees plain HTTP, and an
    absolute address would send the client, with the scan that it repeats, there.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and add the headers that its answer lacks."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def adding(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if "Location" in headers:
                    headers["Location"] = _relative(headers["Location"])
                if is_api(scope["path"]):
                    headers.setdefault("Cache-Control", "no-store")
                if scope.get("scheme") == "https":
                    headers.setdefault("Strict-Transport-Security", _ONE_YEAR)
            await send(message)

        await self.app(scope, receive, adding)


def _relative(location: str) -> str:
    """The path and query of an address of this service."""
    parts = urlsplit(location)
    path = "/" + parts.path.lstrip("/")  # two slashes would begin the name of a host
    return path + (f"?{parts.query}" if parts.query else "")
