"""A series of an archive as an image: retrieved, then decoded as an upload is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from api.decoding.choice import NOTHING, Choice
from api.engine import Engine
from api.record import note
from caps_med.archives import SeriesReference, only_series
from caps_med.errors import SeriesNotFound
from caps_med.images import Kind, MedicalImage


async def archived_image(
    engine: Engine,
    reference: SeriesReference,
    kind: Kind = "image",
    fitting: Callable[[MedicalImage], MedicalImage] | None = None,
    choice: Choice = NOTHING,
) -> MedicalImage:
    """The image of a series, decoded in a confined process.

    Args:
        fitting: adapts the image to a model, see `Engine.decode`.

    Raises:
        Refusal: the key lacks the scope "archive".
        CapsMedError: `ArchiveNotFound`, `SeriesNotFound`, `ArchiveUnavailable`, `ArchiveDenied`, or
            whatever is wrong with the files.
        Busy, NoRoom: there is no room for it now.
    """
    content = await engine.archives.retrieve(reference)
    digest = await engine.run("hash", lambda: hashlib.sha256(content).hexdigest())
    note(input_sha256=digest)
    with only_series(reference) as checked:
        return checked(await engine.decode([content], kind, fitting, choice))


async def located(engine: Engine, archive: str, series: str) -> SeriesReference:
    """The reference to a series whose study is not known.

    Raises:
        Refusal, CapsMedError, Busy: see `archived_image`.
    """
    found = await engine.archives.find(archive, series=series)
    if not found:
        raise SeriesNotFound(f"the archive {archive!r} has no series with that UID")
    return SeriesReference(archive, found[0].study, series)
