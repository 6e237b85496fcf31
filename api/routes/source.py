"""Where an image comes from: an upload, or a series of an archive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, File, Form, UploadFile

from api.archives.images import archived_image
from api.decoding.choice import NOTHING, Choice
from api.engine import Engine
from api.routes.common import IMAGE_FILES, ChoiceDependency, decoded_upload
from caps_med.archives import SeriesReference
from caps_med.errors import InvalidParameter
from caps_med.images import MedicalImage
from caps_med.inference import Model

OptionalImageFiles = Annotated[list[UploadFile] | None, File(description=IMAGE_FILES)]
ArchiveField = Annotated[
    str | None,
    Form(
        max_length=64,
        description="Instead of image: the archive of a series, as `GET /v1/archives` names it. "
        "Requires a key with the scope `archive`.",
    ),
]
StudyField = Annotated[
    str | None, Form(max_length=64, description="With archive: Study Instance UID of the series.")
]
SeriesField = Annotated[
    str | None, Form(max_length=64, description="With archive: Series Instance UID.")
]


@dataclass(frozen=True)
class Source:
    """An image that a request sends or names.

    Attributes:
        uploads: the channels of one image; none if `reference` names it.
        reference: the series.
        choice: the series of an upload, and the volume to take.
    """

    uploads: Sequence[UploadFile]
    reference: SeriesReference | None
    choice: Choice = NOTHING

    async def decoded(self, engine: Engine, model: Model) -> MedicalImage:
        """The image, with the channels that the model takes.

        Raises:
            CapsMedError: neither is given, or it cannot be retrieved or decoded, or does not fit.
            Refusal: the key lacks the scope "archive".
        """
        if self.reference is not None:
            fitting = model.image_reader.match_channels
            return await archived_image(engine, self.reference, "image", fitting, self.choice)
        return await decoded_upload(engine, model, self.uploads, "image", self.choice)


async def optional_source(
    choice: ChoiceDependency,
    image: OptionalImageFiles = None,
    archive: ArchiveField = None,
    study: StudyField = None,
    series: SeriesField = None,
) -> Source | None:
    """The image of a request; None if there is none.

    Raises:
        InvalidParameter: both an upload and a series are given, or only a part of a reference.
    """
    named = [part for part in (archive, study, series) if part is not None]
    if not named:
        return Source(image, None, choice) if image else None
    if image:
        raise InvalidParameter("image: send a file or name a series of an archive, not both")
    if archive is None or study is None or series is None:
        raise InvalidParameter("archive, study and series: must be given together")
    if choice.series is not None:
        raise InvalidParameter(
            "?series= selects a series of an upload, the part 'series' one of an archive: leave "
            "one of them out"
        )
    return Source((), SeriesReference(archive, study, series), Choice(volume=choice.volume))


OptionalSource = Annotated[Source | None, Depends(optional_source)]


async def required_source(source: OptionalSource) -> Source:
    """The image of a request.

    Raises:
        InvalidParameter: there is none.
    """
    if source is None:
        raise InvalidParameter(
            "image: Field required; or name a series of an archive: archive, study and series"
        )
    return source


RequiredSource = Annotated[Source, Depends(required_source)]
