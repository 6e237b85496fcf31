"""One inference job: its state, its progress and its result."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid4

from fastapi import Response
from fastapi.responses import JSONResponse

from api.background.work import Work

State = Literal["queued", "running", "succeeded", "failed"]

#: States of finished jobs.
FINAL: tuple[State, ...] = ("succeeded", "failed")
STATES: tuple[State, ...] = ("queued", "running", *FINAL)


@dataclass(eq=False)
class InferenceJob:
    """A request that is answered in the background. Times are seconds since 1970.

    Attributes:
        work: the request; None once it is finished, so that the input is freed.
        owner: the key that sent it, if any.
        request: the id of the request that submitted it.
        asked: operation, model, digests of the input and of the parameters: what two requests with
            one idempotency key have in common.
        token: the client's idempotency key, if any.
        form: the form of the result unless another one is asked for; None for the input's own.
        warnings: of the reader, sent with the result.
        done, total: steps of the network, slices or windows; 0 of 0 before the first report.
        wanted: whether the work shall go on.
        result: what the network returned.
        problem: the problem document of a failed job.
        seconds: how long a finished job ran.
    """

    work: Work[Any] | None
    owner: str | None
    request: str
    asked: str
    token: str | None = None
    form: str | None = None
    warnings: str | None = None
    id: str = field(default_factory=lambda: uuid4().hex)
    created: float = field(default_factory=time.time)
    started: float | None = None
    finished: float | None = None
    state: State = "queued"
    done: int = 0
    total: int = 0
    wanted: bool = True
    result: Any = None
    problem: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        work = self.work
        if work is None:
            raise ValueError("a job begins with its work")
        self.operation, self.model = work.operation, work.model.bundle.reference
        self.forms = list(dict.fromkeys((*filter(None, [self.form]), *work.forms)))
        self._encode = work.encode
        self._began = self.seconds = 0.0

    @property
    def final(self) -> bool:
        """Whether it is finished."""
        return self.state in FINAL

    def start(self) -> None:
        """It runs from now on."""
        self.state, self.started, self._began = "running", time.time(), time.monotonic()

    def report(self, done: int, total: int) -> None:
        """Note the progress; called on the thread that computes."""
        self.done, self.total = done, total

    @property
    def seconds_left(self) -> float | None:
        """Estimated from the steps that are done; None if it does not run or none is done."""
        if self.state != "running" or not self.done:
            return None
        return (time.monotonic() - self._began) * (self.total - self.done) / self.done

    def succeed(self, result: object) -> None:
        """Keep the result, and free the input."""
        self.result = result
        self._finish("succeeded")

    def fail(self, refusal: JSONResponse) -> None:
        """Keep the problem document, and free the input."""
        self.problem = json.loads(bytes(refusal.body))
        self._finish("failed")

    def _finish(self, state: State) -> None:
        self.state, self.finished, self.work = state, time.time(), None
        self.seconds = time.monotonic() - self._began

    def encoded(self, form: str) -> Response:
        """The result in one of `forms`."""
        return self._encode(self.result, form)
