"""POST an image, shift an atom of its class capsules, get the reconstructions."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Response

from api.background import Work
from api.engine import Apply, costs
from api.routes.asking import ACCEPTED, AskedDependency
from api.routes.common import (
    EngineDependency,
    ImageFiles,
    SliceIndex,
    answers,
    decoded_upload,
    numeric_response,
)
from caps_med.errors import InvalidParameter
from caps_med.inference import Manipulation
from caps_med.inference.manipulation import DELTAS

router = APIRouter(prefix="/v1/models", tags=["inference"])


@router.post(
    "/{model}/manipulate",
    summary="Shift an atom, see the reconstruction change",
    response_class=Response,
    responses={**answers("npz", "png", "json"), **ACCEPTED},
)
async def manipulate(
    model: str,
    image: ImageFiles,
    engine: EngineDependency,
    asked: AskedDependency,
    capsule: Annotated[
        int | None,
        Form(
            ge=0,
            description="Capsule type of the last layer; by default 0, of a classification model "
            "the class that it answers.",
        ),
    ] = None,
    atom: Annotated[int, Form(ge=0)] = 0,
    deltas: Annotated[str, Form(description="Comma-separated shifts.", max_length=1000)] = ",".join(
        f"{delta:g}" for delta in DELTAS
    ),
    slice: SliceIndex = None,
) -> Response:
    """As npz: `reconstructions` `[N, C, H, W]` and `original` `[C, H, W]`.

    As PNG: the reconstructions side by side; as JSON: how much each differs from the original.
    """
    forms = ["npz", "png", "json"]
    asked.form_of(forms)  # before anything is read
    shifts = _numbers(deltas)
    loaded = await engine.load(model)
    decoded = await decoded_upload(engine, loaded, image, "image")
    work: Apply[Manipulation] = Apply(
        lambda model: model.manipulator(decoded, slice)(capsule, atom, shifts),
        lambda model: costs.manipulation(model, decoded, len(shifts)),
    )
    return await asked.answered(Work("manipulate", loaded, decoded, work, forms, encode))


def encode(found: Manipulation, form: str) -> Response:
    """Reconstructions in the form asked for."""
    return numeric_response(
        form,
        "manipulation",
        found.provenance,
        numbers=lambda: {"deltas": found.deltas, "mean_change": found.changes},
        picture=found.strip,
        arrays=lambda: {"reconstructions": found.reconstructions, "original": found.original},
    )


def _numbers(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise InvalidParameter("deltas: give comma-separated numbers: -0.25,0,0.25") from error
