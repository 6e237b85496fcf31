"""Errors as RFC 9457 problem documents with a stable ``code``; one table from code to status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from api.engine.queue import Busy
from caps_med import errors

MEDIA_TYPE = "application/problem+json"

#: Library errors that are the caller's, by their stable code. Others are the service's own: 500.
STATUS: Mapping[str, int] = {
    errors.UnsupportedFormat.code: 415,
    errors.InputTooLarge.code: 413,
    errors.InvalidInput.code: 422,
    errors.UnknownLabel.code: 422,
    errors.InvalidParameter.code: 422,
    errors.WrongTask.code: 422,
    errors.ModelNotFound.code: 404,
    errors.LayerNotFound.code: 404,
}
#: Codes of what HTTP itself refuses.
HTTP_CODES: Mapping[int, str] = {
    400: "malformed_request",
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    413: errors.InputTooLarge.code,
}
UNEXPECTED = "internal_error"
#: A full queue, a request that took too long.
OVERLOADED, DEADLINE = "overloaded", "deadline_exceeded"


def problem(
    status: int,
    code: str,
    detail: str,
    headers: Mapping[str, str] | None = None,
    **more: object,
) -> JSONResponse:
    """A problem document; ``type`` is as stable as `code`, `more` are its further members."""
    body = {
        "type": f"urn:caps-med:problem:{code.replace('_', '-')}",
        "title": code.replace("_", " "),
        "status": status,
        "code": code,
        "detail": detail,
        **more,
    }
    return JSONResponse(body, status, dict(headers or {}), media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Answer every error that a caller can cause with a problem document."""
    app.add_exception_handler(errors.CapsMedError, _library)
    app.add_exception_handler(Busy, _busy)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(HTTPException, _http)


async def _library(_: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, errors.CapsMedError) or error.code not in STATUS:
        raise error
    return problem(STATUS[error.code], error.code, str(error))


async def _busy(_: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, Busy):
        raise error
    headers = {"Retry-After": str(error.retry_after)}
    return problem(503, OVERLOADED, str(error), headers, queue_length=error.waiting)


async def _validation(_: Request, error: Exception) -> JSONResponse:
    found: list[Any] = list(error.errors()) if isinstance(error, RequestValidationError) else []
    listed = [f"{'.'.join(map(str, e['loc'][1:]))}: {e['msg']}" for e in found]
    return problem(422, errors.InvalidParameter.code, "; ".join(listed))


async def _http(_: Request, error: Exception) -> JSONResponse:
    status = error.status_code if isinstance(error, HTTPException) else 500
    detail = str(error.detail) if isinstance(error, HTTPException) else ""
    headers = error.headers if isinstance(error, HTTPException) else None
    return problem(status, HTTP_CODES.get(status, f"http_{status}"), detail, headers)


def unexpected(identity: str) -> JSONResponse:
    """The bare 500 of a request; the log has the rest under the request's id."""
    return problem(500, UNEXPECTED, f"unexpected; the log has it under request {identity}")
