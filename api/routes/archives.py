"""The archives that requests may name."""

from __future__ import annotations

from fastapi import APIRouter

from api.routes.common import EngineDependency
from api.schemas import ArchiveList

router = APIRouter(prefix="/v1/archives", tags=["archives"])


@router.get("", summary="The archives that requests may name")
async def list_archives(engine: EngineDependency) -> ArchiveList:
    """Only their names; the settings of the service say where they are."""
    return ArchiveList(archives=engine.archives.names)
