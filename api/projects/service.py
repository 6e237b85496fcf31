"""Projects for the routes: create, show, choose the next image, learn, delete."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import shutil
import sqlite3
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from anyio import to_thread

from api.engine import Engine
from api.jobs.locks import FileLock
from api.jobs.service import Jobs
from api.problems import IMAGE_NOT_FOUND, PROJECT_NOT_FOUND, Refusal
from api.projects.annotations import Annotations
from api.projects.caller import Caller
from api.projects.choice import Choice
from api.projects.files import sweep
from api.projects.images import ProjectImages
from api.projects.learning import Learning
from api.projects.records import Image, Project
from api.projects.scoring import Scoring
from api.projects.store import ProjectStore
from caps_med.errors import InvalidParameter, WrongTask
from training.data.interpretation import check_names

log = logging.getLogger("caps_med.projects")

#: Seconds between two attempts to become the service that works for a folder.
PAUSE = 5.0
#: Seconds between two sweeps of files without a record.
SWEEP = 6 * 3600.0
#: Of a name, what may be part of a model's.
_NOT_IN_MODELS = re.compile(r"[^a-z0-9]+")
_LONGEST_STEM = 40
#: Characters that lists of names give a meaning.
_RESERVED = frozenset(",=")


class Projects:
    """The projects of one service.

    Args:
        jobs: trains models; None if this service does not.

    Attributes:
        images: takes and decodes images.
        annotations: label maps of the images.
        choice: which image is next.
        learning: the rounds.
    """

    def __init__(self, engine: Engine, jobs: Jobs | None) -> None:
        settings = engine.settings
        root = settings.projects_folder or engine.repository.root / ".projects"
        self.root = root.absolute()
        self.store = ProjectStore(
            self.root / "projects.sqlite3",
            settings.projects_max_bytes,
            settings.max_project_images,
        )
        self._engine, self._jobs = engine, jobs
        self.images = ProjectImages(self.root, self.store, engine)
        self.annotations = Annotations(self.store, engine, self.images)
        self.choice = Choice(self.store.database)
        self.scoring = Scoring(self.store, engine, self.images)
        self.learning = Learning(
            self.store, engine, jobs, self.images, self.annotations, self.scoring
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Sweep what a kill has left, score images and follow rounds inside this block."""
        lock = FileLock(self.root / "lock")
        working = asyncio.create_task(self._work(lock))
        try:
            yield
        finally:
            working.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await working
            lock.release()

    async def _work(self, lock: FileLock) -> None:
        """What one service does for all that share the folder: the one that holds the lock."""
        while not lock.take():
            await asyncio.sleep(PAUSE)
        await asyncio.gather(self._sweep(), self.scoring.run(), self.learning.run())

    async def _sweep(self) -> None:
        """Sweep now and then: what a kill has just left is too fresh when the service starts."""
        while True:
            try:
                await to_thread.run_sync(sweep, self.root, self.store)
            except (OSError, sqlite3.Error):
                log.exception("files without a record could not be swept")
            await asyncio.sleep(SWEEP)

    async def create(
        self,
        caller: Caller,
        name: str,
        model: str,
        labels: Mapping[int, str] | None = None,
        seed: int = 0,
        held_out: float = 0.2,
        ignore_label: int | None = None,
    ) -> Project:
        """A new project, which starts with a segmentation model.

        Args:
            labels: other names of the model's labels.
            ignore_label: see `Project`.

        Raises:
            ModelNotFound: there is no such model. WrongTask: it does not segment.
            InvalidParameter: the name is not printable, `labels` has other ids, or the model has a
                label with the id `ignore_label`, or with the name that this then has.
        """
        if not name.strip() or not name.isprintable():
            raise InvalidParameter("name: must contain only printable characters")
        bundle = await self._engine.bundle(model)
        if bundle.card.task != "segmentation":
            raise WrongTask(f"{model} is a {bundle.card.task} model: choose a segmentation model")
        identity = uuid.uuid4().hex
        project = Project(
            number=0,
            id=identity,
            name=name,
            owner=caller.owner,
            start_model=bundle.reference,
            model=bundle.reference,
            trained_name=_model_name(name, identity),
            labels=_renamed(bundle.card.labels, labels or {}),
            seed=seed,
            held_out=held_out,
            created=time.time(),
            ignore_label=ignore_label,
        )
        if ignore_label in project.labels:
            raise InvalidParameter(
                f"ignore_label: {ignore_label} is a label of the model; it knows "
                f"{_told(project.labels)}: choose another id for unlabelled voxels"
            )
        check_names(project.ids)
        return await to_thread.run_sync(self.store.add_project, project)

    def list(self, caller: Caller, before: int | None = None, limit: int = 50) -> list[Project]:
        """The newest projects of a caller, older than number `before`."""
        return self.store.projects(caller.owner, caller.admin, before, limit)

    def get(self, caller: Caller, identity: str) -> Project:
        """The project with this id.

        Raises:
            Refusal: there is none, or it is another key's (404).
        """
        project = self.store.project(identity)
        if project is None or not caller.may_use(project):
            raise Refusal(PROJECT_NOT_FOUND, f"there is no project {identity}")
        return project

    def delete(self, project: Project) -> None:
        """Delete a project with its files, and cancel its training; models stay."""
        running = self.store.delete_project(project.id)
        shutil.rmtree(self.root / project.id, ignore_errors=True)
        if running is not None and self._jobs is not None:
            with contextlib.suppress(Refusal):  # deleted already
                self._cancel(self._jobs, running.job)

    @staticmethod
    def _cancel(jobs: Jobs, identity: str) -> None:
        if not jobs.get(identity).final:
            jobs.cancel(identity)

    def image(self, project: Project, identity: str) -> Image:
        """The image of a project with this id.

        Raises:
            Refusal: there is none (404).
        """
        image = self.store.image(project.id, identity)
        if image is None:
            raise Refusal(IMAGE_NOT_FOUND, f"this project has no image {identity}")
        return image

    def delete_image(self, image: Image) -> None:
        """Delete an image with its label maps."""
        files = self.store.delete_image(image)
        self.images.files(image.project).remove(*files)


def _model_name(name: str, identity: str) -> str:
    """The name of a project's models: its own in letters that models may have, and its id."""
    stem = _NOT_IN_MODELS.sub("-", name.lower()).strip("-")[:_LONGEST_STEM].strip("-")
    return f"{stem or 'project'}-{identity[:8]}"


def _told(labels: Mapping[int, str]) -> str:
    return ", ".join(f"{label}={name}" for label, name in labels.items())


def _renamed(labels: Mapping[int, str], names: Mapping[int, str]) -> dict[int, str]:
    """A model's labels, some of them under other names.

    Raises:
        InvalidParameter: the model has no such label, or two have one name.
    """
    if unknown := sorted(set(names) - set(labels)):
        raise InvalidParameter(
            f"labels: the model has no label {unknown[0]}; it knows {_told(labels)}"
        )
    renamed = {label: names.get(label, name) for label, name in labels.items()}
    found = {
        label: "".join("_" if c in _RESERVED else c for c in name)
        for label, name in renamed.items()
    }
    check_names(found)
    return found
