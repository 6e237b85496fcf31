"""Sample images and label maps to try the service with."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, Field

from api.encoding import MEDIA_TYPES
from api.problems import SAMPLE_NOT_FOUND, Refusal
from api.routes.common import answers, problems
from caps_med.images import codec_of_path
from caps_med.samples import SAMPLES

router = APIRouter(prefix="/v1/samples", tags=["images"])


class SampleView(BaseModel):
    """One sample."""

    name: str = Field(examples=["t1"])
    title: str = Field(examples=["T1 slice"])
    kind: str = Field(description="image or labels", examples=["image"])
    description: str
    file: str = Field(description="File name.", examples=["t1.nii.gz"])
    model: str = Field(
        description="A model that can be applied to it.", examples=["brain-t1-tissue"]
    )
    image_of: str | None = Field(description="For a label map: the sample image that it labels.")


class SampleList(BaseModel):
    """The samples."""

    samples: list[SampleView]


@router.get("", summary="Samples to try the service with")
async def list_samples() -> SampleList:
    """Images and label maps."""
    return SampleList(
        samples=[
            SampleView(
                name=name,
                title=sample.title,
                kind=sample.kind,
                description=sample.description,
                file=sample.path.name,
                model=sample.model,
                image_of=sample.image_of,
            )
            for name, sample in SAMPLES.items()
        ]
    )


@router.get(
    "/{sample}",
    summary="One sample",
    response_class=Response,
    responses={200: answers("nifti", "png")[200], **problems(404)},
)
def show(sample: Annotated[str, Path(description="A name from the list.")]) -> Response:
    """The sample's file."""
    if sample not in SAMPLES:
        raise Refusal(SAMPLE_NOT_FOUND, f"no such sample: known are {', '.join(SAMPLES)}")
    path = SAMPLES[sample].path
    headers = {"Content-Disposition": f'attachment; filename="{path.name}"'}
    media_type = MEDIA_TYPES[codec_of_path(path).name]
    return Response(path.read_bytes(), headers=headers, media_type=media_type)
