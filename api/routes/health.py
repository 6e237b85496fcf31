"""Liveness, readiness, metrics."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST

from api.problems import NOT_READY, problem
from api.routes.common import EngineDependency, problems
from caps_med import __version__

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Whether the process is alive")
async def healthz() -> dict[str, str]:
    """200 as long as the event loop runs."""
    return {"status": "alive", "version": __version__}


@router.get("/readyz", summary="Whether the models are loaded and warmed up",
            responses=problems(503))  # fmt: skip
async def readyz(engine: EngineDependency) -> JSONResponse:
    """200 once the preloaded models have run; 503 before that and during shutdown."""
    if engine.draining:
        return problem(NOT_READY, "the service is stopping", {"Retry-After": "5"})
    if engine.failed:
        detail = "a preloaded model or a decoder failed to start: see the service's log"
        return problem(NOT_READY, detail, {"Retry-After": "60"})
    if not engine.ready:
        return problem(NOT_READY, "models are being loaded", {"Retry-After": "1"})
    return JSONResponse({"status": "ready"})


@router.get("/metrics", summary="Prometheus metrics", response_class=Response)
async def metrics(engine: EngineDependency) -> Response:
    """Metrics in Prometheus' text format."""
    return Response(engine.metrics.text(), media_type=CONTENT_TYPE_LATEST)
