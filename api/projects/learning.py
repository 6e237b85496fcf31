"""Rounds: train on what was corrected so far, and keep the new model if it is not worse."""

from __future__ import annotations

import asyncio
import logging
import random
import re
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from anyio import to_thread

from api.engine import Engine
from api.jobs.job import LARGEST_SEED, Job, Options
from api.jobs.service import Jobs
from api.problems import (
    DATA_NOT_FIT,
    JOB_NOT_FOUND,
    LEARNING,
    PROJECT_NOT_FOUND,
    TRAINING_UNAVAILABLE,
    Refusal,
)
from api.projects.annotations import Annotations
from api.projects.caller import Caller
from api.projects.evaluation import Scores, compared, scores_of
from api.projects.groups import groups_of
from api.projects.images import ProjectImages
from api.projects.records import CANCELLED, Image, Project, Round, RoundState
from api.projects.scoring import Scoring
from api.projects.store import ProjectStore
from api.projects.training_data import CASES_PAGE, Labelled, write_cases
from caps_med.errors import CapsMedError
from caps_med.wording import counted

log = logging.getLogger("caps_med.projects")

#: Seconds between two looks at the training jobs of open rounds.
PAUSE = 0.5
#: Seconds after which a round that could not be followed is tried again: it may be evaluated anew.
RETRY = 30.0
#: Fewest corrected images: one to learn from, one held out.
FEWEST = 2
#: An image or label map among the data of a training, see `write_cases`.
_CASE = re.compile(r"(?:(?:images|labels)/)?\d+/(?P<id>[0-9a-f]{32})(?:\.\w+)*")


