"""GET /info/: the models, labels and strategies that there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anyio import to_thread
from fastapi import APIRouter, Request
from pydantic import BaseModel

from api.routes.common import EngineDependency, problems
from caps_med import __version__
from caps_med.bundles import Bundle

if TYPE_CHECKING:
    from api.monai_label.datastore import Datastore

router = APIRouter(prefix="/info", tags=["MONAI Label"])


class ModelInfo(BaseModel):
    """A model as clients list it."""

    type: str = "segmentation"
    labels: dict[str, int]
    dimension: int
    description: str
    version: int
    config: dict[str, Any] = {}

    @classmethod
    def of(cls, bundle: Bundle) -> ModelInfo:
        """From the bundle's metadata."""
        card = bundle.card
        return cls(
            labels=foreground(card.labels),
            dimension=3,  # slice by slice, where the network is one of pictures
            description=card.description,
            version=bundle.version,
        )


class Info(BaseModel):
    """What a client needs to know before any other call."""

    name: str = "caps_med"
    description: str
    version: str
    labels: list[str]
    models: dict[str, ModelInfo]
    trainers: dict[str, Any] = {}
    strategies: dict[str, Any] = {}
    scoring: dict[str, Any] = {}
    train_stats: dict[str, Any] = {}
    datastore: dict[str, Any]


@router.get("/", summary="Models, labels, strategies", responses=problems(500, 503))
async def info(request: Request, engine: EngineDependency) -> Info:
    """The available segmentation models, the one of the data store first."""
    listed = [bundle for bundle, _ in await engine.listed()]
    models = {b.name: ModelInfo.of(b) for b in listed if b.card.task == "segmentation"}
    labels = dict.fromkeys(name for model in models.values() for name in model.labels)
    found = Info(
        description="Segmentation with capsule networks",
        version=__version__,
        labels=list(labels),
        models=models,
        datastore={"total": 0, "completed": 0, "label_tags": {}},
    )
    datastore: Datastore | None = request.app.state.datastore
    if datastore is None:
        return found
    return found.model_copy(update=await of_datastore(request, datastore, models))


async def of_datastore(
    request: Request, datastore: Datastore, models: dict[str, ModelInfo]
) -> dict[str, Any]:
    """What the data store adds: its labels instead of those of all models, trainings."""
    from api.monai_label.samples import DESCRIPTIONS

    strategies = {name: {"description": text, "config": {}} for name, text in DESCRIPTIONS.items()}
    added: dict[str, Any] = {
        "datastore": await datastore.state(request),
        "strategies": strategies,
    }
    project = await datastore.project(request)
    if project is None:
        return added
    own = project.model.partition("@")[0]
    if own in models:
        named = models[own].model_copy(update={"labels": foreground(project.labels)})
        models = {own: named, **{name: one for name, one in models.items() if name != own}}
    added |= {"labels": list(foreground(project.ids)), "models": models}
    if not datastore.rounds.offered:
        return added
    last = await to_thread.run_sync(datastore.rounds.last, project)
    stats = {} if last is None else await to_thread.run_sync(datastore.rounds.stats, last)
    trainer = {"description": f"trains {project.model} further on the corrected images"}
    return added | {
        "trainers": {project.trained_name: {"type": "segmentation", "config": {}, **trainer}},
        "train_stats": {project.trained_name: stats},
    }


def foreground(labels: Mapping[int, str]) -> dict[str, int]:
    """Name -> id of all labels but the first, the background, in the order of their ids."""
    return {name: label for label, name in sorted(list(labels.items())[1:])}
