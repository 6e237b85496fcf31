"""The models of the repository."""

from __future__ import annotations

from fastapi import APIRouter

from api.routes.common import EngineDependency, answers
from api.schemas import ModelDetail, ModelList, ModelSummary

router = APIRouter(prefix="/v1/models", tags=["models"])


@router.get("", summary="Every model's latest version")
async def list_models(engine: EngineDependency) -> ModelList:
    """Names, tasks, labels and scores."""
    bundles = await engine.run("list", engine.repository.list)
    preloaded = [reference.partition("@")[0] for reference in engine.settings.preload]
    return ModelList(models=[ModelSummary.of(b) for b in bundles], preloaded=preloaded)


@router.get("/{model}", summary="One model: layers, labels, scores, provenance",
            responses={404: answers()[404]})  # fmt: skip
async def show_model(model: str, engine: EngineDependency) -> ModelDetail:
    """`model` is a name, or `name@version`."""
    loaded = await engine.load(model)
    return ModelDetail.of_model(loaded, engine.repository.versions(loaded.name))