class Learning:
    """The rounds of all projects.

    Args:
        jobs: trains; None if this service does not.
        scoring: notified when a project has another model.
    """

    def __init__(
        self,
        store: ProjectStore,
        engine: Engine,
        jobs: Jobs | None,
        images: ProjectImages,
        annotations: Annotations,
        scoring: Scoring,
    ) -> None:
        self._store, self._engine, self._jobs = store, engine, jobs
        self._images, self._annotations, self._scoring = images, annotations, scoring
        self._starting: set[str] = set()
        self._later: dict[str, float] = {}  # job -> when its round is tried again

    async def learn(self, project: Project, caller: Caller, options: Mapping[str, Any]) -> Round:
        """Begin a round: a training job that starts from the project's present model.

        Where that is an ensemble, a single network is trained from the beginning.

        Args:
            options: epochs, steps and so on, as of a training job.

        Raises:
            Refusal: a round is not finished (409), the project is deleted (404), too little is
                corrected, not every label, or both pictures and volumes (422); what
                `Jobs.submit_folder` refuses.
        """
        if self._jobs is None:
            raise Refusal(TRAINING_UNAVAILABLE, "this service does not train models")
        if project.id in self._starting:
            raise Refusal(LEARNING, "a round of this project is just starting: wait, or cancel it")
        self._starting.add(project.id)
        try:
            if await to_thread.run_sync(self._store.open_round, project.id):
                detail = "a round of this project has not finished: wait, or cancel it"
                raise Refusal(LEARNING, detail)
            # its model is another one if a round has finished since it was looked up
            present = await to_thread.run_sync(self._store.project, project.id)
            if present is None:
                raise Refusal(PROJECT_NOT_FOUND, f"there is no project {project.id}")
            return await self._begin(self._jobs, present, caller, options)
        finally:
            self._starting.discard(project.id)

    async def _begin(
        self, jobs: Jobs, project: Project, caller: Caller, options: Mapping[str, Any]
    ) -> Round:
        corrected = await to_thread.run_sync(self._corrected, project)
        if len(corrected) < FEWEST:
            found = f"{counted(len(corrected), 'image')} {'is' if len(corrected) == 1 else 'are'}"
            raise Refusal(DATA_NOT_FIT, f"{found} corrected: correct at least {FEWEST}")
        held_out = held_out_of(corrected, project)
        training = [image for image in corrected if image.id not in held_out]
        _check_dimensions(training)
        cases = await to_thread.run_sync(self._labelled, training)
        seen = _check_labels(project, cases)
        labels = ",".join(f"{label}={name}" for label, name in project.foreground.items())
        card = (await self._engine.bundle(project.model)).card
        ours = {"seed": project.seed % (LARGEST_SEED + 1), "labels": labels}
        if not card.is_ensemble:  # whose networks are several
            ours["start_from"] = project.model
        if project.ignore_label in seen:
            ours["ignore_label"] = project.ignore_label
        chosen = Options.checked({**options, **ours})

        written: dict[str, Labelled] = {}

        async def fill(folder: Path) -> list[str]:
            written.update(await to_thread.run_sync(write_cases, folder, cases, self._images))
            _check_labels(project, written.values())  # without what was deleted meanwhile
            channels = card.input_channels
            return [name for name, (image, _) in written.items() if image.channels != channels]

        def begun(job: Job) -> Round:
            rounds = self._store.rounds(project.id)
            since = rounds[-1].created if rounds else 0.0
            new = Round(
                project=project.id,
                round=len(rounds) + 1,
                job=job.id,
                state="training",
                created=time.time(),
                base=project.model,
                corrected=len(corrected),
                trained_on=len(written),
                held_out=len(held_out),
                changed=self._store.mean_edited(project.id, since),
            )
            try:
                self._store.add_round(new, held_out, [image.id for image, _ in written.values()])
            except (sqlite3.IntegrityError, Refusal) as error:  # deleted, or learning elsewhere
                raise Refusal(
                    LEARNING, "the project is already learning, or has been deleted"
                ) from error
            return new

        owner = project.owner if caller.owner is None else caller.owner
        name = project.trained_name
        await to_thread.run_sync(jobs.names.reserve, name, f"project:{project.id}")
        return await jobs.submit_folder("segmentation", name, chosen, fill, owner, begun)

    def _corrected(self, project: Project) -> list[Image]:
        """All corrected images."""
        found: list[Image] = []
        while page := self._store.images(
            project.id, "corrected", found[-1].number if found else 0, CASES_PAGE
        ):
            found += page
        return found

    def _labelled(self, images: Sequence[Image]) -> list[Labelled]:
        """The images with their present label maps, without those that have been deleted."""
        found = ((image, self._store.label(image.id)) for image in images)
        return [(image, label) for image, label in found if label is not None]

    async def run(self) -> None:
        """Follow the rounds until cancelled, those too that an earlier service began.

        One that cannot be followed holds up no other.
        """
        trouble = ""
        while True:
            try:
                for one in await to_thread.run_sync(self._store.open_rounds):
                    await self._try_to_follow(one)
                trouble = ""
            except Exception as error:
                if trouble != (trouble := repr(error)):  # not twice a second on a full disk
                    log.exception("the rounds of projects cannot be followed")
            await asyncio.sleep(PAUSE)

    async def _try_to_follow(self, one: Round) -> None:
        if time.monotonic() < self._later.get(one.job, 0.0):
            return
        try:
            await self._follow(one)
            self._later.pop(one.job, None)
        except Exception:  # a full disk, a broken model: the others go on
            log.exception("round %d of project %s cannot be followed", one.round, one.project)
            self._later[one.job] = time.monotonic() + RETRY

    async def _follow(self, one: Round) -> None:
        """Evaluate the model of a round whose job has ended."""
        if self._jobs is None:
            return
        job = await to_thread.run_sync(_job_of, self._jobs, one)
        if job is None:
            await self._end(one, "cancelled", "its training job was deleted")
        elif job.state == "succeeded":
            await self._evaluate(self._jobs, one, f"{job.name}@{job.version}")
        elif job.state == "cancelled":
            await self._end(one, "cancelled", CANCELLED)
        elif job.final:
            await self._end(one, "failed", job.error or "its training job has failed")

    async def _end(self, one: Round, state: RoundState, message: str) -> None:
        """End a round that has no new model to evaluate."""

        def end() -> None:
            told = _CASE.sub(lambda case: self._name_of(one.project, case), message)
            self._store.end_round(one, state, told)

        await to_thread.run_sync(end)

    def _name_of(self, project: str, case: re.Match[str]) -> str:
        """What an image is called that a training knows by its id."""
        image = self._store.image(project, case["id"])
        return case[0] if image is None else image.name

    async def _evaluate(self, jobs: Jobs, one: Round, model: str) -> None:
        """Compare the new model with the one before, and keep the better."""
        project = await to_thread.run_sync(self._store.project, one.project)
        if project is None:
            return
        await to_thread.run_sync(
            lambda: self._store.change_round(one, state="evaluating", model=model)
        )
        corrected = await to_thread.run_sync(self._corrected, project)
        held_out: dict[str, list[Image]] = {}
        for group, image in zip(groups_of(corrected), corrected, strict=True):
            if image.held_out:
                held_out.setdefault(group, []).append(image)
        try:
            before = await self._scored(project, one.base, held_out)
            after = await self._scored(project, model, held_out)
        except (CapsMedError, Refusal) as error:
            if await to_thread.run_sync(self._is_one_deleted, held_out):
                return  # it is evaluated anew, on those that are left
            why = f"the new model could not be evaluated: {type(error).__name__}"
            await self._end(one, "failed", why)
            return
        if await to_thread.run_sync(_job_of, jobs, one) is None:
            return  # it is cancelled at the next look
        accepted, message = compared(one.base, before, model, after)
        if accepted:
            await self._engine.promote(model)
        await to_thread.run_sync(
            lambda: self._store.finish_round(
                one,
                model if accepted else None,
                accepted=accepted,
                message=message,
                dice=after.as_dict(project.seed),
                before=before.as_dict(project.seed),
            )
        )
        self._scoring.wake()

    def _is_one_deleted(self, held_out: Mapping[str, Sequence[Image]]) -> bool:
        """Whether there is one of these images no more."""
        images = (image for of_group in held_out.values() for image in of_group)
        return any(self._store.image(image.project, image.id) is None for image in images)

    async def _scored(
        self, project: Project, model: str, held_out: Mapping[str, Sequence[Image]]
    ) -> Scores:
        return await scores_of(
            self._engine, self._images, self._annotations, project, model, held_out
        )


