"""POST a label map, get synthetic images in its space."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Form, Response

from api.background import Work
from api.encoding import file_response, json_response, npz_bytes, zip_of_images
from api.engine import Synthesize
from api.record import note_warnings
from api.routes.asking import ACCEPTED, AskedDependency
from api.routes.common import (
    ChoiceDependency,
    EngineDependency,
    LabelsFile,
    Seed,
    answers,
    decoded_upload,
)
from caps_med.errors import InvalidParameter
from caps_med.images import Plane, as_written, encode_image
from caps_med.inference import SyntheticImage
from caps_med.inference.strip import strip

router = APIRouter(prefix="/v1/models", tags=["inference"])


@router.post(
    "/{model}/synthesize",
    summary="Synthesize images from a label map",
    response_class=Response,
    responses={
        **answers("nifti", "nrrd", "metaimage", "png", "tiff", "bmp", "npy", "npz", "zip", "json"),
        **ACCEPTED,
    },
)
async def synthesize(
    model: str,
    labels: LabelsFile,
    engine: EngineDependency,
    asked: AskedDependency,
    choice: ChoiceDependency,
    seed: Seed = 0,
    count: Annotated[int, Form(ge=1)] = 1,
) -> Response:
    """One image in the label map's own format; several as a zip, or side by side as PNG.

    Image i has the seed `seed + i`; the same seed gives the same bytes.
    """
    if count > engine.settings.max_images:
        raise InvalidParameter(f"count={count}: at most {engine.settings.max_images} at once")
    loaded = await engine.load(model)
    decoded = await decoded_upload(engine, loaded, [labels], "labels", choice)
    own, *others = decoded.formats_of("image")
    forms = [own, *others, "zip"] if count == 1 else ["zip", "png"]
    call, plane = Synthesize(decoded, seed, count), loaded.bundle.card.plane
    return await asked.answered(
        Work(
            "synthesize", loaded, decoded, call, [*forms, "npz", "json"],
            lambda images, form: encode(images, form, own, plane),
        )
    )  # fmt: skip


def encode(images: Sequence[SyntheticImage], form: str, own: str, plane: Plane) -> Response:
    """Synthetic images in the form asked for; `own` is that of the files in a zip.

    Their warnings, which are those of the label map, are sent along.
    """
    note_warnings(images[0].warnings)
    first, seeds = images[0].provenance, [image.provenance.seed for image in images]
    if form == "json":
        means = [round(float(as_written(image).array.mean()), 6) for image in images]
        shape = list(images[0].spatial_shape)
        numbers = {"seeds": seeds, "mean_intensity": means, "shape": shape}
        return json_response({**numbers, "warnings": list(images[0].warnings)}, first)
    if form == "npz":
        arrays = {
            f"seed{s}": as_written(image).array for s, image in zip(seeds, images, strict=True)
        }
        return file_response(npz_bytes(arrays), form, first, "synthetic")
    if form == "zip":
        named = zip((f"synthetic-seed{seed}" for seed in seeds), images, strict=True)
        return file_response(zip_of_images(named, own), form, first, "synthetic")
    if len(images) > 1:
        return file_response(encode_image(strip(images, plane), form), form, first, "synthetic")
    return file_response(encode_image(images[0], form), form, first, f"synthetic-seed{seeds[0]}")
