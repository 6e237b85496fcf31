"""POST an image, move an atom of its class capsules, get the reconstructions."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Response

from api.encoding import file_response, json_response, negotiate, npz_bytes
from api.engine import Call
from api.routes.common import Accept, EngineDependency, Format, ImageFile, answers
from api.uploads import read_upload
from caps_med.errors import InvalidParameter
from caps_med.images import encode_image
from caps_med.inference import Manipulation
from caps_med.inference.manipulation import DELTAS

router = APIRouter(prefix="/v1/models", tags=["inference"])


@router.post(
    "/{model}/manipulate",
    summary="Move an atom, see the reconstruction change",
    response_class=Response,
    responses=answers("npz", "png", "json"),
)
async def manipulate(
    model: str,
    image: ImageFile,
    engine: EngineDependency,
    capsule: Annotated[int, Form(ge=0, description="Capsule type of the last layer.")] = 0,
    atom: Annotated[int, Form(ge=0)] = 0,
    deltas: Annotated[str, Form(description="Shifts, with commas.", max_length=1000)] = ",".join(
        f"{delta:g}" for delta in DELTAS
    ),
    slice: Annotated[int | None, Form(description="Slice of a volume; the middle one.")] = None,
    format: Format = None,
    accept: Accept = None,
) -> Response:
    """As npz: `reconstructions` `[N, C, H, W]` and `original` `[C, H, W]`.

    As PNG: the reconstructions side by side; as JSON: how much each differs from the original.
    """
    form = negotiate(format, accept, ["npz", "png", "json"])
    shifts = _numbers(deltas)
    content = await read_upload(image)
    loaded = await engine.load(model)
    decoded = await engine.decode(content, "image", loaded.segmenter.match_channels)
    work: Call[Manipulation] = Call(
        lambda model: model.manipulator(decoded, slice)(capsule, atom, shifts)
    )
    found = await engine.predict(loaded, work)
    return await engine.run("encode", lambda: encode(found, form))


def encode(found: Manipulation, form: str) -> Response:
    """Reconstructions in the form asked for."""
    if form == "json":
        numbers = {"deltas": found.deltas, "mean_change": found.changes}
        return json_response(numbers, found.provenance)
    if form == "png":
        picture = encode_image(found.strip(), "png")
        return file_response(picture, form, found.provenance, "manipulation")
    arrays = {"reconstructions": found.reconstructions, "original": found.original}
    return file_response(npz_bytes(arrays), form, found.provenance, "manipulation")


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise InvalidParameter("deltas: numbers with commas between, as -0.25,0,0.25") from error
