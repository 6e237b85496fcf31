"""POST an image, get its label map in the same space."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, File, Response, UploadFile

from api.encoding import file_response, image_forms, json_response, negotiate, npz_bytes
from api.engine import Segment
from api.routes.common import Accept, EngineDependency, Format, answers
from api.uploads import read_upload
from caps_med.images import encode_image, label_format
from caps_med.inference import Segmentation

router = APIRouter(prefix="/v1/models", tags=["inference"])


@router.post(
    "/{model}/segment",
    summary="Segment an image or volume",
    response_class=Response,
    responses=answers("nifti", "png", "tiff", "npy", "npz", "json"),
)
async def segment(
    model: str,
    image: Annotated[UploadFile, File(description="NIfTI, PNG, JPEG, TIFF or npy.")],
    engine: EngineDependency,
    format: Format = None,
    accept: Accept = None,
) -> Response:
    """The label map in the image's own format and geometry.

    As npz: `labels` and `probabilities`; as JSON: the volume of each label.
    """
    content = await read_upload(image)
    loaded = await engine.load(model)
    decoded = await engine.decode(content, "image")
    own = label_format(decoded.format)
    form = negotiate(format, accept, [*image_forms(decoded, own), "npz", "json"])
    result = await engine.predict(loaded, Segment(decoded))
    return await engine.run("encode", lambda: encode(result, form))


def encode(result: Segmentation, form: str) -> Response:
    """A segmentation in the form asked for."""
    if form == "json":
        return json_response(
            {
                "volumes": result.volumes,
                "unit": result.volume_unit,
                "shape": list(result.spatial_shape),
                "warnings": list(result.warnings),
            },
            result.provenance,
        )
    if form == "npz":
        arrays = {"labels": result.array, "probabilities": result.probabilities.array}
        return file_response(npz_bytes(arrays), form, result.provenance, "segmentation")
    return file_response(encode_image(result, form), form, result.provenance, "segmentation")
