"""Logs in JSON lines, each with the id of its request, and the audit log."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from api.audit import AUDIT, AuditFile
from api.record import known


class JsonLines(logging.Formatter):
    """One JSON object a line: time, level, logger, message, request, and the record's facts.

    Of an exception its type and place are logged, never its message, which may hold content.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request := known("request"):
            line["request"] = request
        line.update(getattr(record, "facts", {}))
        if record.exc_info and record.exc_info[0]:
            line["exception"] = record.exc_info[0].__name__
            line["where"] = _where(record.exc_info[2])
        return json.dumps(line, default=str)


def _where(traceback: TracebackType | None) -> str:
    place = ""
    while traceback is not None:
        code = traceback.tb_frame.f_code
        place = f"{Path(code.co_filename).name}:{traceback.tb_lineno} {code.co_name}"
        traceback = traceback.tb_next
    return place


def configure(audit_log: Path | None) -> None:
    """Write all logs to standard error, except the audit log if it has a file.

    Raises:
        InvalidParameter: the file cannot be opened.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    for noisy in ("httpx", "torch", "numba"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    if audit_log is not None:
        audit = logging.getLogger(AUDIT)
        audit.addHandler(AuditFile(audit_log, JsonLines()))
        audit.propagate = False
