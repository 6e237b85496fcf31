"""One log line and one count an answer: ids, sizes and times, nothing of the content."""

from __future__ import annotations

import json
import logging
import time
import traceback
import uuid

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.metrics import Metrics
from api.problems import unexpected
from caps_med.errors import InvalidBundle

log = logging.getLogger("caps_med.api")


class Observe:
    """ASGI middleware: request ids, metrics and logs; the unexpected becomes a bare 500."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and note what became of it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        identity, start, status = uuid.uuid4().hex, time.perf_counter(), 0

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-ID"] = identity
            await send(message)

        try:
            await self.app(scope, receive, noting)
        except Exception as error:
            _log_failure(identity, error)
            if not status:
                await unexpected(identity)(scope, receive, noting)
        finally:
            self._note(scope, identity, status, time.perf_counter() - start)

    def _note(self, scope: Scope, identity: str, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "unmatched")
        model = scope.get("path_params", {}).get("model", "-") if 200 <= status < 400 else "-"
        self.metrics.requests.labels(route, model, str(status)).inc()
        line = {
            "request": identity,
            "method": scope["method"],
            "route": route,
            "model": model,
            "status": status,
            "milliseconds": round(1000 * seconds, 1),
        }
        log.info(json.dumps(line))


def _log_failure(identity: str, error: Exception) -> None:
    """Where it happened, without the message: it may hold values, which may be a patient's.

    What is wrong with a model is the operator's to mend, and holds nothing of an upload.
    """
    if isinstance(error, InvalidBundle):
        log.error("request %s failed: %s", identity, error)
        return
    where = "".join(traceback.format_tb(error.__traceback__))
    log.error("request %s failed: %s\n%s", identity, type(error).__name__, where)
