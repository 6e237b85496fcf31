"""The application: settings in, a FastAPI app out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

from fastapi import Depends, FastAPI
from starlette.middleware.cors import CORSMiddleware

from api import document, examples, jobs, misdirected, monai_label, problems, projects
from api.access.gate import Gate
from api.access.headers import SecurityHeaders
from api.access.keys import KeyStore, default_path
from api.access.live import LiveKeys
from api.access.tokens import Tokens
from api.audit import AuditFirst
from api.background import InferenceJobs
from api.engine import Engine
from api.forwarded import Forwarded
from api.head_requests import HeadRequests
from api.lifetime import Lifetime
from api.metrics import Metrics
from api.observe import Observe
from api.routes import (
    archives,
    classify,
    features,
    health,
    images,
    inference_jobs,
    interpolate,
    manipulate,
    models,
    page,
    samples,
    segment,
    swagger,
    synthesize,
)
from api.routes.added import ROUTERS
from api.routes.common import known_parameters
from api.settings import Settings
from api.uploads import BodyLimit
from caps_med import __version__

log = logging.getLogger("caps_med.api")

#: Largest form field that is not a file, in bytes.
MAX_FIELD_BYTES = 64 * 1024
#: Fields of a form that are no files: a training job has an option in each.
MAX_FIELDS = 64

DESCRIPTION = """Segment medical images, synthesize them from label maps, and see what each capsule
sees. Every answer carries the model, its version, its weights' hash and the preprocessing in its
headers; every error is a problem document with a stable `code`."""


def create_app(settings: Settings | None = None) -> FastAPI:
    """A new application of the service with the given settings."""
    settings = settings or Settings()
    engine = Engine(settings, Metrics())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        warming = asyncio.create_task(engine.warm_up())
        warming.add_done_callback(_report)
        watching = asyncio.create_task(engine.watch())
        async with (
            training.running() if training else nullcontext(),
            annotation.running() if annotation else nullcontext(),
        ):
            yield
            engine.drain()
        await app.state.inference_jobs.close()
        warming.cancel()
        watching.cancel()
        await asyncio.wait({warming, watching})
        engine.decoders.close()

    app = FastAPI(
        title="caps_med",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # its page loads scripts from another host: see api.routes.swagger
        redoc_url=None,
        dependencies=[Depends(known_parameters)],
        form_limits={
            "max_files": settings.max_parts,
            "max_fields": MAX_FIELDS,
            "max_part_size": MAX_FIELD_BYTES,
        },
    )
    app.state.engine = engine
    app.state.known_parameters = {}
    app.state.inference_jobs = InferenceJobs(engine)
    problems.install(app)
    for router in (
        health, models, segment, synthesize, classify, interpolate, features, manipulate,
        archives, images, samples,
    ):  # fmt: skip
        app.include_router(router.router)
    for added in ROUTERS.values():
        app.include_router(added)
    if settings.inference_only:
        misdirected.install(app)
    else:
        app.include_router(inference_jobs.router)
    page.install(app)
    app.include_router(swagger.router)
    training = jobs.install(app, engine)
    annotation = projects.install(app, engine, training)
    if settings.monai_label:
        monai_label.install(app, engine, annotation, training)
    app.add_middleware(HeadRequests)
    app.add_middleware(BodyLimit, bounds=settings.body_bounds, memory=engine.budget)
    app.add_middleware(Lifetime, seconds=settings.request_seconds)
    _guard(app, settings)
    document.install(app)
    examples.install(app)
    if settings.audit_required:
        app.add_middleware(AuditFirst)
    app.add_middleware(Observe, metrics=engine.metrics)
    app.add_middleware(SecurityHeaders)
    app.add_middleware(Forwarded, proxies=settings.trusted_proxies)
    return app


def _guard(app: FastAPI, settings: Settings) -> None:
    """Require keys, and let the sites call that the operator names."""
    app.state.keys = LiveKeys(KeyStore(settings.keys or default_path()))
    app.state.tokens = Tokens(settings.token_seconds) if settings.monai_label else None
    app.add_middleware(
        Gate,
        keys=app.state.keys,
        tokens=app.state.tokens,
        required=settings.require_keys,
        per_minute=settings.rate_per_minute,
        replicas=settings.replicas,
        hosts=settings.allowed_hosts,
        origins=settings.cors_origins,
    )
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=("GET", "HEAD", "POST", "PUT", "DELETE"),
            allow_headers=(
                "Authorization",
                "X-API-Key",
                "Content-Type",
                "Idempotency-Key",
                "If-Match",
                "If-None-Match",
                "Prefer",
            ),
            expose_headers=("*",),
        )


def _report(warming: asyncio.Task[None]) -> None:
    if not warming.cancelled() and (error := warming.exception()):
        log.error("a preloaded model failed: %s: %s", type(error).__name__, error)
