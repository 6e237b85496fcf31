"""Liveness, readiness, metrics."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST

from api.problems import NOT_READY, problem
from api.routes.common import EngineDependency, problems
from caps_med import __version__

router = APIRouter(tags=["health"])


@router.get("/healthz", summary="Whether the process lives")
async def healthz() -> dict[str, str]:
    """Answers as long as the event loop turns."""
    return {"status": "alive", "version": __version__}


@router.get("/readyz", summary="Whether the models are loaded and warm",
            responses=problems(503))  # fmt: skip
async def readyz(engine: EngineDependency) -> JSONResponse:
    """200 once the preloaded models have run, 503 before and while the service ends."""
    if engine.draining:
        return problem(NOT_READY, "the service is about to end", {"Retry-After": "5"})
    if not engine.ready:
        return problem(NOT_READY, "models are being loaded", {"Retry-After": "1"})
    return JSONResponse({"status": "ready"})


@router.get("/metrics", summary="Prometheus metrics", response_class=Response)
async def metrics(engine: EngineDependency) -> Response:
    """Counts and times in Prometheus' text format."""
    return Response(engine.metrics.text(), media_type=CONTENT_TYPE_LATEST)
