"""Projects: data sets on the service that are annotated with the help of a model, which learns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

from anyio import to_thread
from fastapi import APIRouter, Depends, Form, Header, Path, Query, Request, Response
from pydantic import StringConstraints

from api.head_requests import is_head
from api.projects.caller import Caller
from api.projects.records import Image, Project
from api.projects.schemas import ImageView, NextImage, ProjectList, ProjectView
from api.projects.service import Projects
from api.projects.strategies import Strategy
from api.record import note
from api.routes.common import problems, stored
from caps_med.inference.synthesizer import LARGEST_SEED
from caps_med.wording import ONE_LINE
from training.data.interpretation import Interpretation

router = APIRouter(prefix="/v1/projects", tags=["projects"])

_IDENTITY = "^[0-9a-f]{32}$"
Identity = Annotated[str, Path(pattern=_IDENTITY)]
#: Images that one request can pass over.
_MOST_SKIPPED = 200
After = Annotated[
    str | None, Query(pattern="^[0-9]{1,18}$", description="`next` of the previous answer.")
]
Limit = Annotated[int, Query(ge=1, le=200)]
#: Who corrects.
AuthorName = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=64,
        pattern=ONE_LINE,
        description="Person who corrects; by default the key's name.",
    ),
]

T = TypeVar("T")


def next_page(found: Sequence[T], limit: int, number: Callable[[T], int]) -> str | None:
    """What a list calls `next`, for `After`: None where it is the last page."""
    return str(number(found[-1])) if len(found) == limit else None


#: ETags of what the client has.
IfNoneMatch = Annotated[str | None, Header()]


def is_named(tag: str, header: str | None) -> bool:
    """Whether If-Match or If-None-Match names an ETag, or any.

    Weak ones count, too: a proxy that compresses answers makes them of the service's own.
    """
    named = {one.strip().removeprefix("W/") for one in (header or "").split(",")}
    return not named.isdisjoint({tag, "*"})


async def projects_of(request: Request) -> Projects:
    """The app's projects.

    Raises:
        Refusal: they cannot be stored (503).
    """
    projects: Projects | None = request.app.state.projects
    return stored(projects, "projects")


ProjectsDependency = Annotated[Projects, Depends(projects_of)]


async def caller_of(request: Request) -> Caller:
    """The caller of a request."""
    return Caller.of(request)


CallerDependency = Annotated[Caller, Depends(caller_of)]


async def project_of(
    project: Identity, projects: ProjectsDependency, caller: CallerDependency
) -> Project:
    """The project of the path, if it belongs to the key of the request."""
    note(project=project)
    return await to_thread.run_sync(projects.get, caller, project)


ProjectDependency = Annotated[Project, Depends(project_of)]


async def image_of(
    image: Identity, project: ProjectDependency, projects: ProjectsDependency
) -> Image:
    """The image of the path, if it belongs to the project."""
    note(image=image)
    return await to_thread.run_sync(projects.image, project, image)


ImageDependency = Annotated[Image, Depends(image_of)]


async def author_of(caller: CallerDependency, author: AuthorName = None) -> str:
    """Who corrects."""
    return author or caller.author


Author = Annotated[str, Depends(author_of)]


@router.post(
    "",
    status_code=201,
    summary="Create a project",
    responses=problems(400, 404, 413, 415, 422, 503, 507),
)
async def create(
    projects: ProjectsDependency,
    caller: CallerDependency,
    response: Response,
    name: Annotated[str, Form(min_length=1, max_length=100, examples=["axons"])],
    model: Annotated[str, Form(description="Segmentation model to start with.")],
    labels: Annotated[
        str | None,
        Form(
            max_length=2000,
            pattern=ONE_LINE,
            description="Other names for its labels, such as 1=axon,2=bouton.",
        ),
    ] = None,
    seed: Annotated[
        int, Form(ge=0, le=LARGEST_SEED, description="For the held-out part and random order.")
    ] = 0,
    held_out: Annotated[
        float,
        Form(gt=0, lt=1, description="Share of the corrected images that is never trained on."),
    ] = 0.2,
    ignore_label: Annotated[
        int | None,
        Form(
            ge=1,
            le=255,
            description="Id of unlabelled pixels or voxels in the label maps, if images are "
            "labelled in part: they are neither learned nor scored.",
            examples=[2],
        ),
    ] = None,
) -> ProjectView:
    """The project belongs to the key that creates it; others need the scope `admin` to see it."""
    names = Interpretation.parse(None, [labels or ""], "").labels
    project = await projects.create(caller, name, model, names, seed, held_out, ignore_label)
    note(project=project.id)
    response.headers["Location"] = f"{router.prefix}/{project.id}"
    return await to_thread.run_sync(ProjectView.of, project, projects.store)


@router.get("", summary="The projects of a key, newest first", responses=problems(422))
async def list_projects(
    projects: ProjectsDependency,
    caller: CallerDependency,
    after: After = None,
    limit: Limit = 50,
) -> ProjectList:
    """In pages; `next` leads to the next page."""

    def found() -> ProjectList:
        before = None if after is None else int(after)
        listed = projects.list(caller, before, limit)
        views = [ProjectView.of(project, projects.store) for project in listed]
        last = next_page(listed, limit, lambda project: project.number)
        return ProjectList(projects=views, next=last)

    return await to_thread.run_sync(found)


@router.get("/{project}", summary="One project", responses=problems(404, 422))
async def show(project: ProjectDependency, projects: ProjectsDependency) -> ProjectView:
    """Its model, its images by state, and whether it is learning."""
    return await to_thread.run_sync(ProjectView.of, project, projects.store)


@router.delete(
    "/{project}", summary="Delete a project", status_code=204, responses=problems(404, 422, 507)
)
async def delete(project: ProjectDependency, projects: ProjectsDependency) -> None:
    """Also deletes its images and label maps and cancels its training; published models stay."""
    await to_thread.run_sync(projects.delete, project)


@router.get(
    "/{project}/next",
    summary="The image to correct next",
    response_model=NextImage,
    responses={204: {"description": "No images are left."}, **problems(404, 422, 507)},
)
async def next_image(
    request: Request,
    project: ProjectDependency,
    projects: ProjectsDependency,
    author: Author,
    strategy: Annotated[
        Strategy,
        Query(
            description="uncertainty: the image that the model is least sure of; diversity: the "
            "one whose capsule poses are farthest from those of the corrected images."
        ),
    ] = "uncertainty",
    skip: Annotated[
        list[Annotated[str, StringConstraints(pattern=_IDENTITY)]] | None,
        Query(max_length=_MOST_SKIPPED, description="Image to skip; may be repeated."),
    ] = None,
) -> NextImage | Response:
    """For some minutes, or until it is saved, nobody else is given this image. As long as there are
    no scores, it is chosen at random.
    """
    take = not is_head(request)

    def found() -> NextImage | Response:
        chosen = projects.choice.next(project.id, strategy, author, skip or (), take)
        if chosen is None:
            return Response(status_code=204)
        image, used = chosen
        return NextImage(image=ImageView.of(image), strategy=used)

    return await to_thread.run_sync(found)
