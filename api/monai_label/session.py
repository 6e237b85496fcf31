"""Routes of sessions: an image is sent once, for several calls of `infer`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, File, Form, Query, Request, UploadFile
from pydantic import BaseModel

from api.budget import current
from api.encoding import zip_bytes
from api.monai_label.sessions import Sessions
from api.record import known
from api.routes.common import EngineDependency, problems
from api.uploads import read_upload

router = APIRouter(prefix="/session", tags=["MONAI Label"])


class NewSession(BaseModel):
    """The id of a session, for later calls."""

    session_id: str
    session_info: dict[str, Any]


@router.put("/", summary="Send an image for several calls", responses=problems(413, 422, 503))
async def create(
    request: Request,
    engine: EngineDependency,
    files: Annotated[list[UploadFile], File(description="One image, or a DICOM series' slices.")],
    client_id: Annotated[str, Form(max_length=200)] = "",
    expiry: Annotated[
        int, Query(ge=0, le=2**31, description="Lifetime in seconds; 0 for the longest.")
    ] = 0,
    uncompress: Annotated[
        bool, Query(description="Has no effect: zips are read as they are.")
    ] = False,
) -> NewSession:
    """The image is held in memory, and decoded when it is used."""
    contents = [await read_upload(file) for file in files]
    content = await engine.run("pack", lambda: one_content(contents))
    session = sessions_of(request).add(owner(), content, float(expiry) or None)
    return NewSession(session_id=session.id, session_info=session.view())


@router.get("/{session}", summary="Whether a session exists")
async def show(
    request: Request,
    session: str,
    update_ts: Annotated[bool, Query(description="Has no effect: every use counts.")] = False,
) -> dict[str, Any]:
    """An empty object if it does not exist (any more): the client then sends the image again."""
    found = sessions_of(request).get(session, owner())
    return {} if found is None else found.view()


@router.delete("/{session}", summary="End a session")
async def end(request: Request, session: str) -> dict[str, Any]:
    """An empty object, whether or not the session existed."""
    if found := sessions_of(request).get(session, owner()):
        sessions_of(request).remove(found)
    return {}


def sessions_of(request: Request) -> Sessions:
    """The app's sessions."""
    sessions: Sessions = request.app.state.sessions
    return sessions


def owner() -> str | None:
    """The key of this request; None if it needs none."""
    who = known("who")
    return None if who is None else str(who)


def one_content(contents: Sequence[bytes]) -> bytes:
    """The content of one file, or of the slices of a DICOM series as a zip."""
    if len(contents) == 1:
        return contents[0]
    if claim := current():
        claim.add(sum(map(len, contents)))
    return zip_bytes((f"{number}.dcm", content) for number, content in enumerate(contents))
