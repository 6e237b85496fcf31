"""When `caps_med.client` resends a request that did not reach a service or got no answer."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import httpx

#: The media type of the service's own errors (RFC 9457).
PROBLEM = "application/problem+json"
#: Seconds before the first repetition, at most; doubled with each one, up to `LONGEST_PAUSE`.
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 8.0


class Repeats:
    """Sends requests, and resends them if that is safe.

    - The service is busy (503 with ``Retry-After``): it has done nothing, so every request is
      resent after that time, up to `tries` times in total.
    - The connection was lost, or a proxy answered instead of the service (500 or more, and no
      problem document): the service was stopped or killed, and may have done the work. A request
      that has the same effect when sent twice is resent, up to `repeats` times and no later than
      `seconds` after the first time; one that a client is waiting with, for a job, as often as this
      time allows. Pauses are random ("full jitter"), so that many clients do not return at the same
      time.
    """

    def __init__(self, tries: int, repeats: int, seconds: float) -> None:
        if tries < 1:
            raise ValueError("tries must be at least 1")
        self._tries, self._repeats, self._seconds = tries, repeats, seconds

    def send(
        self,
        request: Callable[[], httpx.Response],
        repeatable: bool,
        waiting_until: float | None = None,
    ) -> httpx.Response:
        """The answer to a request, whatever it is.

        Args:
            request: sends it once.
            repeatable: whether it has the same effect when sent twice.
            waiting_until: on the monotonic clock, for a job that the service knows after a restart
                as well; then the number of repetitions is not bounded. None for other requests.

        Raises:
            httpx.TransportError: the connection was lost too often, or the request is not
                repeatable.
        """
        end, most = time.monotonic() + self._seconds, float(self._repeats)
        if waiting_until is not None and self._repeats > 0:
            end, most = min(end, waiting_until), float("inf")
        busy = lost = 0
        while True:
            may_repeat = repeatable and lost < most and time.monotonic() < end
            try:
                answer = request()
            except (httpx.NetworkError, httpx.RemoteProtocolError, httpx.ConnectTimeout):
                if not may_repeat:
                    raise
            else:
                after = retry_after(answer)
                if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE and after is not None:
                    busy += 1
                    if busy >= self._tries:
                        return answer
                    time.sleep(after)
                    continue
                if not (_of_a_proxy(answer) and may_repeat):
                    return answer
            longest = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(lost, 10))
            lost += 1
            time.sleep(random.uniform(0, longest))  # noqa: S311 - no secret


def retry_after(answer: httpx.Response) -> int | None:
    """The seconds of ``Retry-After``, if the answer has such a header."""
    text = answer.headers.get("Retry-After", "")
    return int(text) if text.isdigit() else None


def _of_a_proxy(answer: httpx.Response) -> bool:
    """Whether an error is not from the service, which reports its own as problem documents."""
    kind = answer.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    return answer.is_server_error and kind != PROBLEM
