"""Errors as RFC 9457 problem documents with a stable ``code``: one list of codes, `PROBLEMS`."""

from __future__ import annotations

import errno
import logging
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match

from api.budget import Busy, NoRoom
from api.decoding.decoder import DecoderDied, DecodeTimeout, NoDecoder
from caps_med import errors
from caps_med.disk import FULL
from caps_med.wording import reason

log = logging.getLogger("caps_med.api")

MEDIA_TYPE = "application/problem+json"

UNEXPECTED = "internal_error"
#: A full queue, a missed deadline, a service that is starting or stopping.
OVERLOADED, DEADLINE, NOT_READY = "overloaded", "deadline_exceeded", "not_ready"
#: A slow body; a missing or revoked key, one without the scope, one that sends too many requests.
SLOW_BODY, UNAUTHORIZED, FORBIDDEN = "request_timeout", "unauthorized", "forbidden"
RATE_LIMITED = "rate_limited"
#: Jobs: unknown ids and pictures, no result yet, data that cannot be trained on, no disk left.
JOB_NOT_FOUND, PICTURE_NOT_FOUND = "job_not_found", "picture_not_found"
REPORT_NOT_FOUND, NOT_FINISHED = "report_not_found", "not_finished"
SAMPLE_NOT_FOUND = "sample_not_found"
#: MONAI Label: no image of that id, an unknown or expired session, another image's name, no
#: training, another one.
IMAGE_NOT_FOUND, IMAGE_EXISTS = "image_not_found", "image_exists"
SESSION_NOT_FOUND = "session_not_found"
NOT_TRAINING, TRAINING_BUSY = "not_training", "training_busy"
DATA_NOT_FIT, QUOTA = "data_not_fit", "quota_exceeded"
NAME_TAKEN = "name_taken"
#: Projects: unknown ids, label maps that are not there, changed meanwhile or a person's.
PROJECT_NOT_FOUND, LABELS_NOT_FOUND = "project_not_found", "labels_not_found"
ALREADY_CORRECTED = "already_corrected"
LEARNING, TRAINING_UNAVAILABLE = "learning", "training_unavailable"
PRECONDITION_FAILED, PRECONDITION_REQUIRED = "precondition_failed", "precondition_required"
#: A service that infers only was asked for what the head service has.
MISDIRECTED = "misdirected"
#: The disk of the models and jobs: full, or not usable at all.
DISK_FULL, STORAGE = "disk_full", "storage_unavailable"


#: Detail of the refusal of a request with the idempotency key of another one.
KEY_REUSED = (
    "an earlier, different request has this Idempotency-Key: give each request its own key, and "
    "repeat a request unchanged"
)


class ProblemType(NamedTuple):
    """The HTTP status of a code, and what it means."""

    status: int
    meaning: str


