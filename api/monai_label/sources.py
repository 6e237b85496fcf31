"""Where the image of a call is: in the call, in a session, in the data store, or in an archive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import Request, UploadFile

from api.archives.images import archived_image, located
from api.engine import Engine
from api.monai_label.session import owner, sessions_of
from api.problems import IMAGE_NOT_FOUND, SESSION_NOT_FOUND, Refusal
from api.routes.common import engine_of
from api.uploads import read_upload
from caps_med.archives.reference import SeriesReference
from caps_med.errors import ArchiveDenied, ArchiveUnavailable, SeriesNotFound
from caps_med.images import MedicalImage
from caps_med.images.dicom_origin import is_uid
from caps_med.inference import Model, Segmentation

if TYPE_CHECKING:
    from api.monai_label.datastore import Datastore, Stored


@dataclass(frozen=True)
class Source:
    """An image, with the channels that its model takes.

    Attributes:
        stored: where it is in the data store, if there.
    """

    image: MedicalImage
    stored: Stored | None = None

    async def keep(self, result: Segmentation) -> Mapping[int, str]:
        """Keep the answer as a prediction of the data store, if it is one; the labels' names."""
        return result.names if self.stored is None else await self.stored.keep(result)


async def source_of(
    request: Request, model: Model, image: str, session: str, file: UploadFile | None
) -> Source:
    """The decoded image.

    Args:
        image: its id.
        session: the id of a session.
        file: the image itself.

    Raises:
        Refusal: there is no such image or session (404), or the key may not use archives (403).
        CapsMedError, Busy, NoRoom: see `Engine.decode` and `archived_image`.
    """
    engine, fitting = await engine_of(request), model.image_reader.match_channels
    if session:
        found = sessions_of(request).get(session, owner())
        if found is None:
            raise Refusal(SESSION_NOT_FOUND, "there is no such session: create it again")
        return Source(await engine.decode([found.content], "image", fitting))
    if file is not None:
        return Source(await engine.decode([await read_upload(file)], "image", fitting))
    if not image:
        raise Refusal(IMAGE_NOT_FOUND, "name an image or a session, or send the part 'file'")
    datastore: Datastore | None = request.app.state.datastore
    if datastore is not None and (stored := await datastore.find(request, image)):
        return Source(await stored.decoded(model), stored)
    if is_uid(image) and engine.archives.names:
        reference = await archived(engine, image)
        return Source(await archived_image(engine, reference, fitting=fitting))
    raise Refusal(IMAGE_NOT_FOUND, "there is no image with this id: send it first")


async def archived(engine: Engine, series: str) -> SeriesReference:
    """The series with this UID, in the first archive that has it.

    Raises:
        SeriesNotFound: none has it. ArchiveUnavailable, ArchiveDenied: one that may have it does
            not answer, or does not accept the credentials.
        Refusal: the key may not use archives (403).
    """
    silent: ArchiveUnavailable | ArchiveDenied | None = None
    for name in engine.archives.names:
        try:
            return await located(engine, name, series)
        except SeriesNotFound:
            continue
        except (ArchiveUnavailable, ArchiveDenied) as error:
            silent = error
    raise silent or SeriesNotFound("no archive has a series with that UID")
