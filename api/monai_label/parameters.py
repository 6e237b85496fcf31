"""What clients say in JSON, in the part ``params`` or as a body: bounded, and the rest ignored."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from fastapi import Request
from pydantic import BaseModel, Field, ValidationError

from caps_med.errors import InputTooLarge, InvalidParameter
from caps_med.wording import ONE_LINE, reason

#: Largest body of JSON, in bytes: as of a part of a form that is not a file.
MOST_BYTES = 64 * 1024
#: OpenAPI description of a route that takes such a body.
JSON_BODY: dict[str, Any] = {
    "requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}}
}

Extension = Literal[".nrrd", ".seg.nrrd", ".nii.gz", ".nii"]


class InferParameters(BaseModel):
    """How the answer of `infer` is to be written.

    Attributes:
        result_extension: the form of the label map.
        result_dtype: of its ids; None for the smallest that holds them.
        result_compress: whether an NRRD is compressed; None for what the client can read.
    """

    result_extension: Extension = ".nrrd"
    result_dtype: Literal["uint8", "uint16", "uint32"] | None = None
    result_compress: bool | None = None


class Client(BaseModel):
    """Who calls, where no key says so.

    Attributes:
        client_id: as the user of Slicer has set it.
    """

    client_id: str | None = Field(default=None, max_length=64, pattern=ONE_LINE)


class Segment(BaseModel):
    """One of Slicer's segments."""

    name: str = Field(max_length=200)


class LabelParameters(Client):
    """What a saved label map shows.

    Attributes:
        label_info: the segments in the order of the ids in the file, from 1; None if these are the
            project's own ids.
    """

    label_info: list[Segment] | None = None


class TrainParameters(Client):
    """How a round is to be trained; None for the default."""

    epochs: int | None = Field(default=None, ge=1, le=10_000)
    steps: int | None = Field(default=None, ge=1, le=100_000)
    batch_size: int | None = Field(default=None, ge=1, le=256)
    crop: int | None = Field(default=None, ge=64, le=1024, multiple_of=8)
    learning_rate: float | None = Field(default=None, ge=1e-7, le=1)


P = TypeVar("P", bound=BaseModel)


def parsed(kind: type[P], text: str | bytes) -> P:
    """Parameters from JSON; empty text is an empty object.

    Raises:
        InvalidParameter: it is not a JSON object, or has values that are not allowed.
    """
    try:
        return kind.model_validate_json(text or "{}")
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(("params", *map(str, first["loc"])))
        raise InvalidParameter(f"{where}: {reason(first)}") from error


async def json_body(request: Request) -> bytes:
    """The body of a request, which is JSON.

    Raises:
        InputTooLarge: it is over `MOST_BYTES`.
    """
    content = bytearray()
    async for piece in request.stream():
        content += piece
        if len(content) > MOST_BYTES:
            raise InputTooLarge(
                f"the parameters are too long: at most {MOST_BYTES} bytes are allowed"
            )
    return bytes(content)
