"""The audit log: who requested what. It may be a condition of every answer."""

from __future__ import annotations

import logging
import logging.handlers
from contextlib import suppress
from pathlib import Path

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api import record
from api.paths import is_api
from api.problems import STORAGE, problem
from caps_med.errors import InvalidParameter

#: The logger of the audit log.
AUDIT = "caps_med.audit"
#: Facts in the audit log.
AUDITED = (
    "request", "who", "model", "version", "input_sha256", "idempotency_sha256", "archive",
    "stored", "job", "project", "image",
)  # fmt: skip

#: Methods that are recorded by name; a client may send any word.
METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"))

log = logging.getLogger("caps_med.api")
audit = logging.getLogger(AUDIT)

#: In the scope of a request whose record is written.
_WRITTEN = "caps_med.audited"


class AuditFile(logging.handlers.WatchedFileHandler):
    """Appends to a file, reopens it after it was moved (logrotate), and counts what is lost.

    Attributes:
        lost: records that could not be written.

    Raises:
        InvalidParameter: the file cannot be opened.
    """

    def __init__(self, path: Path, formatter: logging.Formatter) -> None:
        try:
            super().__init__(path)
        except OSError as error:
            raise InvalidParameter(f"CAPS_MED_AUDIT_LOG={path}: {error.strerror}") from error
        self.setFormatter(formatter)
        self.lost = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record; a file that cannot be reopened or flushed is a lost record, too."""
        try:
            super().emit(record)
        except OSError:
            self.handleError(record)

    def handleError(self, _: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        """Count the record, and open the file anew for the next; the other logs say it is lost."""
        self.lost += 1
        stream, self.stream = self.stream, None
        with suppress(OSError):
            if stream is not None:
                stream.close()
        log.error("an audit record cannot be written: is the disk full?")


def write_once(scope: Scope, facts: record.Facts, outcome: str) -> bool:
    """Write the record of a request, unless it is written; False if that fails.

    Requests outside the API have none. The record of one without a route, or that was refused
    before it had one, does not tell its path, which may be any text.
    """
    if scope.get(_WRITTEN) or scope["method"] == "OPTIONS" or not is_api(scope["path"]):
        return True
    audited = {key: facts[key] for key in AUDITED if key in facts}
    files = [handler for handler in audit.handlers if isinstance(handler, AuditFile)]
    before = sum(file.lost for file in files)
    entry = {"action": _action(scope), **audited, "outcome": outcome}
    audit.info("audit", extra={"facts": entry})
    scope[_WRITTEN] = sum(file.lost for file in files) == before
    return bool(scope[_WRITTEN])


def _action(scope: Scope) -> str:
    method = scope["method"] if scope["method"] in METHODS else "OTHER"
    return f"{method} {route_of(scope)}"


def route_of(scope: Scope) -> str:
    """The route of a request, with its parameters' names; ``unmatched`` if there is none."""
    return str(getattr(scope.get("route"), "path", "unmatched"))


class AuditFirst:
    """ASGI middleware: no answer of the API without its record, else 503."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write the record before the answer begins, and send no answer if that fails."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        refused = False

        async def after_record(message: Message) -> None:
            nonlocal refused
            if message["type"] == "http.response.start":
                refused = not write_once(scope, record.facts(), str(message["status"]))
                if refused:
                    detail = "the audit log cannot be written: its operator must make room"
                    answer = problem(STORAGE, detail, {"Retry-After": "60"})
                    await answer(scope, receive, send)
            if not refused:
                await send(message)

        await self.app(scope, receive, after_record)
