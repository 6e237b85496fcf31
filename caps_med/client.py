"""A Python client of the service.

    with Client("http://127.0.0.1:8000") as client:
        label_map = client.segment("brain-t1-tissue", "t1.nii.gz")

It needs the extra ``client`` (httpx).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import uuid4

from caps_med.extras import require_extra

require_extra("client", "caps_med.client")
import httpx  # noqa: E402

from caps_med.client_paths import route  # noqa: E402
from caps_med.client_projects import Projects, texts  # noqa: E402
from caps_med.client_repeats import Repeats, retry_after  # noqa: E402

#: A file: its path or its bytes.
Content = str | Path | bytes
#: Called with the document of a job.
Progress = Callable[[dict[str, Any]], None]
#: Seconds between two polls of a job.
PAUSE = 0.5
#: Seconds for which the job of a request that was interrupted is looked for, to cancel it.
UNWANTED = 10.0
#: Seconds of silence after which a stream of events is dead: the service sends a sign of life every
#: 15 s.
SILENCE = 45.0
#: The key has sent too many requests, or the service is busy: with a time after which to ask again.
_LATER = (httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE)


class ServiceError(Exception):
    """The service answered with a problem document, or a proxy with an unsuccessful status.

    Attributes:
        status, code, detail: members of the document; for a redirection, its target.
        problem: the whole document.
        retry_after: seconds after which to try again, if the service says so.
    """

    def __init__(self, answer: httpx.Response) -> None:
        try:
            problem = answer.json()
        except ValueError:
            problem = {}
        self.problem: dict[str, Any] = problem if isinstance(problem, dict) else {}
        self.status = answer.status_code
        self.code, self.detail = self.problem.get("code", ""), self.problem.get("detail", "")
        if answer.has_redirect_location:  # of a proxy, which takes HTTPS alone or another name
            self.detail = f"moved to {answer.headers['Location']}: give the client that address"
        self.retry_after = retry_after(answer)
        super().__init__(f"{self.status} {self.code}: {self.detail}")


class Client:
    """A connection to one service; use it as a context manager or close it.

    Args:
        address: ``http://host:port``.
        key: API key, if the service needs one, in printable ASCII characters.
        timeout: seconds to wait for an answer.
        tries: attempts while the service is busy (503 with ``Retry-After``).
        repeats: how often a request is sent again, within `timeout` seconds, if its answer was
            lost, see `caps_med.client_repeats`: requests that only read, inference, and jobs,
            which have an ``Idempotency-Key``. While the client waits for a job, as often as that
            time allows, unless `repeats` is 0.
        transport: httpx transport, for tests.

    Attributes:
        projects: the projects of the service, see `caps_med.client_projects`.

    Raises:
        ValueError: `key` cannot be used in a header.
    """

    def __init__(
        self,
        address: str,
        key: str | None = None,
        timeout: float = 300.0,
        tries: int = 1,
        repeats: int = 4,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        headers = {} if key is None else {"Authorization": f"Bearer {_in_header('key', key)}"}
        self._repeats = Repeats(tries, repeats, timeout)
        self._listening = httpx.Timeout(timeout, read=max(timeout, SILENCE))
        self._http = httpx.Client(
            base_url=address, headers=headers, timeout=timeout, transport=transport
        )
        self.projects = Projects(self._send)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def models(self) -> list[dict[str, Any]]:
        """The latest version of every model."""
        found: list[dict[str, Any]] = self._json("GET", route("models"))["models"]
        return found

    def model(self, name: str) -> dict[str, Any]:
        """One model: layers, labels, scores, provenance."""
        return self._json("GET", route("models", name))

    def segment(
        self,
        model: str,
        image: Content | Sequence[Content],
        format: str | None = None,
        *,
        wait: bool = False,
        progress: Progress | None = None,
        refine: str | None = None,
        disagreement: bool = False,
        tta: bool = False,
        map: str | None = None,
    ) -> bytes:
        """The label map of an image, by default in the image's format.

        Args:
            model: its name.
            image: one file, or one for each channel of the image, in the model's order.
            format: of the answer.
            wait: compute the answer in the background and wait for it, however long it takes; for
                volumes. Ctrl-C cancels it.
            progress: with `wait`, called with the current job: `state`, `position` in the queue,
                `progress` (`done` and `total` slices), `seconds_left`.
            refine, disagreement, tta: see `caps_med.inference.Model.segment`.
            map: ``confidence``, ``entropy``, ``disagreement`` or ``probabilities`` instead of the
                label map, or with ``format="zip"`` in addition to it.

        Raises:
            ServiceError: the service refused the request.
        """
        switches = {"disagreement": disagreement, "tta": tta}
        on = {name: "true" for name, given in switches.items() if given}
        asked = {"refine": refine, **on, "map": map}
        form = {name: value for name, value in asked.items() if value}
        return self._infer(model, "segment", {"image": image}, form, format, wait, progress)

    def synthesize(
        self,
        model: str,
        labels: Content,
        seed: int = 0,
        count: int = 1,
        format: str | None = None,
        *,
        wait: bool = False,
        progress: Progress | None = None,
    ) -> bytes:
        """An image synthesized from a label map; several are returned as a zip.

        Args:
            model: its name.
            labels: the label map.
            seed, count: image i of `count` has the seed `seed + i`.
            format, wait, progress: see `segment`.

        Raises:
            ServiceError: the service refused the request.
        """
        form = {"seed": str(seed), "count": str(count)}
        return self._infer(model, "synthesize", {"labels": labels}, form, format, wait, progress)

    def features(
        self,
        model: str,
        image: Content | Sequence[Content] | None = None,
        labels: Content | None = None,
        format: str | None = None,
        **form: str | int | None,
    ) -> bytes:
        """The capsules of an image or label map; `form` may have layer, slice, seed.

        Raises:
            ServiceError: the service refused the request.
        """
        given = {"image": image, "labels": labels}
        parts = {name: content for name, content in given.items() if content is not None}
        return self._infer(model, "features", parts, texts(form), format)

    def classify(
        self,
        model: str,
        image: Content,
        slice: int | None = None,
        region: tuple[int, int, int, int] | None = None,
    ) -> dict[str, Any]:
        """Classify an image: ``label``, ``classes`` by decreasing probability, ``warnings``.

        Args:
            model: its name.
            image: one file.
            slice: slice of a volume; None for the middle one.
            region: row, column, height and width of the part to classify; None for the whole.

        Raises:
            ServiceError: the service refused the request.
        """
        form = {} if slice is None else {"slice": str(slice)}
        if region is not None:
            form["region"] = ",".join(map(str, region))
        found: dict[str, Any] = json.loads(
            self._infer(model, "classify", {"image": image}, form, "json")
        )
        return found

    def manipulate(
        self, model: str, image: Content, format: str | None = None, **form: str | int | None
    ) -> bytes:
        """Reconstructions with one atom shifted; `form` may have capsule, atom, deltas, slice.

        Raises:
            ServiceError: the service refused the request.
        """
        return self._infer(model, "manipulate", {"image": image}, texts(form), format)

    def train(
        self,
        task: str,
        name: str,
        archive: Content | None = None,
        data: str | None = None,
        token: str | None = None,
        **options: str | int | float | None,
    ) -> dict[str, Any]:
        """Submit a training job, or get the earlier one with the same `token`.

        Args:
            task: segmentation, synthesis or classification.
            name: name of the new model.
            archive: zip or tar of labelled images; or
            data: name of a data set of the service.
            token: any text in printable ASCII characters that identifies this job; None draws a
                new one for each call.
            options: as for `caps-med train`: epochs, steps, batch_size, crop, learning_rate,
                network, start_from, seed, license and so on; `/docs` lists them. None is the
                default.

        Raises:
            ServiceError: ``data_not_fit`` lists the faults of the data as `findings`.
            ValueError: `token` cannot be used in a header.
        """
        named = {"Idempotency-Key": _in_header("token", token)} if token else _named({})
        form = {"task": task, "name": name, **texts(options)}
        if data is not None:
            form["data"] = data
        parts = {} if archive is None else {"archive": archive}
        answer = self._send(
            "POST", route("training-jobs"), data=form, files=_files(parts), headers=named,
            repeatable=True,
        )  # fmt: skip
        job: dict[str, Any] = answer.json()
        return job

    def promote(self, version: str) -> dict[str, Any]:
        """Make a model's name refer to version ``name@3``; needs a key with the scope admin."""
        return self._json("PUT", route("models", version, "promoted"))

    def jobs(self) -> list[dict[str, Any]]:
        """The newest training jobs."""
        found: list[dict[str, Any]] = self._json("GET", route("training-jobs"))["jobs"]
        return found

    def job(self, identity: str) -> dict[str, Any]:
        """One training job."""
        return self._json("GET", route("training-jobs", identity))

    def job_log(self, identity: str) -> list[str]:
        """The end of a job's log."""
        lines: list[str] = self._json("GET", route("training-jobs", identity, "log"))["lines"]
        return lines

    def cancel(self, identity: str) -> dict[str, Any] | None:
        """Cancel a job and return it, or delete a finished one and return None."""
        answer = self._send("DELETE", route("training-jobs", identity))
        return None if answer.status_code == 204 else answer.json()

    def wait(self, identity: str, seconds: float = float("inf")) -> dict[str, Any]:
        """Wait until a job is finished.

        Raises:
            TimeoutError: it is not finished within `seconds`, or the service is too busy to answer.
        """
        url, end = route("training-jobs", identity), time.monotonic() + seconds
        while True:
            job: dict[str, Any] = self._patiently("GET", url, end).json()
            if job["state"] in ("succeeded", "failed", "cancelled"):
                return job
            if time.monotonic() > end:
                raise TimeoutError(f"job {identity} is still {job['state']}")
            time.sleep(PAUSE)

    def follow(self, identity: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """The events of a job as they come: (job | log | picture | end, content).

        Raises:
            ServiceError: the service refused the request.
            httpx.RemoteProtocolError: the service was stopped or killed before the job was
                finished: follow it again, for it goes on when the service starts.
        """
        url, name = route("training-jobs", identity, "events"), ""
        with self._http.stream("GET", url, timeout=self._listening) as answer:
            if not answer.is_success:
                answer.read()
                raise ServiceError(answer)
            for line in answer.iter_lines():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    yield name, json.loads(line.removeprefix("data: "))
        if name != "end":
            raise httpx.RemoteProtocolError(
                f"the service has ended the events of job {identity}, which is not finished: "
                "follow it again"
            )

    def _infer(
        self,
        model: str,
        call: str,
        parts: Mapping[str, Content | Sequence[Content]],
        form: Mapping[str, str],
        format: str | None,
        wait: bool = False,
        progress: Progress | None = None,
    ) -> bytes:
        headers = _named({"Prefer": "respond-async"} if wait else {})
        files = _files(parts)
        try:
            answer = self._send(
                "POST",
                route("models", model, call),
                files=files,
                data=form,
                params={} if format is None else {"format": format},
                headers=headers,
                repeatable=True,
            )
        except ServiceError:
            raise
        except BaseException:
            if wait:
                self._cancel_begun(headers)
            raise
        if answer.status_code != httpx.codes.ACCEPTED:
            return answer.content
        # not its Location, which holds the path of a proxy as the client's own address does
        return self._awaited(answer.json()["id"], progress)

    def _awaited(self, identity: str, progress: Progress | None) -> bytes:
        """The result of an inference job, which is deleted whatever happens."""
        url = route("inference-jobs", identity)
        try:
            while True:
                job = self._patiently("GET", url).json()
                if progress is not None:
                    progress(job)
                if job["state"] in ("succeeded", "failed"):
                    break
                time.sleep(PAUSE)
            content = self._patiently("GET", route("inference-jobs", identity, "result")).content
        except BaseException:
            with suppress(httpx.HTTPError):
                self._http.delete(url)
            raise
        with suppress(httpx.HTTPError, ServiceError):
            self._patiently("DELETE", url)
        return content

    def _cancel_begun(self, named: Mapping[str, str]) -> None:
        """Delete the job that an unanswered request may have started.

        Args:
            named: headers of the request.
        """
        end = time.monotonic() + UNWANTED
        token = {"Idempotency-Key": named["Idempotency-Key"]}
        with suppress(httpx.HTTPError):
            while time.monotonic() < end:
                found = self._http.get(route("inference-jobs"), headers=token, timeout=UNWANTED)
                if found.is_success:
                    self._http.delete(route("inference-jobs", found.json()["id"]))
                if found.status_code != httpx.codes.CONFLICT:  # the service still reads it
                    return
                time.sleep(PAUSE)

    def _patiently(self, method: str, url: str, end: float = float("inf")) -> httpx.Response:
        """The answer to a request about a job, sent again while the service starts anew or is busy,
        or the key has exceeded its rate: polls count towards it, just like the work of the job.

        Args:
            end: deadline on the monotonic clock.

        Raises:
            TimeoutError: it would have to be sent again after the deadline.
        """
        while True:
            try:
                return self._send(method, url, waiting_until=end)
            except ServiceError as error:
                if error.status not in _LATER or error.retry_after is None:
                    raise
                pause = max(PAUSE, error.retry_after)
                if time.monotonic() + pause > end:
                    raise TimeoutError(f"the service is busy for another {pause:g} s") from error
                time.sleep(pause)

    def _json(self, method: str, url: str) -> dict[str, Any]:
        found: dict[str, Any] = self._send(method, url).json()
        return found

    def _send(
        self,
        method: str,
        url: str,
        repeatable: bool = False,
        waiting_until: float | None = None,
        **request: Any,  # noqa: ANN401
    ) -> httpx.Response:
        """The answer to a request; it may be repeated if it is `repeatable` or only reads."""
        answer = self._repeats.send(
            lambda: self._http.request(method, url, **request),
            repeatable or method == "GET",
            waiting_until,
        )
        if not answer.is_success:
            raise ServiceError(answer)
        return answer


def _in_header(argument: str, text: str) -> str:
    """A text, if a header can hold it; the error does not show it, because keys are secret."""
    if not (text.isascii() and text.isprintable()):
        raise ValueError(
            f"{argument}: must consist of printable ASCII characters; it has others, such as a "
            "line break or a letter with an accent"
        )
    return text


def _named(headers: Mapping[str, str]) -> dict[str, str]:
    """Headers with which a request counts as one, however often sent: one job, one audit key."""
    return {**headers, "Idempotency-Key": uuid4().hex}


def _files(
    parts: Mapping[str, Content | Sequence[Content]],
) -> list[tuple[str, tuple[str, bytes]]]:
    """Multipart files without names, which could identify a patient; one per list item."""
    return [
        (name, ("file", one if isinstance(one, bytes) else Path(one).read_bytes()))
        for name, given in parts.items()
        for one in ([given] if isinstance(given, str | Path | bytes) else given)
    ]
