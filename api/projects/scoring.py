"""How unsure the models of projects are of their images, computed once and in the background."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from contextlib import suppress
from dataclasses import replace

import numpy as np
from anyio import to_thread

from api.decoding.decoder import NoDecoder
from api.engine import Engine, costs
from api.problems import Refusal
from api.projects.images import ProjectImages
from api.projects.records import Image, Project
from api.projects.retrying import retry_while_full
from api.projects.store import ProjectStore
from api.projects.strategies import score_of
from caps_med.errors import CapsMedError
from caps_med.images import MedicalImage
from caps_med.inference import ImageUncertainty, Model
from caps_med.inference.passes import cancelled_unless

log = logging.getLogger("caps_med.projects")

#: Seconds after which a failed search for images without scores is repeated.
PAUSE = 5.0


class Scoring:
    """Scores one image after another, while no request waits for a network.

    Args:
        images: of the projects.
    """

    def __init__(self, store: ProjectStore, engine: Engine, images: ProjectImages) -> None:
        self._store, self._engine, self._images = store, engine, images
        self._wanted = asyncio.Event()

    def wake(self) -> None:
        """Say that there may be images without scores; on the service's loop."""
        self._wanted.set()

    async def run(self) -> None:
        """Score what has no scores, until cancelled."""
        self.wake()
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                last = ""
                while found := await to_thread.run_sync(self._store.next_unscored, last):
                    await self._score(*found)
                    last = found[0].id
            except Exception:  # a full disk: the service goes on
                log.exception("images could not be scored; trying again")
                await asyncio.sleep(PAUSE)
                self.wake()

    async def _score(self, project: Project, image: Image) -> None:
        """Keep the scores of an image; none of one with which the model fails."""
        uncertainty = pose = None
        with suppress(Refusal):  # it has just been deleted
            try:
                found = await self._computed(project, image)
                uncertainty = score_of(found)
                pose = np.asarray(found.descriptor, np.float32).tobytes()
            except CapsMedError as error:
                log.warning("an image of project %s has no scores: %s", project.id, error.code)
            except (OSError, sqlite3.Error, NoDecoder):  # of no image: it is tried again
                raise
            except Exception:  # one image holds up no other
                log.exception("an image of project %s has no scores", project.id)
        await to_thread.run_sync(lambda: self._store.set_score(project, image, uncertainty, pose))

    async def _computed(self, project: Project, image: Image) -> ImageUncertainty:
        async def read() -> tuple[Model, MedicalImage]:
            model = await self._engine.load(project.model)
            return model, await self._images.decoded(image, model)

        model, decoded = await retry_while_full(self._engine, read)

        def scored() -> ImageUncertainty:
            with cancelled_unless(lambda: True, self._engine.give_way):
                return model.uncertainty(decoded)

        cost = costs.uncertainty(model, decoded)
        held = cost.held + decoded.array.nbytes
        return await self._engine.in_background(scored, replace(cost, held=held))
