"""The data store of the protocol: a project, whose images and label maps the page shows too."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from anyio import to_thread
from fastapi import Request

from api.engine import Engine
from api.jobs.service import Jobs
from api.monai_label.catalogue import FINAL, ORIGINAL, Catalogue
from api.monai_label.rounds import Rounds
from api.monai_label.segments import renumbered
from api.problems import IMAGE_EXISTS, IMAGE_NOT_FOUND, LABELS_NOT_FOUND, Refusal
from api.projects.caller import Caller
from api.projects.images import Upload
from api.projects.records import Image, LabelVersion, Project
from api.projects.service import Projects
from api.record import note
from caps_med.errors import InvalidParameter
from caps_med.images import MedicalImage
from caps_med.images.placing import on_one_grid
from caps_med.inference import Model, Segmentation

_ID = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True)
class Stored:
    """An image of the data store."""

    projects: Projects
    project: Project
    image: Image

    async def decoded(self, model: Model) -> MedicalImage:
        """The image, with the channels that a model takes."""
        return await self.projects.images.decoded(self.image, model)

    async def keep(self, result: Segmentation) -> Mapping[int, str]:
        """Keep a prediction of the project's model; the names of its labels.

        Another model's answer is not kept, and has its own names. What a person made stays.
        """
        if result.made_by != self.project.model:
            return result.names
        await self.projects.annotations.keep_prediction(self.project, self.image, result)
        return self.project.labels

    async def save(
        self, engine: Engine, content: bytes, segments: list[str] | None, author: str
    ) -> LabelVersion:
        """Keep a corrected label map as the next version.

        Where the file names its labels (NRRD of Slicer, DICOM SEG), these names count.

        Args:
            segments: the names of the ids from 1 on, as Slicer numbers what it exports, whatever
                the ids were before; None if the file has the project's own ids.

        Raises:
            CapsMedError: it cannot be decoded, does not fit its image, or has other labels.
        """

        def numbered(labels: MedicalImage) -> MedicalImage:
            named = labels.names or (None if segments is None else dict(enumerate(segments, 1)))
            return labels if named is None else renumbered(labels, named, self.project.ids)

        labels = await engine.decode([content], "labels", numbered)
        before = await to_thread.run_sync(self.projects.store.label, self.image.id)
        parent = before.version if before else None
        return await self.projects.annotations.take(
            self.project, self.image, labels, author, parent
        )

    def label(self, tag: str) -> LabelVersion:
        """The label map with this tag.

        Raises:
            Refusal: there is none (404).
        """
        store = self.projects.store
        if tag == ORIGINAL:
            found = store.last_prediction(self.image.id)
        else:
            found = store.label(self.image.id) if tag in (FINAL, "") else None
            if found is not None and found.kind == "prediction":
                found = None
        if found is None:
            detail = f"this image has no such label map; the tags are {FINAL} and {ORIGINAL}"
            raise Refusal(LABELS_NOT_FOUND, detail)
        return found


class Datastore:
    """Finds the project of a caller, and its images.

    Args:
        jobs: train the models of projects; None if this service trains none.

    Attributes:
        rounds: of the project, as trainings.
    """

    def __init__(self, projects: Projects, engine: Engine, jobs: Jobs | None) -> None:
        settings = engine.settings
        self.projects, self._engine = projects, engine
        self.rounds = Rounds(jobs, projects.store)
        self._name, self._model = settings.monai_label_project, settings.monai_label_model
        self.catalogue = Catalogue(projects.store.database)
        self._creating = asyncio.Lock()
        self._adding = WeakValueDictionary[tuple[str, str], asyncio.Lock]()

    async def project(self, request: Request) -> Project | None:
        """The project of a caller, if there is one yet."""
        found = await to_thread.run_sync(self._project, Caller.of(request))
        if found is not None:
            note(project=found.id)
        return found

    def _project(self, caller: Caller) -> Project | None:
        if _ID.fullmatch(self._name):
            return self.projects.store.project(self._name)
        return self.catalogue.project(caller.owner, self._name)

    async def find(self, request: Request, image: str) -> Stored | None:
        """The image with this id or name, if there is one.

        Raises:
            Refusal: several have this name (404).
        """
        project = await self.project(request)
        return None if project is None else await self._found(project, image)

    async def _found(self, project: Project, image: str) -> Stored | None:
        found = await to_thread.run_sync(self.projects.store.image, project.id, image)
        if found is None:  # names may look like ids, as hashes in place of a patient's name do
            shown = Upload(image, b"").shown_name
            named = await to_thread.run_sync(self.catalogue.named, project.id, shown)
            if len(named) > 1:
                raise Refusal(
                    IMAGE_NOT_FOUND, "several images have this name: give the id of one of them"
                )
            found = next(iter(named), None)
        if found is None:
            return None
        note(image=found.id)
        return Stored(self.projects, project, found)

    async def get(self, request: Request, image: str) -> Stored:
        """The image with this id or name.

        Raises:
            Refusal: there is none, or there are several (404).
        """
        found = await self.find(request, image)
        if found is None:
            raise Refusal(IMAGE_NOT_FOUND, "there is no image with this id: send it first")
        return found

    async def add(self, request: Request, name: str, content: bytes, author: str) -> Image:
        """Add an image; the one that is there, if it was sent before.

        Raises:
            Refusal: another image has this name (409), or a quota is used up (507).
            CapsMedError: it cannot be decoded, or does not suit the project's model.
        """
        async with self._creating:
            project = await self.project(request) or await self._created(request)
        async with self._adding_of(project, name):
            if (known := await self._found(project, name)) is not None:
                await self._check_same(known.image, content)
                return known.image
            (image,) = await self.projects.images.add(project, [Upload(name, content)], [], author)
        self.projects.scoring.wake()
        note(image=image.id)
        return image

    def _adding_of(self, project: Project, name: str) -> asyncio.Lock:
        """Held while an image of this name is added: what is sent twice at once is one image."""
        key = project.id, Upload(name, b"").shown_name
        return self._adding.setdefault(key, asyncio.Lock())

    async def _created(self, request: Request) -> Project:
        if _ID.fullmatch(self._name):
            raise InvalidParameter(
                "CAPS_MED_MONAI_LABEL_PROJECT names a project that does not exist: the operator "
                "of the service must name another"
            )
        return await self.projects.create(Caller.of(request), self._name, self._model)

    async def _check_same(self, image: Image, content: bytes) -> None:
        given = await self._engine.decode([content], "image")
        kept = await self.projects.images.decoded(image)

        def same() -> bool:
            near = on_one_grid(given.affine, kept.affine)
            return near and np.array_equal(given.array, kept.array)

        if not await self._engine.run("compare", same):
            detail = "another image has this name: rename this one (in Slicer, its volume)"
            raise Refusal(IMAGE_EXISTS, detail)

    async def state(self, request: Request) -> dict[str, Any]:
        """How many images there are, and how many of them are corrected."""
        project = await self.project(request)
        if project is None:
            return {"total": 0, "completed": 0, "label_tags": {}}
        counts = await to_thread.run_sync(self.projects.store.counts, project.id)
        return {
            "total": sum(counts.values()),
            "completed": counts["corrected"],
            "label_tags": {FINAL: counts["corrected"], ORIGINAL: counts["predicted"]},
        }


def author_of(request: Request, client_id: str | None) -> str:
    """Who corrects: the key's name, or what the client calls itself where no key is needed."""
    caller = Caller.of(request)
    return caller.author if caller.owner is not None else client_id or caller.author
