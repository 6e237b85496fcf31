"""The models of the repository."""

from __future__ import annotations

from fastapi import APIRouter

from api.routes.common import EngineDependency, answers, problems
from api.schemas import ModelDetail, ModelList, ModelSummary

router = APIRouter(prefix="/v1/models", tags=["models"])


@router.get("", summary="All models, each in the version that is served")
async def list_models(engine: EngineDependency) -> ModelList:
    """Names, tasks, labels and scores; `warnings` if newer versions cannot be served."""
    found = [ModelSummary.of(bundle, warnings) for bundle, warnings in await engine.listed()]
    preloaded = [reference.partition("@")[0] for reference in engine.settings.preload]
    return ModelList(models=found, preloaded=preloaded)


@router.get("/{model}", summary="One model: layers, labels, scores, provenance",
            responses={404: answers()[404]})  # fmt: skip
async def show_model(model: str, engine: EngineDependency) -> ModelDetail:
    """`model` is a name, or `name@version`."""
    loaded = await engine.load(model)
    return ModelDetail.of_model(loaded, engine.repository)


@router.put("/{model}/promoted", summary="Promote a version: the model's name then stands for it",
            responses=problems(404, 422, 503, 507))  # fmt: skip
async def promote(model: str, engine: EngineDependency) -> ModelSummary:
    """`model` is `name@version`: a candidate or an earlier version. Newer versions become
    candidates, which are available only as `name@version`. Requires the scope `admin`.
    """
    return ModelSummary.of(await engine.promote(model))
