"""How a client wants its answer: in which form, and at once or in the background."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from fastapi import Depends, Header, Query, Request, Response
from fastapi.responses import JSONResponse

from api.background import InferenceJobs, Work
from api.background.schemas import InferenceJobView
from api.encoding import negotiate
from api.engine import Engine
from api.record import note
from api.routes.common import Accept, EngineDependency, Format

T = TypeVar("T")

#: The preference of RFC 7240 for an answer in the background.
RESPOND_ASYNC = "respond-async"
#: The parameter that says the same.
_ASYNC = "async"

Async = Annotated[
    Literal["", "1", "true", "0", "false"] | None,
    Query(alias=_ASYNC, description="The same as `Prefer: respond-async`: 202 and a job."),
]
Prefer = Annotated[
    str | None,
    Header(description="`respond-async`: 202 and a job, whose result is fetched later."),
]
IdempotencyKey = Annotated[
    str | None,
    Header(max_length=200, description="With respond-async: repeat it to get the same job."),
]

#: OpenAPI response of a route that may answer in the background.
ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {"model": InferenceJobView, "description": "With respond-async: the job; see Location."}
}


@dataclass(frozen=True)
class Asked:
    """What a client has asked for besides the work itself.

    Attributes:
        format: ``?format=``.
        accept: the header ``Accept``.
        later: whether the answer may come in the background.
        token: the header ``Idempotency-Key``.
        parameters: tells other values of parts and parameters, see `_parameters`; empty at once.
    """

    engine: Engine
    jobs: InferenceJobs
    format: str | None
    accept: str | None
    later: bool
    token: str | None
    parameters: str

    def form_of(self, offered: Sequence[str]) -> str:
        """The form of the answer, one of `offered`; see `api.encoding.negotiate`.

        Raises:
            HTTPException: 406, none that the client takes is offered.
        """
        return negotiate(self.format, None if self.later else self.accept, offered)

    async def answered(self, work: Work[Any]) -> Response:
        """The answer to a request; 202 and a job if it is computed in the background."""
        form = self.form_of(work.forms)
        if self.later:
            return self._submitted(work)
        result = await work.completed(await self.engine.predict(work.model, work.call))
        return await self.engine.run("encode", lambda: work.encode(result, form))

    def _submitted(self, work: Work[Any]) -> Response:
        job = self.jobs.submit(work, self.format, self.token, self.parameters)
        note(job=job.id)
        view = InferenceJobView.of(job, self.jobs)
        headers = {
            "Location": f"/v1/inference-jobs/{job.id}",
            "Preference-Applied": RESPOND_ASYNC,
        }
        return JSONResponse(view.model_dump(mode="json"), 202, headers)


async def asked(
    request: Request,
    engine: EngineDependency,
    format: Format = None,
    accept: Accept = None,
    prefer: Prefer = None,
    asynchronous: Async = None,
    idempotency_key: IdempotencyKey = None,
) -> AsyncIterator[Asked]:
    """What the headers and the query of a request ask for, until it is answered.

    A service that infers only keeps no jobs: it ignores the preference, as RFC 7240 allows.
    """
    later = asynchronous in ("", "1", "true") or _prefers_async(request.headers.getlist("prefer"))
    later = later and not engine.settings.inference_only
    jobs: InferenceJobs = request.app.state.inference_jobs
    parameters = await _parameters(request) if later else ""
    with jobs.expecting(idempotency_key if later else None):
        yield Asked(engine, jobs, format, accept, later, idempotency_key, parameters)


AskedDependency = Annotated[Asked, Depends(asked)]


async def _parameters(request: Request) -> str:
    """A hash of what a request says besides its files: the model's version, the seed, ..."""
    form = await request.form()
    path = request.path_params.items()
    given = [*path, *request.query_params.multi_items(), *form.multi_items()]
    texts = sorted(
        (name, value) for name, value in given if isinstance(value, str) and name != _ASYNC
    )
    return hashlib.sha256(repr(texts).encode()).hexdigest()


def _prefers_async(headers: Sequence[str]) -> bool:
    preferences = ",".join(headers).split(",")
    return RESPOND_ASYNC in {p.partition(";")[0].strip().lower() for p in preferences}
