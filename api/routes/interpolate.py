"""POST a label map and two seeds, get images that lead from one seed to the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Form, Response
from numpy.typing import NDArray

from api.background import Work
from api.encoding import file_response, zip_of_images
from api.engine import Apply, costs
from api.record import note_warnings
from api.routes.asking import ACCEPTED, AskedDependency
from api.routes.common import (
    ChoiceDependency,
    EngineDependency,
    LabelsFile,
    Seed,
    answers,
    decoded_upload,
    numeric_response,
)
from caps_med.errors import InvalidParameter
from caps_med.images import (
    as_written,
    chosen_slice,
    one_slice,
    slice_count,
    writable_format,
)
from caps_med.images.slices import Plane
from caps_med.inference import Features, SyntheticImage
from caps_med.inference.strip import strip

router = APIRouter(prefix="/v1/models", tags=["inference"])


@router.post(
    "/{model}/interpolate",
    summary="Images between two seeds",
    response_class=Response,
    responses={**answers("zip", "png", "npz", "json"), **ACCEPTED},
)
async def interpolate(
    model: str,
    labels: LabelsFile,
    engine: EngineDependency,
    asked: AskedDependency,
    choice: ChoiceDependency,
    seed: Seed = 0,
    to_seed: Seed = 1,
    steps: Annotated[int, Form(ge=2, description="Number of images, both ends included.")] = 9,
    features: Annotated[
        bool, Form(description="Include the last layer's capsules; only for png and npz.")
    ] = False,
    slice: Annotated[
        int | None,
        Form(description="Only this slice; by default the middle one for a PNG, otherwise all."),
    ] = None,
) -> Response:
    """A zip of images in the label map's own format; as PNG, all images side by side.

    The first and the last image are those of the two seeds; between them, the noise vector moves
    along a great circle. With `features`, the PNG has further rows: the lengths of the last layer's
    capsules, and the three of their atoms that change most; the npz has all atoms.

    For a volume, the PNG shows one slice, and no other slice is computed; the other formats contain
    all slices, or only `slice`.
    """
    if steps > engine.settings.max_images:
        raise InvalidParameter(f"steps={steps}: at most {engine.settings.max_images} at once")
    forms = ["zip", "png", "npz", "json"]
    form = asked.form_of(forms)  # before anything is read
    if features:
        forms = ["png", "npz"]
        if form not in forms:
            raise InvalidParameter(f"features: capsules are available as png or npz, not as {form}")
    loaded = await engine.load(model)
    decoded = await decoded_upload(engine, loaded, [labels], "labels", choice)
    plane = loaded.bundle.card.plane
    slices = slice_count(decoded, plane)
    if slice is None and slices > 1 and form == "png":
        forms = ["png"]  # of the others nothing is there
        slice = chosen_slice(slices, None)
    if slice is not None and loaded.network.spatial_dims == 2:
        decoded, slice = one_slice(decoded, slice, plane), None
    work: Apply[tuple[list[SyntheticImage], list[Features]]] = Apply(
        lambda model: (
            model.interpolate(decoded, seed, to_seed, steps, slice),
            model.interpolate_features(decoded, seed, to_seed, steps, slice) if features else [],
        ),
        lambda model: costs.interpolation(model, decoded, steps, features),
    )
    shown = decoded if slice is None else one_slice(decoded, slice, plane)
    own = writable_format(shown, "image", loaded.synthesizer.network.image_channels)
    return await asked.answered(
        Work(
            "interpolate", loaded, decoded, work, forms,
            lambda found, form: encode(found[0], found[1], form, own, plane),
        )
    )  # fmt: skip


def encode(
    images: Sequence[SyntheticImage],
    capsules: Sequence[Features],
    form: str,
    own: str,
    plane: Plane,
) -> Response:
    """The images in the form asked for; `own` is that of the files in a zip."""
    first, warnings = images[0].provenance, images[0].warnings
    if form == "zip":
        note_warnings(warnings)
        named = ((f"image{i:02d}", each) for i, each in enumerate(images))
        return file_response(zip_of_images(named, own), form, first, "interpolation")
    return numeric_response(
        form,
        "interpolation",
        first,
        warnings=warnings,
        numbers=lambda: {
            "positions": [image.provenance.position for image in images],
            "mean_intensity": [round(float(as_written(one).array.mean()), 6) for one in images],
        },
        picture=lambda: strip(images, plane, capsules),
        arrays=lambda: _arrays(images, capsules),
    )


def _arrays(
    images: Sequence[SyntheticImage], capsules: Sequence[Features]
) -> dict[str, NDArray[Any]]:
    arrays = {f"image{i:02d}": as_written(image).array for i, image in enumerate(images)}
    for i, found in enumerate(capsules):
        arrays |= {f"capsules{i:02d}/{name}": each for name, each in found.layers.items()}
    return arrays
