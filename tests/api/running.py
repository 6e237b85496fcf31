"""A real server on a thread of this process, whose engine a test can hold still."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.app import create_app
from api.engine import Apply, Cost, Engine
from api.server import Server, configured
from api.settings import Settings
from tests.waiting import PATIENCE, until

T = TypeVar("T")


@dataclass
class Running:
    """The server's address, its engine, and its loop."""

    address: str
    port: int
    engine: Engine
    server: Server
    loops: list[asyncio.AbstractEventLoop] = field(default_factory=list)

    def do(self, coroutine: Any) -> Future[Any]:  # noqa: ANN401
        """Run a coroutine on the server's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loops[0])

    @contextmanager
    def held(self, model: str) -> Iterator[None]:
        """No network runs inside this block: its one place is taken."""
        taken, release = threading.Event(), threading.Event()

        def hold(_: object) -> None:
            taken.set()
            release.wait(PATIENCE)

        loaded = self.do(self.engine.load(model)).result(PATIENCE)
        work: Apply[None] = Apply(hold, lambda _: Cost())
        holding = self.do(self.engine.predict(loaded, work))
        assert taken.wait(PATIENCE)
        try:
            yield
        finally:
            release.set()
            holding.result(PATIENCE)

    def waiting(self) -> float:
        """Requests in all queues."""
        families = self.engine.metrics.queue_length.collect()
        return float(sum(sample.value for family in families for sample in family.samples))

    def count(self, **labels: str) -> float:
        """Answers counted with these labels."""
        families = self.engine.metrics.requests.collect()
        samples = (s for f in families for s in f.samples if s.name.endswith("_total"))
        return float(sum(s.value for s in samples if labels.items() <= s.labels.items()))


class UnderPath:
    """What nginx does for a service under a path: see docs/service.md."""

    def __init__(self, app: ASGIApp, path: str) -> None:
        self.app, self.path = app, path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Leave the path out of the request, and add it to the answer's Location."""

        async def adding(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if headers.get("Location", "").startswith("/"):
                    headers["Location"] = self.path + headers["Location"]
            await send(message)

        if scope["type"] == "http":
            assert scope["path"].startswith(f"{self.path}/")
            asked = scope["path"].removeprefix(self.path)
            scope = {**scope, "path": asked, "raw_path": asked.encode()}
        await self.app(scope, receive, adding)


@contextmanager
def running(settings: Settings, path: str = "") -> Iterator[Running]:
    """Serve on a free port until the block ends; `path` is a proxy's before the service's own."""
    app = create_app(settings)
    if path:
        app.add_middleware(UnderPath, path=path)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = Server(configured(app, settings), app.state.engine)
    found = Running(f"http://127.0.0.1:{port}{path}", port, app.state.engine, server)

    async def serve() -> None:
        found.loops.append(asyncio.get_running_loop())
        await server.serve([listener])

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        yield found
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` on a thread: Playwright keeps a loop running on the main one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
