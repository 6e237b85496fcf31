"""POST an image, shift an atom of its class capsules, get the reconstructions."""

from __future__ import annotations

import re
from typing import Annotated

import numpy as np
from fastapi import APIRouter, Form, Response

from api.background import Work
from api.engine import Apply, Engine, costs
from api.routes.asking import ACCEPTED, Asked, AskedDependency
from api.routes.common import (
    EngineDependency,
    RegionText,
    SliceIndex,
    answers,
    looked_at,
    numeric_response,
    problems,
)
from api.routes.source import OptionalSource, Source
from caps_med.errors import InvalidParameter
from caps_med.images import MedicalImage
from caps_med.inference import Drawing, Manipulation
from caps_med.inference.manipulation import DELTAS

router = APIRouter(prefix="/v1/models", tags=["inference"])

#: Characters of all poses: 256 of 16 atoms with 20 digits each.
LONGEST_POSES = 100_000
#: The number of a capsule; any other text is the name of its label.
_NUMBER = re.compile(r"-?[0-9]{1,9}")


@router.post(
    "/{model}/manipulate",
    summary="Shift an atom and reconstruct the image",
    response_class=Response,
    responses={**answers("npz", "png", "json"), **problems(502), **ACCEPTED},
)
async def manipulate(
    model: str,
    engine: EngineDependency,
    asked: AskedDependency,
    source: OptionalSource,
    capsule: Annotated[
        str | None,
        Form(
            max_length=1000,
            description="Capsule type of the last layer: its number, from 0, or the name of its "
            "label; by default 0, or the predicted class of a classification model.",
        ),
    ] = None,
    atom: Annotated[int | None, Form(ge=0, description="Number of the atom; by default 0.")] = None,
    deltas: Annotated[
        str | None,
        Form(
            max_length=1000,
            description="Comma-separated shifts; by default "
            + ",".join(f"{delta:g}" for delta in DELTAS),
        ),
    ] = None,
    poses: Annotated[
        str | None,
        Form(
            max_length=LONGEST_POSES,
            description="For classification models, instead of image, slice, region, atom and "
            "deltas: all atoms of `capsule`, separated by commas; separate poses by semicolons.",
        ),
    ] = None,
    slice: SliceIndex = None,
    region: RegionText = None,
) -> Response:
    """As npz: `reconstructions` `[N, C, H, W]` and `original` `[C, H, W]`.

    As PNG: the reconstructions side by side; as JSON: how much each differs from the original.
    With `poses`: the reconstruction of each pose, as npz or PNG. No image is needed, so this is
    fast enough to follow a slider.
    """
    chosen = int(capsule) if capsule is not None and _NUMBER.fullmatch(capsule) else capsule
    if poses is not None:
        _check_alone(atom=atom, deltas=deltas, slice=slice, region=region)
        return await _drawn(model, engine, asked, source, chosen, poses)
    forms = ["npz", "png", "json"]
    asked.form_of(forms)  # before anything is read
    shifts = list(DELTAS) if deltas is None else _numbers(deltas, "deltas", "-0.25,0,0.25")
    if source is None:
        raise InvalidParameter("send the part 'image', or 'poses' of a classification model")
    loaded = await engine.load(model)
    decoded, slice = looked_at(loaded, await source.decoded(engine, loaded), slice, region)
    work: Apply[Manipulation] = Apply(
        lambda model: model.manipulator(decoded, slice)(chosen, atom or 0, shifts),
        lambda model: costs.manipulation(model, decoded, len(shifts)),
    )
    return await asked.answered(Work("manipulate", loaded, decoded, work, forms, encode))


def _check_alone(**others: object) -> None:
    """Refuse the parameters of an image beside poses, which need none."""
    if given := [name for name, value in others.items() if value is not None]:
        raise InvalidParameter(f"poses: take no {' and no '.join(given)}; leave one of them out")


async def _drawn(
    model: str,
    engine: Engine,
    asked: Asked,
    source: Source | None,
    capsule: int | str | None,
    poses: str,
) -> Response:
    """The images that poses of a class capsule stand for."""
    asked.form_of(["npz", "png"])
    if source or capsule is None:
        raise InvalidParameter("poses: give 'capsule' as well, and no image")
    vectors = [_numbers(pose, "poses", "0.1,-0.2;0.3,0") for pose in poses.split(";")]
    if len({len(vector) for vector in vectors}) > 1:
        raise InvalidParameter("poses: all must have the same number of atoms")
    loaded = await engine.load(model)
    work: Apply[Drawing] = Apply(
        lambda model: model.draw(capsule, vectors),
        lambda model: costs.drawing(model, len(vectors)),
    )
    posed = MedicalImage(np.array(vectors, np.float32)[None])
    return await asked.answered(
        Work("manipulate", loaded, posed, work, ["npz", "png"], encode_drawing)
    )


def encode_drawing(found: Drawing, form: str) -> Response:
    """Reconstructions in the form asked for."""
    return numeric_response(
        form,
        "manipulation",
        found.provenance,
        warnings=(),
        numbers=dict,
        picture=found.strip,
        arrays=lambda: {"reconstructions": found.reconstructions},
    )


def encode(found: Manipulation, form: str) -> Response:
    """Reconstructions in the form asked for."""
    return numeric_response(
        form,
        "manipulation",
        found.provenance,
        warnings=found.warnings,
        numbers=lambda: {"deltas": found.deltas, "mean_change": found.changes},
        picture=found.strip,
        arrays=lambda: {"reconstructions": found.reconstructions, "original": found.original},
    )


def _numbers(text: str, name: str, example: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise InvalidParameter(f"{name}: give comma-separated numbers: {example}") from error
