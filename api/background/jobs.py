"""The inference jobs of one service: kept in memory, computed in turn, forgotten after a while."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any

from fastapi.responses import JSONResponse

from api import record
from api.access.rates import charge_work
from api.background.job import STATES, InferenceJob
from api.background.quota import Quota
from api.background.round_robin import RoundRobin
from api.background.work import Work, held_bytes
from api.engine import Cost, Engine
from api.observe import log_failure
from api.problems import (
    DEADLINE,
    JOB_NOT_FOUND,
    KEY_REUSED,
    NOT_FINISHED,
    NOT_READY,
    OVERLOADED,
    Refusal,
    answer_to,
    problem,
    unexpected,
)
from caps_med.errors import InputTooLarge, InvalidParameter
from caps_med.inference.passes import Cancelled, cancelled_unless
from caps_med.inference.progress import reporting_to

log = logging.getLogger("caps_med.api")

#: ``Retry-After`` of a refused job, in seconds.
PATIENCE = 30
#: Weight of the newest duration in the moving average.
NEWEST = 0.3


class InferenceJobs:
    """Submits, computes, shows and forgets jobs. All methods belong to the event loop.

    A job is known to the key that sent it only. Inputs and results are in memory and nowhere else,
    so that nothing of a patient outlives the process. A job starts only while there is room for
    results, and between two passes it lets requests that wait for an answer go first.

    Args:
        engine: computes them; its settings bound their number, bytes and times.
    """

    def __init__(self, engine: Engine) -> None:
        settings = self._settings = engine.settings
        self._engine = engine
        self._jobs: dict[str, InferenceJob] = {}
        self._expected: Counter[tuple[str | None, str]] = Counter()
        self._waiting = RoundRobin()
        self._runners: set[asyncio.Task[None] | None] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._count = Quota(settings.max_inference_jobs)
        self._inputs = Quota(settings.inference_jobs_max_bytes // 2)
        self._results = Quota(settings.inference_jobs_max_bytes // 2)
        self._held: dict[str, tuple[Quota, int]] = {}
        self._average = 0.0

    def submit(
        self, work: Work[Any], form: str | None, token: str | None, parameters: str
    ) -> InferenceJob:
        """A new job at the end of its key's queue, or the earlier one with this `token`.

        Args:
            form: of the result, unless the client asks for another one.
            parameters: tells what is asked for of the same input, see `InferenceJob.asked`.

        Raises:
            Refusal: too many jobs or bytes are held (503).
            InputTooLarge: the input alone is over the limit.
            InvalidParameter: the earlier one asks for something else.
        """
        owner, digest = _owner(), record.known("input_sha256")
        asked = f"{work.operation} {work.model.bundle.name} {digest} {parameters}"
        if token and (earlier := self._with_token(owner, token)):
            if earlier.asked != asked:
                raise InvalidParameter(KEY_REUSED)
            return earlier
        size = held_bytes(work.source)
        self._check_room(owner, size)
        charge_work(work.call.cost(work.model).positions)
        request, warnings = str(record.known("request")), record.known("warnings")
        job = InferenceJob(
            work, owner, request, asked, token, form, None if warnings is None else str(warnings)
        )
        self._jobs[job.id] = job
        self._count.take(owner, 1)
        self._hold(job, self._inputs, size)
        self._set_timer(job, self._settings.inference_job_seconds, self._expire)
        self._waiting.add(job)
        self._wake()
        return job

    def get(self, identity: str) -> InferenceJob:
        """The job with this id, if it belongs to the key of this request.

        Raises:
            Refusal: there is none (404).
        """
        job = self._jobs.get(identity)
        if job is None or job.owner != _owner():
            detail = (
                "there is no such job: it was deleted, has expired (results are kept for "
                f"{self._settings.inference_job_keep_seconds:g} s), or was lost when the service "
                "restarted; send the request again"
            )
            raise Refusal(JOB_NOT_FOUND, detail)
        return job

    @contextmanager
    def expecting(self, token: str | None) -> Iterator[None]:
        """A request with this idempotency key, if any, is being read within the block."""
        if token is None:
            yield
            return
        waited = (_owner(), token)
        self._expected[waited] += 1
        try:
            yield
        finally:
            self._expected[waited] -= 1
            self._expected += Counter()  # without those of which none is left

    def begun_by(self, token: str) -> InferenceJob:
        """The job of an earlier request with this idempotency key, by the key of this request.

        Raises:
            Refusal: the earlier request is still being read (409), or there is no such job (404).
        """
        owner = _owner()
        if job := self._with_token(owner, token):
            return job
        if self._expected[owner, token]:
            detail = "the request with this Idempotency-Key is still being read: ask again later"
            raise Refusal(NOT_FINISHED, detail, {"Retry-After": "1"})
        detail = (
            "no request with this Idempotency-Key has started a job: it did not arrive, was "
            "refused, or its job was deleted; send it again"
        )
        raise Refusal(JOB_NOT_FOUND, detail)

    def __contains__(self, job: InferenceJob) -> bool:
        return job.id in self._jobs

    def forget(self, job: InferenceJob) -> None:
        """Delete a job and what it holds; if it is running it ends before its next pass."""
        if self._jobs.pop(job.id, None) is None:
            return
        job.wanted = False
        self._timers.pop(job.id).cancel()
        self._count.free(job.owner, 1)
        if self._waiting.remove(job) or job.final:
            self._release(job)
        self._note()
        self._wake()

    def wait(self, job: InferenceJob) -> tuple[int | None, float | None]:
        """Position in the queue, from 1, and estimated seconds until the start; None if unknown."""
        if job.state != "queued":
            return None, None
        before = list(self._waiting).index(job)
        left = [other.seconds_left for other in self._jobs.values() if other.state == "running"]
        known = [self._average or None if seconds is None else seconds for seconds in left]
        if None in known or (before and not self._average):
            return before + 1, None
        total = sum(seconds or 0.0 for seconds in known) + before * self._average
        return before + 1, total / self._engine.settings.workers

    async def close(self) -> None:
        """Stop all jobs; their threads end before the next pass."""
        for job in self._jobs.values():
            job.wanted = False
        runners = [runner for runner in self._runners if runner is not None]
        for runner in runners:
            runner.cancel()
        await asyncio.gather(*runners, return_exceptions=True)

    def _with_token(self, owner: str | None, token: str) -> InferenceJob | None:
        same = (job for job in self._jobs.values() if (job.owner, job.token) == (owner, token))
        return next(same, None)

    def _check_room(self, owner: str | None, size: int) -> None:
        if size > self._inputs.share:
            raise InputTooLarge(
                f"the image has {size} bytes, but a job takes at most {self._inputs.share}: send "
                "it without respond-async"
            )
        if self._count.fits(owner, 1) and self._inputs.fits(owner, size):
            return
        detail = "too many jobs are held: fetch and delete finished ones, or try again later"
        headers = {"Retry-After": str(PATIENCE)}
        raise Refusal(OVERLOADED, detail, headers, queue_length=len(self._waiting))

    def _wake(self) -> None:
        """Start another runner if there is work for it."""
        if self._waiting and len(self._runners) < self._settings.workers:
            self._runners.add(asyncio.create_task(self._run(), context=Context()))
        self._note()

    async def _run(self) -> None:
        try:
            while job := self._waiting.take(lambda owner: self._results.fits(owner, 1)):
                await self._answer(job)
        finally:
            # not in a done callback: the next job must see that no runner is left
            self._runners.discard(asyncio.current_task())

    async def _answer(self, job: InferenceJob) -> None:
        record.begin(request=job.request, job=job.id)
        job.start()
        self._note()
        try:
            result = await self._result(job)
        except Exception as error:
            self._finish(job, refusal=self._refusal(job, error))
        except BaseException:
            self._finish(job, refusal=problem(NOT_READY, "the service was stopped"))
            raise
        else:
            self._finish(job, result)

    async def _result(self, job: InferenceJob) -> object:
        work = job.work
        cost = Cost() if work is None else work.call.cost(work.model)
        result = await self._engine.in_background(
            lambda: self._compute(job), cost, lambda: job.wanted
        )
        if work is None or not job.wanted:
            raise Cancelled
        return await work.completed(result)

    def _compute(self, job: InferenceJob) -> Any:  # noqa: ANN401 - a result of any kind
        """The result; on a thread, which asks before each layer whether to go on."""
        if job.work is None or not job.wanted:
            raise Cancelled
        wanted, give_way = (lambda: job.wanted), self._engine.give_way
        with cancelled_unless(wanted, give_way), reporting_to(job.report):
            return job.work.call.run(job.work.model)

    def _finish(
        self, job: InferenceJob, result: object = None, refusal: JSONResponse | None = None
    ) -> None:
        self._release(job)
        if job not in self:
            return
        size = held_bytes(result)
        if refusal is None and size > self._results.size:
            detail = f"the result has {size} bytes, but at most {self._results.size} are kept"
            refusal = problem(InputTooLarge.code, detail)
        if refusal is not None:
            job.fail(refusal)
        else:
            job.succeed(result)
            self._hold(job, self._results, size)
            share = NEWEST if self._average else 1.0
            self._average += share * (job.seconds - self._average)
        log.info("inference job %s %s", job.id, job.state)
        self._set_timer(job, self._settings.inference_job_keep_seconds, self.forget)
        self._note()

    def _refusal(self, job: InferenceJob, error: Exception) -> JSONResponse:
        if isinstance(error, Cancelled):
            detail = f"not done within {self._settings.inference_job_seconds:g} s"
            return problem(DEADLINE, detail)
        if (answer := answer_to(error)) is None:
            log_failure(error)
            answer = unexpected(job.request)
        return answer

    def _expire(self, job: InferenceJob) -> None:
        """End a job that is not done in time."""
        job.wanted = False
        if self._waiting.remove(job):
            self._finish(job, refusal=self._refusal(job, Cancelled()))

    def _set_timer(
        self, job: InferenceJob, seconds: float, then: Callable[[InferenceJob], None]
    ) -> None:
        if timer := self._timers.get(job.id):
            timer.cancel()
        self._timers[job.id] = asyncio.get_running_loop().call_later(seconds, then, job)

    def _hold(self, job: InferenceJob, quota: Quota, size: int) -> None:
        quota.take(job.owner, size)
        self._held[job.id] = quota, size

    def _release(self, job: InferenceJob) -> None:
        quota, size = self._held.pop(job.id, (None, 0))
        if quota is not None:
            quota.free(job.owner, size)

    def _note(self) -> None:
        """Update the metrics."""
        counts = Counter(job.state for job in self._jobs.values())
        for state in STATES:
            self._engine.metrics.inference_jobs.labels(state).set(counts[state])


def _owner() -> str | None:
    """The key of this request, if keys are needed."""
    who = record.known("who")
    return None if who is None else str(who)
