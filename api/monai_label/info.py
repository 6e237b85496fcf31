"""GET /info/: the models, labels and strategies that there are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel

from api.routes.common import EngineDependency, problems
from caps_med import __version__
from caps_med.bundles import Bundle

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


@router.get("/", summary="Models, labels, strategies", responses=problems(500))
async def info(engine: EngineDependency) -> Info:
    """The segmentation models that answer."""
    listed = [bundle for bundle, _ in await engine.listed()]
    models = {b.name: ModelInfo.of(b) for b in listed if b.card.task == "segmentation"}
    labels = dict.fromkeys(name for model in models.values() for name in model.labels)
    return Info(
        description="Segmentation with capsule networks",
        version=__version__,
        labels=list(labels),
        models=models,
        datastore={"total": 0, "completed": 0, "label_tags": {}},
    )


def foreground(labels: Mapping[int, str]) -> dict[str, int]:
    """Name -> id of all labels but the first, the background, in the order of their ids."""
    return {name: label for label, name in sorted(list(labels.items())[1:])}
