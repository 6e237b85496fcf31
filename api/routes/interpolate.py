"""POST a label map and two seeds, get the images on the way from one to the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Form, Response

from api.encoding import file_response, json_response, negotiate, npz_bytes, zip_bytes
from api.engine import Call
from api.routes.common import Accept, EngineDependency, Format, LabelsFile, answers
from api.uploads import read_upload
from caps_med.errors import InvalidParameter
from caps_med.images import CODECS, encode_image
from caps_med.images.slices import Plane
from caps_med.inference import Features, SyntheticImage
from caps_med.inference.strip import strip
from caps_med.inference.synthesizer import LARGEST_SEED

router = APIRouter(prefix="/v1/models", tags=["inference"])


@router.post(
    "/{model}/interpolate",
    summary="Images between two seeds",
    response_class=Response,
    responses=answers("zip", "png", "npz", "json"),
)
async def interpolate(
    model: str,
    labels: LabelsFile,
    engine: EngineDependency,
    seed: Annotated[int, Form(ge=0, le=LARGEST_SEED)] = 0,
    to_seed: Annotated[int, Form(ge=0, le=LARGEST_SEED)] = 1,
    steps: Annotated[int, Form(ge=2, description="Images, both ends included.")] = 9,
    features: Annotated[
        bool, Form(description="With the last layer's capsules; png and npz alone.")
    ] = False,
    format: Format = None,
    accept: Accept = None,
) -> Response:
    """A zip of images in the label map's own format; as PNG, one picture of them side by side.

    The first and the last image are those that the two seeds synthesize; the noise between them
    moves on a great circle. With `features`, the PNG has rows below: how long the last layer's
    capsules are and the three of their atoms that change most; the npz has them all.
    """
    if steps > engine.settings.max_images:
        raise InvalidParameter(f"steps={steps}: at most {engine.settings.max_images} at once")
    form = negotiate(format, accept, ["zip", "png", "npz", "json"])
    if features and form not in ("png", "npz"):
        raise InvalidParameter(f"features: capsules come as png or npz, not as {form}")
    content = await read_upload(labels)
    loaded = await engine.load(model)
    decoded = await engine.decode(content, "labels")
    work: Call[tuple[list[SyntheticImage], list[Features]]] = Call(
        lambda model: (
            model.interpolate(decoded, seed, to_seed, steps),
            model.interpolate_features(decoded, seed, to_seed, steps) if features else [],
        )
    )
    images, capsules = await engine.predict(loaded, work)
    plane = loaded.bundle.card.plane
    return await engine.run(
        "encode", lambda: encode(images, capsules, form, decoded.format_of("image"), plane)
    )


def encode(
    images: Sequence[SyntheticImage],
    capsules: Sequence[Features],
    form: str,
    own: str,
    plane: Plane,
) -> Response:
    """The images in the form asked for; `own` is that of the files in a zip."""
    first = images[0].provenance
    if form == "json":
        means = [round(float(image.array.mean()), 6) for image in images]
        positions = [image.provenance.position for image in images]
        return json_response({"positions": positions, "mean_intensity": means}, first)
    if form == "png":
        picture = encode_image(strip(images, plane, capsules), "png")
        return file_response(picture, form, first, "interpolation")
    if form == "npz":
        arrays = {f"image{i:02d}": image.array for i, image in enumerate(images)}
        for i, found in enumerate(capsules):
            arrays |= {f"capsules{i:02d}/{name}": each for name, each in found.layers.items()}
        return file_response(npz_bytes(arrays), form, first, "interpolation")
    suffix = CODECS[own].suffixes[0]
    files = ((f"image{i:02d}{suffix}", encode_image(one, own)) for i, one in enumerate(images))
    return file_response(zip_bytes(files), form, first, "interpolation")
