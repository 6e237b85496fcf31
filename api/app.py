"""The application: settings in, a FastAPI app out."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response

from api import problems
from api.engine import Engine
from api.metrics import Metrics
from api.routes import features, health, models, page, segment, synthesize
from api.settings import Settings
from api.uploads import BodyLimit
from caps_med import __version__

log = logging.getLogger("caps_med.api")

DESCRIPTION = """Segment medical images, synthesize them from label maps, and see what each capsule
sees. Every answer carries the model, its version, its weights' hash and the preprocessing in its
headers; every error is a problem document with a stable `code`."""


def create_app(settings: Settings | None = None) -> FastAPI:
    """The service, with a state of its own."""
    settings = settings or Settings()
    engine = Engine(settings, Metrics())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        warming = asyncio.create_task(engine.warm_up())
        warming.add_done_callback(_report)
        yield
        warming.cancel()

    app = FastAPI(
        title="caps_med",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        redoc_url=None,
    )
    app.state.engine = engine
    problems.install(app)
    for router in (health, models, segment, synthesize, features, page):
        app.include_router(router.router)
    app.middleware("http")(_observe)
    app.add_middleware(BodyLimit, limit=settings.max_upload_bytes)
    return app


def _report(warming: asyncio.Task[None]) -> None:
    if not warming.cancelled() and (error := warming.exception()):
        log.error("a preloaded model failed: %s: %s", type(error).__name__, error)


async def _observe(
    request: Request, call_next: Callable[[Request], Awaitable[Response]]
) -> Response:
    """One log line and one count an answer: ids, sizes and times, nothing of the content."""
    request.state.request_id = uuid.uuid4().hex
    start, status = time.perf_counter(), 500
    try:
        response = await call_next(request)
        status = response.status_code
        response.headers["X-Request-ID"] = request.state.request_id
        return response
    finally:
        route = getattr(request.scope.get("route"), "path", "unmatched")
        model = request.path_params.get("model", "-") if status < 400 else "-"
        engine: Engine = request.app.state.engine
        engine.metrics.requests.labels(route, model, str(status)).inc()
        line = {
            "request": request.state.request_id,
            "method": request.method,
            "route": route,
            "model": model,
            "status": status,
            "bytes_in": int(request.headers.get("content-length") or 0),
            "milliseconds": round(1000 * (time.perf_counter() - start), 1),
        }
        log.info(json.dumps(line))
