"""POST /infer/{model}: segment an image that is sent along, of a session, or of an archive."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, File, Form, Query, Request, Response, UploadFile
from fastapi.responses import JSONResponse

from api.engine import Segment
from api.monai_label.answers import InferParameters, described, file_of, label_file, multipart
from api.monai_label.sources import image_of
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
        **problems(400, 403, 404, 413, 415, 422, 500, 502, 503, 504),
    },
)
async def infer(
    model: str,
    request: Request,
    engine: EngineDependency,
    image: Annotated[str, Query(max_length=256, description="Its id, or SeriesInstanceUID.")] = "",
    session_id: Annotated[str, Query(max_length=64)] = "",
    output: Annotated[Output, Query(description="`all`: multipart; `image`: NRRD.")] = "all",
    params: Annotated[str, Form(description="JSON: result_extension, result_dtype, ...")] = "{}",
    file: Annotated[UploadFile | None, File(description="The image itself.")] = None,
) -> Response:
    """The label map in the image's geometry, as NRRD unless `params` asks for another form."""
    asked = InferParameters.parse(params)
    loaded = await engine.load(model)
    fitting = loaded.image_reader.match_channels
    decoded = await image_of(request, fitting, image, session_id, file)
    result = await engine.predict(loaded, Segment(decoded))
    return await engine.run("encode", lambda: encode(result, asked, output))


def encode(result: Segmentation, asked: InferParameters, output: Output) -> Response:
    """A segmentation in the form asked for.

    Raises:
        UnsupportedFormat: DICOM SEG of an image that is not DICOM.
    """
    extension = asked.result_extension
    if output == "json":
        answer: Response = JSONResponse(described(result))
    elif output == "dicom_seg":
        answer = file_of(encode_image(result, "dicom"), ".dcm", "application/dicom")
    elif output == "image":
        content = label_file(result, asked, compress=False)  # OHIF reads no gzip
        answer = file_of(content, extension, "application/octet-stream")
    else:
        content = label_file(result, asked, compress=True)
        answer = multipart(described(result), content, extension)
    answer.headers.update(result.provenance.headers())
    return answer
