"""POST /infer/{model}: segment an image that is sent along, or wherever else it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from fastapi import APIRouter, File, Form, Query, Request, Response, UploadFile
from fastapi.responses import JSONResponse

from api.engine import Segment
from api.monai_label.answers import described, file_of, label_file, multipart
from api.monai_label.parameters import InferParameters, parsed
from api.monai_label.sources import source_of
from api.routes.common import EngineDependency, problems
from caps_med.images import encode_image
from caps_med.inference import Segmentation

router = APIRouter(prefix="/infer", tags=["MONAI Label"])

Output = Literal["all", "image", "json", "dicom_seg"]
_BINARY = {"schema": {"type": "string", "format": "binary"}}


@router.post(
    "/{model}",
    summary="Segment an image",
    response_class=Response,
    responses={
        200: {
            "description": "The label map, and what is known about it.",
            "content": {
                "multipart/form-data": _BINARY,
                "application/octet-stream": _BINARY,
                "application/dicom": _BINARY,
                "application/json": {"schema": {"type": "object"}},
            },
        },
        **problems(400, 403, 404, 413, 415, 422, 500, 502, 503, 504, 507),
    },
)
async def infer(
    model: str,
    request: Request,
    engine: EngineDependency,
    image: Annotated[
        str, Query(max_length=256, description="Id of the image, or SeriesInstanceUID.")
    ] = "",
    session_id: Annotated[str, Query(max_length=64)] = "",
    output: Annotated[Output, Query(description="`all`: multipart; `image`: NRRD.")] = "all",
    params: Annotated[str, Form(description="JSON: result_extension, result_dtype, ...")] = "{}",
    file: Annotated[UploadFile | None, File(description="The image itself.")] = None,
) -> Response:
    """The label map in the image's geometry, as NRRD unless `params` asks for another format. For
    an image in the data store, the label map of its project's model is kept as its prediction.
    """
    asked = parsed(InferParameters, params)
    loaded = await engine.load(model)
    source = await source_of(request, loaded, image, session_id, file)
    result = await engine.predict(loaded, Segment(source.image))
    names = await source.keep(result)
    return await engine.run("encode", lambda: encode(result, names, asked, output))


def encode(
    result: Segmentation, names: Mapping[int, str], asked: InferParameters, output: Output
) -> Response:
    """A segmentation in the form asked for.

    Raises:
        UnsupportedFormat: DICOM SEG of an image that is not DICOM.
    """
    extension = asked.result_extension
    if output == "json":
        answer: Response = JSONResponse(described(result, names))
    elif output == "dicom_seg":
        answer = file_of(encode_image(result, "dicom"), ".dcm", "application/dicom")
    elif output == "image":
        content = label_file(result, asked, compress=False)  # OHIF reads no gzip
        answer = file_of(content, extension, "application/octet-stream")
    else:
        content = label_file(result, asked, compress=True)
        answer = multipart(described(result, names), content, extension)
    answer.headers.update(result.provenance.headers())
    return answer
