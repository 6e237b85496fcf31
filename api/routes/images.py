"""POST an image in any supported format: NIfTI, NRRD or MetaImage of it, or one slice as PNG."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, File, Form, Response, UploadFile
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from api.encoding import MEDIA_TYPES, negotiate
from api.routes.common import (
    Accept,
    ChoiceDependency,
    EngineDependency,
    Format,
    answers,
    problems,
)
from api.uploads import read_upload
from caps_med.errors import InvalidParameter
from caps_med.images import (
    MedicalImage,
    Plane,
    SliceStack,
    chosen_slice,
    encode_image,
    one_slice,
    slice_count,
    with_channels,
)
from caps_med.images.channels import is_colour, is_grey, is_plain_volume
from caps_med.images.codecs.nifti import has_one_member
from caps_med.preprocessing import picture_of, single_slice_plane

router = APIRouter(prefix="/v1/images", tags=["images"])

_GZIP = b"\x1f\x8b"
#: What the parameter `channel` of an image is.
CHANNEL = "Return only this channel, counted from 0."
#: Percentile of the intensities that is white in a PNG.
_WHITE = 99.5


@router.post(
    "",
    summary="An image as NIfTI, NRRD or MetaImage, or one slice of it",
    response_class=Response,
    responses=answers("nifti", "nrrd", "metaimage", "png"),
)
async def convert(
    image: Annotated[UploadFile, File(description="Any supported format.")],
    engine: EngineDependency,
    choice: ChoiceDependency,
    kind: Annotated[
        Literal["image", "labels"],
        Form(description="Intensities or label ids."),
    ] = "image",
    plane: Annotated[Plane, Form(description="Plane of the slices.")] = "axial",
    slice: Annotated[int | None, Form(description="Return only this slice.")] = None,
    model: Annotated[
        str | None,
        Form(
            description="Model whose colours a PNG of labels uses. If the model takes colour "
            "images, an image keeps its colours; if it has a spacing, a volume of a single slice "
            "is cut in `plane`, too."
        ),
    ] = None,
    channel: Annotated[int | None, Form(description=CHANNEL)] = None,
    colour: Annotated[
        bool, Form(description="Keep the colours of a picture, as for a model that takes colour.")
    ] = False,
    format: Format = None,
    accept: Accept = None,
) -> Response:
    """The decoded image with its geometry, as the models receive it. Colours become grey, and only
    the first of several channels is returned, unless `channel` or `colour` says otherwise.

    As PNG: one slice, by default the middle one, with 8-bit intensities or label ids. Headers give
    the number of slices in `plane` (1 for a volume of a single slice), whether the source has a
    geometry, how many channels it has, and whether they are colours.
    """
    form = negotiate(format, accept, ["nifti", "nrrd", "metaimage", "png"])
    content = await read_upload(image)
    card = (await engine.bundle(model)).card if model else None
    colour = colour or (card is not None and card.takes_colours)
    channels: dict[str, str] = {}

    def fitting(source: MedicalImage) -> MedicalImage:
        channels.update(channel_headers(source))
        keeps = colour and channel is None and is_colour(source)
        return source if keeps else shown(source, channel)

    decoded = await engine.decode([content], kind, fitting, choice)
    if card is not None and kind == "labels":
        decoded = decoded.with_array(decoded.array, palette=card.palette)
    if not (card and card.spacing_mm):  # models of pictures take a single slice as what it is
        plane = single_slice_plane(decoded) or plane
        if form == "png" and is_plain_volume(decoded):
            decoded = picture_of(decoded)
    if form == "nifti" and slice is None and _is_gzipped_nifti(content, decoded):
        answer = content
    else:
        answer = await engine.run("encode", lambda: encode(decoded, form, slice, plane))
    headers = {
        "Caps-Med-Slices": str(slice_count(decoded, plane)),
        "Caps-Med-Geometry": "no" if decoded.spacing is None else "yes",
        **channels,
    }
    return Response(answer, headers=headers, media_type=MEDIA_TYPES[form])


class ImageFiles(BaseModel):
    """The files that form an image."""

    label: str = Field(
        description="Distinguishes the series of a folder; says nothing about the patient.",
        examples=["series3"],
    )
    files: list[str] = Field(description="Their names in the zip.", examples=[["a/1.dcm"]])


class LeftOut(BaseModel):
    """A DICOM file that is not an image."""

    file: str = Field(description="Its name in the zip.", examples=["DICOMDIR"])
    reason: str = Field(examples=["DICOM without a picture"])


class ImagesOfFiles(BaseModel):
    """How DICOM files form images."""

    images: list[ImageFiles]
    left_out: list[LeftOut]


@router.post(
    "/series",
    summary="Group DICOM files into images",
    responses=problems(400, 413, 415, 422, 503, 504),
)
async def series(
    archive: Annotated[
        UploadFile,
        File(
            description="A zip of DICOM files; the first 16 KiB of each are nearly always enough."
        ),
    ],
    engine: EngineDependency,
) -> ImagesOfFiles:
    """The files of a series in one folder form one image, as the other routes read a zip of them. A
    file whose picture has no position is an image by itself, as is a file that cannot be read.
    Files in other formats are not listed.
    """
    found = await engine.files_of_images(await read_upload(archive))
    return ImagesOfFiles(
        images=[ImageFiles(label=label, files=list(files)) for label, files in found.images],
        left_out=[LeftOut(file=file, reason=reason) for file, reason in found.left_out],
    )


def encode(image: MedicalImage, form: str, slice: int | None, plane: Plane) -> bytes:
    """The image, or its slice, in the form asked for."""
    if form != "png":
        return encode_image(image if slice is None else one_slice(image, slice, plane), form)
    stack = SliceStack.from_image(image, plane)
    pixels = stack.array[chosen_slice(len(stack.array), slice)]
    if image.kind == "image" and not (is_colour(image) and pixels.dtype == np.uint8):
        pixels = _levels(pixels, image)
    picture = MedicalImage(pixels, format="png", kind=image.kind, palette=image.palette)
    return encode_image(picture, form)


def shown(image: MedicalImage, channel: int | None) -> MedicalImage:
    """One channel of the image; if None, the image in grey, or the first of other channels.

    Raises:
        InvalidParameter: there is no such channel.
    """
    count = len(image.array)
    if channel is None and is_colour(image):
        return with_channels(image, 1)
    index = channel or 0
    if not 0 <= index < count:
        known = f"channels 0 to {count - 1}" if count > 1 else "channel 0 alone"
        raise InvalidParameter(f"channel={index}: the image has {known}")
    return image if count == 1 else image.with_array(image.array[[index]])


def channel_headers(image: MedicalImage) -> dict[str, str]:
    """How many channels an image has, one if grey is saved in colour; whether they are colours."""
    grey = is_grey(image)
    return {
        "Caps-Med-Channels": str(1 if grey else len(image.array)),
        "Caps-Med-Colour": "yes" if is_colour(image) and not grey else "no",
    }


def _is_gzipped_nifti(content: bytes, decoded: MedicalImage) -> bool:
    """Whether the upload can be sent back as it is."""
    header = decoded.header
    if header is None or decoded.format != "nifti" or not content.startswith(_GZIP):
        return False
    return int(header["dim"][0]) <= decoded.spatial_dims and has_one_member(content, header)


def _levels(pixels: NDArray[Any], image: MedicalImage) -> NDArray[np.uint8]:
    """Intensities as 8-bit levels, from the image's minimum to its `_WHITE` percentile."""
    low, high = float(image.array.min()), float(np.percentile(image.array, _WHITE))
    scale = 255 / (high - low) if high > low else 0.0
    levels: NDArray[np.float64] = ((pixels.astype(np.float64) - low) * scale).clip(0, 255)
    return np.rint(levels).astype(np.uint8)