def _job_of(jobs: Jobs, one: Round) -> Job | None:
    """The training job of a round; None if it was deleted."""
    try:
        return jobs.get(one.job)
    except Refusal as gone:
        if gone.code != JOB_NOT_FOUND:
            raise
        return None


def _check_labels(project: Project, cases: Iterable[Labelled]) -> set[int]:
    """The ids that occur in the label maps.

    Raises:
        Refusal: the training would forget a label, because no image shows it (422).
    """
    seen = {number for _, label in cases for number in label.ids}
    missing = [name for label, name in project.labels.items() if label not in seen]
    if missing:
        detail = (
            f"of the corrected images that are not held out, none shows {', '.join(missing)}: "
            "correct one that does"
        )
        raise Refusal(DATA_NOT_FIT, detail)
    return seen


def _check_dimensions(training: Sequence[Image]) -> None:
    """Refuse pictures beside volumes, of which a training takes either."""
    volumes = sum(len(one.shape) == 3 and min(one.shape) > 1 for one in training)
    if 0 < volumes < len(training):
        pictures = len(training) - volumes
        detail = (
            "a model learns from either pictures or volumes, but here are "
            f"{counted(pictures, 'picture')} and {counted(volumes, 'volume')}: delete one kind, "
            "and create another project for it"
        )
        raise Refusal(DATA_NOT_FIT, detail)


def held_out_of(corrected: Sequence[Image], project: Project) -> frozenset[str]:
    """Which of the corrected images are held out: chosen by the seed in the first round.

    Patients and volumes are held out as a whole, with the images of them that come later. Where all
    that were held out have been deleted, others are chosen that no round has learned from.

    Raises:
        Refusal: all images are of one patient, or are learned (422).
    """
    groups = groups_of(corrected)
    pairs = list(zip(groups, corrected, strict=True))
    chosen = {group for group, image in pairs if image.held_out}
    if not chosen:
        names = list(dict.fromkeys(groups))
        if len(names) < FEWEST:
            detail = (
                "all corrected images are of one patient, so none can be held out: correct an "
                "image of another patient"
            )
            raise Refusal(DATA_NOT_FIT, detail)
        learned = {group for group, image in pairs if image.learned}
        unseen = [name for name in names if name not in learned]
        if not unseen:
            detail = (
                "no held-out image is left, and the model has learned from all other images, so "
                "none can be held out: correct a new image of another patient"
            )
            raise Refusal(DATA_NOT_FIT, detail)
        count = min(max(1, round(project.held_out * len(names))), len(unseen), len(names) - 1)
        chosen = set(random.Random(project.seed).sample(unseen, count))  # noqa: S311 - no secret
    return frozenset(image.id for group, image in pairs if group in chosen)