#: Every code that an answer can carry. Scripts rely on them: none is ever renamed.
PROBLEMS: Mapping[str, ProblemType] = {
    "malformed_request": ProblemType(
        400, "Invalid HTTP, an incomplete form, or too many parts or headers."
    ),
    UNAUTHORIZED: ProblemType(401, "No key, an unknown key, or a revoked one."),
    FORBIDDEN: ProblemType(403, "The key lacks the scope, or the request comes from another site."),
    "not_found": ProblemType(404, "There is no such path."),
    errors.ModelNotFound.code: ProblemType(404, "There is no such model or version."),
    errors.LayerNotFound.code: ProblemType(404, "The model has no capsule layer of that name."),
    JOB_NOT_FOUND: ProblemType(404, "The job does not exist, or no longer exists."),
    PICTURE_NOT_FOUND: ProblemType(404, "The training job has no such picture."),
    REPORT_NOT_FOUND: ProblemType(404, "The training job has no report, or none yet."),
    SAMPLE_NOT_FOUND: ProblemType(404, "There is no such sample."),
    errors.ArchiveNotFound.code: ProblemType(404, "The settings name no such archive."),
    errors.SeriesNotFound.code: ProblemType(404, "The archive has no such study or series."),
    IMAGE_NOT_FOUND: ProblemType(404, "There is no image with this id."),
    SESSION_NOT_FOUND: ProblemType(404, "The session does not exist, or no longer exists."),
    NOT_TRAINING: ProblemType(404, "Nothing is being trained."),
    PROJECT_NOT_FOUND: ProblemType(404, "There is no such project, or it belongs to another key."),
    LABELS_NOT_FOUND: ProblemType(404, "The image has no label map yet, or no such version of it."),
    "method_not_allowed": ProblemType(405, "The path does not support this method."),
    "not_acceptable": ProblemType(406, "The answer is not available in the requested format."),
    SLOW_BODY: ProblemType(408, "The headers or the body arrived too slowly."),
    NOT_FINISHED: ProblemType(
        409, "The job has not finished, or its request is still being read; see Retry-After."
    ),
    ALREADY_CORRECTED: ProblemType(
        409, "A person made the label map, so it is not predicted again."
    ),
    LEARNING: ProblemType(409, "The project is already learning."),
    PRECONDITION_FAILED: ProblemType(
        412, "The label map has changed in the meantime; see `version`."
    ),
    errors.InputTooLarge.code: ProblemType(413, "Over a limit, before or after decompression."),
    errors.UnsupportedFormat.code: ProblemType(415, "The format of the content is not supported."),
    MISDIRECTED: ProblemType(421, "This service only infers; the head service has this route."),
    errors.InvalidInput.code: ProblemType(422, "The content is truncated, corrupt or meaningless."),
    errors.SeveralSeries.code: ProblemType(
        422, "There are several DICOM series: choose one; see `series`."
    ),
    errors.SeveralVolumes.code: ProblemType(
        422, "There are several volumes: choose one; see `volumes`."
    ),
    errors.UnknownLabel.code: ProblemType(
        422, "A label map has an id that the model does not know."
    ),
    errors.InvalidParameter.code: ProblemType(
        422, "A parameter is missing, unknown or out of range."
    ),
    errors.WrongTask.code: ProblemType(422, "The model is for another task."),
    DecodeTimeout.code: ProblemType(422, "Decoding the file took too long."),
    DecoderDied.code: ProblemType(422, "The process that decoded the file died."),
    DATA_NOT_FIT: ProblemType(422, "The data cannot be trained on; see `findings`."),
    IMAGE_EXISTS: ProblemType(409, "Another image has this name."),
    NAME_TAKEN: ProblemType(409, "The name belongs to a built-in model or to another key."),
    PRECONDITION_REQUIRED: ProblemType(428, "Send If-Match with the ETag of the label map."),
    TRAINING_BUSY: ProblemType(429, "A training of this project has not finished."),
    RATE_LIMITED: ProblemType(429, "The key sends too many requests; see Retry-After."),
    UNEXPECTED: ProblemType(500, "A fault of the service; see its log for the request's id."),
    errors.ArchiveDenied.code: ProblemType(502, "The archive refuses the service's credentials."),
    errors.ArchiveUnavailable.code: ProblemType(
        502, "The archive cannot be reached, is too slow, or does not speak DICOMweb."
    ),
    OVERLOADED: ProblemType(503, "Too many requests are waiting; see Retry-After."),
    NOT_READY: ProblemType(
        503, "The service is starting or stopping, or failed to start; see Retry-After."
    ),
    STORAGE: ProblemType(503, "The service cannot read or write its records on disk."),
    TRAINING_UNAVAILABLE: ProblemType(503, "This service does not train models."),
    DISK_FULL: ProblemType(507, "The disk of the service is full."),
    QUOTA: ProblemType(507, "A quota of training jobs or projects is used up."),
    DEADLINE: ProblemType(504, "The answer did not come in time."),
}
#: Codes of errors that Starlette raises, by status.
_OF_STATUS: Mapping[int, str] = {
    400: "malformed_request",
    404: "not_found",
    405: "method_not_allowed",
    406: "not_acceptable",
    413: errors.InputTooLarge.code,
}


#: Errors of a disk that cannot be written or read.
_UNUSABLE = (errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE, errno.ENODEV)


class Refusal(Exception):
    """Raised to answer a request with a problem document.

    Args:
        code, detail, headers, more: see `problem`.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        headers: Mapping[str, str] | None = None,
        **more: object,
    ) -> None:
        super().__init__(detail)
        self.code, self.detail = code, detail
        self.headers, self.more = headers, more


def problem(
    code: str, detail: str, headers: Mapping[str, str] | None = None, **more: object
) -> JSONResponse:
    """A problem document; `more` are additional members."""
    status = PROBLEMS[code].status
    return JSONResponse(
        document(code, detail, **more), status, dict(headers or {}), media_type=MEDIA_TYPE
    )


def document(code: str, detail: str, **more: object) -> dict[str, object]:
    """The members of a problem document."""
    return {
        "type": f"urn:caps-med:problem:{code.replace('_', '-')}",
        "title": code.replace("_", " "),
        "status": PROBLEMS[code].status,
        "code": code,
        "detail": detail,
        **more,
    }


def install(app: FastAPI) -> None:
    """Answer every error of a caller with a problem document."""
    for kind in (errors.CapsMedError, Busy, NoRoom, NoDecoder, Refusal):
        app.add_exception_handler(kind, _expected)
    app.add_exception_handler(RequestValidationError, _validation)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(OSError, _disk)
    app.add_exception_handler(sqlite3.Error, _disk)


def answer_to(error: Exception) -> JSONResponse | None:
    """The problem document of a caller's mistake or a busy service; None for anything else."""
    if isinstance(error, Refusal):
        return problem(error.code, error.detail, error.headers, **error.more)
    if isinstance(error, NoRoom):
        return problem(OVERLOADED, str(error), {"Retry-After": str(error.retry_after)})
    if isinstance(error, Busy):
        headers = {"Retry-After": str(error.retry_after)}
        return problem(OVERLOADED, str(error), headers, queue_length=error.waiting)
    if isinstance(error, NoDecoder):
        detail = "no process could be started to decode the file: try again later"
        return problem(OVERLOADED, detail, {"Retry-After": "5"})
    if isinstance(error, errors.CapsMedError) and error.code in PROBLEMS:
        return problem(error.code, str(error), None, **error.members)
    return None


