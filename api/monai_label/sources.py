"""Where the image of a call is: in the call, in a session, or under its UID in an archive."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import Request, UploadFile

from api.archives.images import archived_image, located
from api.engine import Engine
from api.monai_label.session import owner, sessions_of
from api.problems import IMAGE_NOT_FOUND, SESSION_NOT_FOUND, Refusal
from api.routes.common import engine_of
from api.uploads import read_upload
from caps_med.archives.reference import SeriesReference, is_uid
from caps_med.errors import ArchiveUnavailable, SeriesNotFound
from caps_med.images import MedicalImage

Fitting = Callable[[MedicalImage], MedicalImage]


async def image_of(
    request: Request, fitting: Fitting, image: str, session: str, file: UploadFile | None
) -> MedicalImage:
    """The decoded image.

    Args:
        fitting: adapts it to a model.
        image: its id.
        session: the id of a session.
        file: the image itself.

    Raises:
        Refusal: there is no such image or session (404), or the key may not use archives (403).
        CapsMedError, Busy, NoRoom: see `Engine.decode` and `archived_image`.
    """
    engine = engine_of(request)
    if session:
        found = sessions_of(request).get(session, owner())
        if found is None:
            raise Refusal(SESSION_NOT_FOUND, "there is no such session: create it again")
        return await engine.decode([found.content], "image", fitting)
    if file is not None:
        return await engine.decode([await read_upload(file)], "image", fitting)
    if is_uid(image) and engine.archives.names:
        return await archived_image(engine, await archived(engine, image), fitting=fitting)
    if not image:
        raise Refusal(IMAGE_NOT_FOUND, "name an image or a session, or send the part 'file'")
    raise Refusal(IMAGE_NOT_FOUND, "there is no image of this id: send it first")


async def archived(engine: Engine, series: str) -> SeriesReference:
    """The series with this UID, in the first archive that has it.

    Raises:
        SeriesNotFound: none has it. ArchiveUnavailable: one that may have it does not answer.
        Refusal: the key may not use archives (403).
    """
    silent: ArchiveUnavailable | None = None
    for name in engine.archives.names:
        try:
            return await located(engine, name, series)
        except SeriesNotFound:
            continue
        except ArchiveUnavailable as error:
            silent = error
    raise silent or SeriesNotFound("no archive has a series with that UID")
