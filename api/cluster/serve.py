"""What Ray Serve itself is given: environment, HTTP options, headers."""

from __future__ import annotations

import math
import socket
from pathlib import Path
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.access.listening import answers_at
from api.processes import import_path
from api.protocol import MAX_HEAD_BYTES
from api.settings import Settings
from caps_med.errors import InvalidParameter

#: Headers by which a client would steer Ray Serve: its deadline, whether it watches the client,
#: the id of the request.
_STEERING = (b"x-request-timeout-seconds", b"x-request-disconnect-disabled", b"x-request-id")
#: Seconds for a node's proxy to start; Ray Serve itself waits as long for all of them.
_PROXY_START_S = 60


def environment(settings: Settings) -> dict[str, str]:
    """Environment variables of Serve's controller, proxies and replicas.

    HAProxy passes bodies on where Ray's own proxy would copy them through Python. Heads of requests
    fit its buffer or are refused, and silent clients are cut off. A proxy that is slow to start,
    on a busy machine, is waited for: Ray would end it after 5 s, and the deployment with it.
    """
    return {
        "RAY_SERVE_ENABLE_HA_PROXY": "1",
        "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": str(_PROXY_START_S),
        "RAY_SERVE_HAPROXY_TUNE_BUFSIZE": str(MAX_HEAD_BYTES + 1024),  # HAProxy keeps 1 KiB of it
        "RAY_SERVE_HAPROXY_TIMEOUT_CLIENT_S": str(math.ceil(settings.body_seconds)),
        "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": f"{__name__}:middlewares",
        **import_path(),
    }


def private_files(folder: Path) -> dict[str, str]:
    """Environment variables that keep HAProxy's files in `folder`, instead of under ``/tmp``.

    Whoever can reach its admin socket controls it.
    """
    return {
        "RAY_SERVE_HAPROXY_CONFIG_FILE_LOC": str(folder / "haproxy.cfg"),
        "RAY_SERVE_HAPROXY_SOCKET_PATH": str(folder / "admin.sock"),
        "RAY_SERVE_HAPROXY_SERVER_STATE_BASE": str(folder),
        "RAY_SERVE_HAPROXY_SERVER_STATE_FILE": str(folder / "server-state"),
        "RAY_SERVE_HAPROXY_METRICS_SOCKET_PATH": str(folder / "metrics.sock"),
    }


def longest_request(settings: Settings) -> float:
    """Seconds after which Serve may give up a request: later than the service's own deadlines."""
    body = settings.body_seconds + settings.max_upload_bytes / settings.min_body_rate
    return math.ceil(body + 2 * settings.request_seconds)


def check_host(host: str) -> None:
    """Check that HAProxy reaches the replicas of its own machine, which listen on `host`.

    Raises:
        InvalidParameter: it calls them at another address.
    """
    if not answers_at(own := _localhost(), host):
        raise InvalidParameter(
            f"--host {host}: Ray's proxies call the replicas of their own machine at {own}: give "
            f"--host {own}, or --host 0.0.0.0 and keys"
        )


def _localhost() -> str:
    """This machine's address for itself, as Ray has it, which must not be imported yet: it reads
    some of the environment then, see `connected`.
    """
    try:
        with socket.create_server(("127.0.0.1", 0)):
            return "127.0.0.1"
    except OSError:  # a machine with IPv6 alone
        return "::1"


def check_http(options: Any, settings: Settings) -> None:  # noqa: ANN401 - ray.serve's HTTPOptions
    """Check the HTTP options of a Serve that runs.

    Raises:
        InvalidParameter: it gives requests up before the service does.
    """
    given, needed = options.request_timeout_s, longest_request(settings)
    if given is not None and given < needed:
        raise InvalidParameter(
            f"http_options.request_timeout_s: {given:g} would end requests before the service's "
            f"own deadlines do: leave it out, or give at least {needed:g}"
        )


def middlewares() -> list[Middleware]:
    """The middleware that Serve puts around a replica's HTTP server."""
    return [Middleware(OwnHeaders)]


class OwnHeaders:
    """ASGI middleware: the app's ``X-Request-ID`` alone, and no header that steers Serve."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""

        async def once(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if identities := headers.getlist("X-Request-ID"):
                    headers["X-Request-ID"] = identities[0]  # the app's comes first
            await send(message)

        if scope["type"] == "http":
            kept = [(name, value) for name, value in scope["headers"] if name not in _STEERING]
            scope = {**scope, "headers": kept}
        await self.app(scope, receive, once)