async def _expected(_: Request, error: Exception) -> JSONResponse:
    answer = answer_to(error)
    if answer is None:
        raise error  # not the caller's fault: a bare 500
    return answer


async def _validation(_: Request, error: Exception) -> JSONResponse:
    found: list[Any] = list(error.errors()) if isinstance(error, RequestValidationError) else []
    listed = [_told(each) for each in found]
    return problem(errors.InvalidParameter.code, "; ".join(listed))


def _told(error: Mapping[str, Any]) -> str:
    """What is wrong with one parameter."""
    where = [str(place) for place in error["loc"][1:]]
    if "Expected UploadFile" in error["msg"] and isinstance(error["input"], str):
        return f"{where[0]}: must be a file, got text: send it with `-F {where[0]}=@FILE`"
    return f"{'.'.join(where)}: {reason(error)}"


async def _http(request: Request, error: Exception) -> JSONResponse:
    if not isinstance(error, HTTPException) or error.status_code not in _OF_STATUS:
        raise error
    detail, headers = str(error.detail), dict(error.headers or {})
    if error.status_code == 400:
        detail += _form_hint(request, detail)
    elif error.status_code == 404:
        detail = "there is no such path"
    elif error.status_code == 405:
        headers["Allow"] = _allowed(request) or headers.get("Allow", "")
        detail = f"this path accepts only {headers['Allow']}"
    return problem(_OF_STATUS[error.status_code], detail, headers)


def _allowed(request: Request) -> str:
    """The methods of a path. Starlette names those of one of its routes, and no HEAD."""
    found = [
        method
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for route in request.app.routes
        )
    ]
    return ", ".join(["HEAD"] * ("GET" in found) + found)


def _form_hint(request: Request, detail: str) -> str:
    """How a form is sent, after one that could not be read."""
    if detail.startswith("Too many files"):
        return " Send fewer at once, or allow more with CAPS_MED_MAX_PARTS."
    media_type, _, parameters = request.headers.get("content-type", "").lower().partition(";")
    if media_type.strip() == "application/x-www-form-urlencoded":
        return " Files are sent as parts of a multipart form: curl -F (not --data-binary)."
    if media_type.strip() == "multipart/form-data" and "boundary=" not in parameters:
        return " Let the HTTP client write the header Content-Type."
    return ""


async def _disk(_: Request, error: Exception) -> JSONResponse:
    """What the disk refuses: full (507), or not to be used (503)."""
    number = getattr(error, "errno", None)
    kind = getattr(error, "sqlite_errorcode", None)
    if isinstance(error, OSError) and number not in (*FULL, *_UNUSABLE):
        raise error
    log.error("the disk refuses: %s: %s", type(error).__name__, _why(error))
    if number in FULL or kind == sqlite3.SQLITE_FULL:
        return problem(
            DISK_FULL, "the disk of the service is full: its operator must free some space"
        )
    detail = "the service cannot use its disk: its operator can find the reason in the log"
    return problem(STORAGE, detail, {"Retry-After": "60"})


def _why(error: Exception) -> str:
    """What happened and on which disk, without the file, whose name may be a patient's."""
    if not isinstance(error, OSError):
        return str(error)  # SQLite's, which names columns and no values
    if not isinstance(error.filename, str):
        return str(error.strerror)
    disk = Path(error.filename).absolute()
    while not (disk.is_mount() or disk == disk.parent):
        disk = disk.parent
    return f"{error.strerror}, on the disk at {disk}"


def unexpected(identity: str) -> JSONResponse:
    """The bare 500 of a request; the log has the details under the request's id."""
    return problem(UNEXPECTED, f"unexpected error: see the log for request {identity}")
