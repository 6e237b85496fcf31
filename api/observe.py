"""A log line, a metric and an audit record for each answer: ids, sizes, times, no content."""

from __future__ import annotations

import hashlib
import logging
import time
import traceback
import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import record
from api.audit import route_of, write_once
from api.forwarded import REQUEST_ID, given_id
from api.metrics import Metrics
from api.problems import unexpected
from api.tracing import server_span
from caps_med.errors import InvalidBundle
from caps_med.inference.provenance import header_text

log = logging.getLogger("caps_med.api")

#: Facts that say something of the input, which the log of answers leaves out.
_OF_THE_INPUT = ("input_sha256", "idempotency_sha256", "warnings")


class Observe:
    """ASGI middleware for request ids, metrics, logs and spans; an exception becomes a bare 500."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and record its outcome."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        identity, start, status = given_id(scope) or uuid.uuid4().hex, time.perf_counter(), 0
        facts = record.begin(request=identity)
        if key := Headers(scope=scope).get("Idempotency-Key"):  # any text: only its hash is kept
            facts["idempotency_sha256"] = hashlib.sha256(key.encode()).hexdigest()

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers[REQUEST_ID] = identity
                if warnings := facts.get("warnings"):
                    headers["Caps-Med-Warnings"] = header_text(str(warnings))
            await send(message)

        with server_span(scope["method"], Headers(scope=scope), request=identity) as attribute:
            try:
                await self.app(scope, receive, noting)
            except Exception as error:
                log_failure(error)
                if not status:
                    await unexpected(identity)(scope, receive, noting)
            finally:
                facts.setdefault("outcome", str(status or "gone"))
                facts["route"] = route_of(scope)
                self._note(scope["method"], facts, time.perf_counter() - start)
                write_once(scope, facts, str(facts["outcome"]))
                for key in ("route", "outcome", "model"):
                    attribute(key, str(facts.get(key, "-")))

    def _note(self, method: str, facts: dict[str, record.Fact], seconds: float) -> None:
        route, model = str(facts["route"]), str(facts.get("model", "-"))
        outcome = str(facts["outcome"])
        self.metrics.requests.labels(route, model, outcome).inc()
        self.metrics.request_seconds.labels(route).observe(seconds)
        line = {**facts, "method": method, "milliseconds": round(1000 * seconds, 1)}
        for content in _OF_THE_INPUT:
            line.pop(content, None)
        log.info("answered", extra={"facts": line})


def log_failure(error: Exception) -> None:
    """Log where it happened, without the message, which may hold a patient's values.

    An invalid model is for the operator to fix, and its message holds nothing of an upload.
    """
    identity = record.known("request")
    if isinstance(error, InvalidBundle):
        log.error("request %s failed: %s", identity, error)
        return
    where = "".join(traceback.format_tb(error.__traceback__))
    log.error("request %s failed: %s\n%s", identity, type(error).__name__, where)
