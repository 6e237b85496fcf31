"""A scripted annotator, who corrects what a project asks for with the truth."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from anyio import to_thread
from pydantic import BaseModel

from api.projects.caller import Caller
from api.projects.images import Upload
from api.projects.records import Image, Project
from api.projects.service import Projects
from api.projects.strategies import Strategy
from benchmarks.annotation.data import Labelled
from caps_med.bundles import ModelRepository
from caps_med.images import read_image
from caps_med.inference import Model
from training.evaluation.dice import mean_dice

CALLER = Caller()
AUTHOR = "script"
#: Images of one upload.
UPLOADED = 15
#: Seconds between two looks at what runs in the background.
PAUSE = 0.2


class Point(BaseModel):
    """The state of a project after a round; the first one before any.

    Attributes:
        corrected: images that the annotator has corrected.
        dice: of the project's model on each test image.
        changed: mean share of voxels that had to be changed in the predictions of this round.
        accepted: whether the round's model was kept.
        chosen: the images of this round.
    """

    corrected: int
    dice: tuple[float, ...]
    changed: float | None = None
    accepted: bool | None = None
    chosen: tuple[str, ...] = ()

    @property
    def mean(self) -> float:
        """Mean Dice."""
        return statistics.fmean(self.dice)


class Annotator:
    """Works through a project in rounds.

    Args:
        models: the repository.
        truths: name of an image -> its true label map.
        test: images that the project never sees.
        options: of the training of a round.
    """

    def __init__(
        self,
        projects: Projects,
        models: Path,
        truths: Mapping[str, bytes],
        test: Sequence[Labelled],
        options: Mapping[str, Any],
    ) -> None:
        self._projects, self._models, self._truths = projects, models, truths
        self._test, self._options = test, options

    async def run(
        self,
        start: str,
        strategy: Strategy,
        seed: int,
        labelled: Sequence[Labelled],
        pool: Sequence[Labelled],
        rounds: int,
        corrections: int,
    ) -> list[Point]:
        """Correct `corrections` images and learn, `rounds` times.

        Args:
            start: the model to start with.
            labelled: images that come with their label maps.
            pool: images to choose from.
        """
        held_out = 1 / 3
        project = await self._projects.create(CALLER, strategy, start, seed=seed, held_out=held_out)
        await self._add(project, labelled, with_labels=True)
        await self._add(project, pool, with_labels=False)
        points = [Point(corrected=0, dice=await self._dice(project))]
        for number in range(1, rounds + 1):
            await self._scored(project)
            chosen, shares = [], []
            for _ in range(corrections):
                image, share = await self._corrected(project, strategy)
                chosen.append(image.name)
                shares.append(share)
            accepted = await self._learned(project)
            project = self._projects.get(CALLER, project.id)
            points.append(
                Point(
                    corrected=number * corrections,
                    dice=await self._dice(project),
                    changed=statistics.fmean(shares),
                    accepted=accepted,
                    chosen=tuple(chosen),
                )
            )
        self._projects.delete(project)
        return points

    async def _add(self, project: Project, images: Sequence[Labelled], with_labels: bool) -> None:
        for start in range(0, len(images), UPLOADED):
            part = images[start : start + UPLOADED]
            labels = [Upload(one.name, one.truth) for one in part] if with_labels else []
            uploads = [Upload(one.name, one.image) for one in part]
            await self._projects.images.add(project, uploads, labels, AUTHOR)
        self._projects.scoring.wake()

    async def _scored(self, project: Project) -> None:
        """Wait until every image has the scores of the present model."""
        self._projects.scoring.wake()
        while await to_thread.run_sync(self._projects.store.unscored, project.id):
            await asyncio.sleep(PAUSE)

    async def _corrected(self, project: Project, strategy: Strategy) -> tuple[Image, float]:
        """Take the next image, predict it, and correct it; the share of voxels that was wrong."""
        found = self._projects.choice.next(project.id, strategy, AUTHOR)
        assert found is not None and found[1] == strategy  # noqa: S101 - all are scored
        image, _ = found
        prediction, _ = await self._projects.annotations.predict(project, image)
        truth = self._truths[image.name]
        saved = await self._projects.annotations.correct(
            project, image, truth, AUTHOR, prediction.version
        )
        return image, saved.changed or 0.0

    async def _learned(self, project: Project) -> bool:
        """Whether the new model was kept."""
        await self._projects.learning.learn(project, CALLER, self._options)
        while True:
            one = self._projects.store.rounds(project.id)[-1]
            if one.state in ("failed", "cancelled"):
                raise RuntimeError(one.message)
            if one.state == "finished":
                return bool(one.accepted)
            await asyncio.sleep(PAUSE)

    async def _dice(self, project: Project) -> tuple[float, ...]:
        """Of the project's model on the test images."""

        def scores() -> tuple[float, ...]:
            model = Model(ModelRepository(self._models).find(project.model))
            labels = list(project.foreground)
            return tuple(
                round(
                    mean_dice(
                        model.segment(one.image).array,
                        read_image(one.truth, kind="labels").array,
                        labels,
                    ),
                    4,
                )
                for one in self._test
            )

        return await to_thread.run_sync(scores)
