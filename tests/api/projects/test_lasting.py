"""What one round, image or key does not do to the others, and what does not pile up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from api.budget import Budget, Busy, Cost
from api.decoding.decoder import DecoderDied, DecodeTimeout, NoDecoder
from api.engine import Engine, costs
from api.jobs.job import Job, Options
from api.jobs.service import Jobs
from api.metrics import Metrics
from api.monai_label.rounds import Rounds
from api.problems import IMAGE_NOT_FOUND, Refusal
from api.projects import learning as learning_module
from api.projects import retrying as retrying_module
from api.projects import scoring as scoring_module
from api.projects import store as store_module
from api.projects.annotations import Annotations
from api.projects.caller import Caller
from api.projects.choice import LEASE_SECONDS, Choice
from api.projects.evaluation import Scores
from api.projects.files import ProjectFiles, sweep
from api.projects.images import ProjectImages
from api.projects.learning import Learning, held_out_of
from api.projects.records import CANCELLED, Image, LabelVersion, Project, Round
from api.projects.retrying import TRIES, retry_while_full
from api.projects.scoring import Scoring
from api.projects.service import Projects
from api.projects.store import ProjectStore
from api.projects.training_data import Labelled
from api.settings import Settings
from caps_med.errors import InputTooLarge
from caps_med.images import MedicalImage
from tests.api.running import run_async
from tests.waiting import PATIENCE


@pytest.fixture
def store(tmp_path: Path) -> ProjectStore:
    return ProjectStore(tmp_path / "projects.sqlite3", 10**9, 10**7)


def project_of(store: ProjectStore, letter: str, owner: str | None = None) -> Project:
    """A project with this letter as its id."""
    return store.add_project(Project(
        number=0, id=letter * 32, name="x", owner=owner, start_model="m@1", model="m@1",
        trained_name=f"x-{letter}", labels={0: "background", 1: "disc"}, seed=0, held_out=0.2,
        created=0.0,
    ))  # fmt: skip


def image_of(store: ProjectStore, project: Project, number: int) -> Image:
    """An image of a project, with a pose of its own."""
    name = f"{project.id[0]}{number:031x}"
    image = Image(
        number=0, id=name, project=project.id, name="x", file=f"{name}.png", format="png",
        channels=1, shape=(8, 8), affine=None, bytes=1, created=0.0,
    )  # fmt: skip
    (added,) = store.add_images([(image, 0.5)])
    return added


def correct(store: ProjectStore, image: Image) -> None:
    """Give an image a label map by a person."""
    assert store.add_label(image, LabelVersion(
        image=image.id, version=1, kind="correction", author="anna", model=None, created=0.0,
        parent=None, changed=None, edited=None, file=f"{image.id}-1.png", bytes=1, sha256="",
        ids=(0, 1),
    ))  # fmt: skip


def round_of(project: Project, number: int = 1) -> Round:
    return Round(
        project=project.id, round=number, job=f"{project.id[0]}{number}", state="training",
        created=0.0, base="m@1", corrected=2, trained_on=1, held_out=1,
    )  # fmt: skip


def during(running: Any, over: Event) -> None:  # noqa: ANN401 - a coroutine
    """Run something endless until the event is set."""

    async def whole() -> None:
        task = asyncio.create_task(running)
        try:
            assert await asyncio.to_thread(over.wait, 60)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    run_async(whole())


def test_a_project_has_one_open_round(store: ProjectStore) -> None:
    """Also where two begin at once, and the second counts the first."""
    project = project_of(store, "a")
    store.add_round(round_of(project), [], [])
    with pytest.raises(Refusal, match="has not finished"):
        store.add_round(round_of(project, 2), [], [])
    store.change_round(round_of(project), state="failed")
    store.add_round(round_of(project, 2), [], [])
    found = store.open_round(project.id)
    assert found is not None and found.round == 2


def test_of_two_that_begin_at_once_one_trains(
    store: ProjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, begun = project_of(store, "a"), []
    unused = cast(Any, object())
    learning = Learning(store, unused, unused, unused, unused, unused)

    async def begin(*_: object) -> Round:
        begun.append(1)
        await asyncio.sleep(0)
        return round_of(project)

    monkeypatch.setattr(learning, "_begin", begin)

    async def both() -> list[object]:
        calls = (learning.learn(project, unused, {}) for _ in range(2))
        return await asyncio.gather(*calls, return_exceptions=True)

    found = run_async(both())
    assert len(begun) == 1
    assert sum(isinstance(one, Refusal) for one in found) == 1


def predicted_by(store: ProjectStore, image: Image, model: str) -> None:
    """Give an image a label map by this model, whose file is gone."""
    assert store.add_label(image, LabelVersion(
        image=image.id, version=1, kind="prediction", author=None, model=model, created=0.0,
        parent=None, changed=None, edited=None, file=f"{image.id}-1.png", bytes=1, sha256="",
        ids=(0, 1),
    ))  # fmt: skip


@pytest.fixture
def label_maps(store: ProjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Annotations:
    """Label maps whose predictions are a single byte."""
    maps = SimpleNamespace(content=b"x", format="png", sha256="", ids=(0,), array=np.zeros((8, 8)))
    monkeypatch.setattr("api.projects.annotations.kept", lambda *_: maps)
    engine = Engine(Settings(models=tmp_path / "models", preload=()), Metrics())
    return Annotations(store, engine, ProjectImages(tmp_path, store, engine))


@pytest.mark.parametrize("earlier", [None, "m@0"])
def test_an_answer_for_an_image_that_is_deleted_meanwhile_is_given_but_not_kept(
    store: ProjectStore,
    label_maps: Annotations,
    monkeypatch: pytest.MonkeyPatch,
    earlier: str | None,
) -> None:
    """Also where it would replace an earlier prediction, whose file is gone as well."""
    project = project_of(store, "a")
    image, looked_up = image_of(store, project, 1), store.label
    if earlier is not None:
        predicted_by(store, image, earlier)

    def delete_after(identity: str) -> LabelVersion | None:
        found = looked_up(identity)
        store.delete_image(image)
        return found

    monkeypatch.setattr(store, "label", delete_after)
    answer = cast(Any, SimpleNamespace(warnings=()))
    run_async(label_maps.keep_prediction(project, image, answer))
    assert looked_up(image.id) is None


def test_a_prediction_whose_caller_leaves_as_it_is_written_is_not_kept(
    store: ProjectStore, label_maps: Annotations, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The next correction would be refused, for there is another label map by then."""
    project = project_of(store, "a")
    image, writing, left = image_of(store, project, 1), Event(), Event()
    write, remove, removed = ProjectFiles.write, ProjectFiles.remove, Event()

    def slowly(files: ProjectFiles, content: bytes, form: str) -> str:
        writing.set()
        assert left.wait(PATIENCE)
        return write(files, content, form)

    def note_removed(files: ProjectFiles, *names: str) -> None:
        remove(files, *names)
        removed.set()

    monkeypatch.setattr(ProjectFiles, "write", slowly)
    monkeypatch.setattr(ProjectFiles, "remove", note_removed)
    answer = cast(Any, SimpleNamespace(warnings=()))

    async def leave() -> None:
        keeping = asyncio.create_task(label_maps.keep_prediction(project, image, answer))
        assert await asyncio.to_thread(writing.wait, PATIENCE)
        keeping.cancel()
        with suppress(asyncio.CancelledError):
            await keeping
        left.set()
        assert await asyncio.to_thread(removed.wait, 10)

    run_async(leave())
    assert store.label(image.id) is None
    assert not list((tmp_path / project.id).iterdir())


def test_a_training_whose_caller_leaves_as_it_begins_has_its_round(
    store: ProjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = project_of(store, "a")
    for number in range(2):
        image = image_of(store, project, number)
        correct(store, image)
    asked, left = Event(), Event()

    def write(folder: Path, cases: Sequence[Labelled], *_: object) -> dict[str, Labelled]:
        folder.mkdir()
        return {image.id: (image, label) for image, label in cases}

    async def bundle(_: str) -> Any:  # noqa: ANN401
        return SimpleNamespace(card=SimpleNamespace(input_channels=1, is_ensemble=False))

    def edited(*_: object) -> None:
        asked.set()
        assert left.wait(PATIENCE)

    monkeypatch.setattr(learning_module, "write_cases", write)
    monkeypatch.setattr(store, "mean_edited", edited)
    jobs = Jobs(Settings(models=tmp_path / "models"), Metrics())
    unused = cast(Any, object())
    engine = cast(Any, SimpleNamespace(bundle=bundle))
    learning = Learning(store, engine, jobs, unused, unused, unused)

    async def leave() -> None:
        learns = asyncio.create_task(learning.learn(project, Caller(), {}))
        learns.add_done_callback(lambda _: asked.set())  # if it fails before
        await asyncio.to_thread(asked.wait, PATIENCE)
        learns.cancel()
        left.set()
        with suppress(asyncio.CancelledError):
            await learns

    run_async(leave())
    (job,) = jobs.store.newest(9)
    found = store.open_round(project.id)
    assert found is not None and found.job == job.id


def test_an_image_that_is_deleted_while_its_project_begins_to_learn_is_left_out(
    store: ProjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before its label map is looked up, before its files are linked, or between these."""
    project = project_of(store, "a")
    images = [image_of(store, project, number) for number in range(6)]
    files = ProjectFiles(tmp_path, project.id)
    files.folder.mkdir()
    for image in images:
        correct(store, image)
        for name in (image.file, f"{image.id}-1.png"):
            files.path(name).write_bytes(b"")
    corrected = store.images(project.id, "corrected", 0, 99)
    (held,) = held_out_of(corrected, project)
    first, linked, half, *left = [image for image in corrected if image.id != held]

    async def bundle(_: str) -> Any:  # noqa: ANN401
        files.remove(*store.delete_image(linked))
        files.remove(*store.delete_image(half)[1:])
        return SimpleNamespace(card=SimpleNamespace(input_channels=1, is_ensemble=False))

    def chosen(*given: Any) -> frozenset[str]:  # noqa: ANN401
        files.remove(*store.delete_image(first))
        return held_out_of(*given)

    monkeypatch.setattr(learning_module, "held_out_of", chosen)
    jobs, unused = Jobs(Settings(models=tmp_path / "models"), Metrics()), cast(Any, object())
    engine = cast(Any, SimpleNamespace(bundle=bundle))
    learning = Learning(store, engine, jobs, ProjectImages(tmp_path, store, unused), unused, unused)
    one = run_async(learning.learn(project, Caller(), {}))
    assert one.trained_on == len(left) == 2
    folder = jobs.root / one.job / f"{project.trained_name}-data"
    for kind in ("images", "labels"):
        found = {path.name.partition(".")[0] for path in folder.glob(f"{kind}/*/*")}
        assert found == {image.id for image in left}


def test_what_is_left_after_a_deletion_shows_every_label_or_is_not_learned(
    store: ProjectStore, tmp_path: Path
) -> None:
    project = project_of(store, "a")
    images = [image_of(store, project, number) for number in range(2)]
    for image in images:
        correct(store, image)
    unused = cast(Any, object())

    async def bundle(_: str) -> Any:  # noqa: ANN401
        return SimpleNamespace(card=SimpleNamespace(input_channels=1, is_ensemble=False))

    jobs = Jobs(Settings(models=tmp_path / "models"), Metrics())
    engine = cast(Any, SimpleNamespace(bundle=bundle))
    learning = Learning(store, engine, jobs, ProjectImages(tmp_path, store, unused), unused, unused)
    with pytest.raises(Refusal, match="none shows background, disc"):  # no file is there
        run_async(learning.learn(project, Caller(), {}))
    assert not jobs.store.newest(9) and store.open_round(project.id) is None


def test_that_an_image_was_deleted_meanwhile_is_said(store: ProjectStore) -> None:
    """To those who correct it or want its label map: not that it has none yet."""
    project, unused = project_of(store, "a"), cast(Any, object())
    image = image_of(store, project, 0)
    correct(store, image)
    store.delete_image(image)
    annotations = Annotations(store, unused, unused)
    calls: list[Callable[[], LabelVersion]] = [
        lambda: annotations.label(image),
        lambda: run_async(annotations.correct(project, image, b"", "anna", 1)),
        lambda: run_async(annotations.take(project, image, unused, "anna", 1)),
    ]
    for call in calls:
        with pytest.raises(Refusal, match="this image has been deleted") as refused:
            call()
        assert refused.value.code == IMAGE_NOT_FOUND


def test_a_round_starts_from_the_model_of_the_one_that_has_just_finished(
    store: ProjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the request looked the project up before it had."""
    known, unused = project_of(store, "a"), cast(Any, object())
    learning = Learning(store, unused, unused, unused, unused, unused)
    store.add_round(round_of(known), [], [])
    store.finish_round(round_of(known), "m@2")

    async def begin(_: object, project: Project, *more: object) -> Any:  # noqa: ANN401
        return project.model

    monkeypatch.setattr(learning, "_begin", begin)
    assert run_async(cast(Any, learning.learn(known, Caller(), {}))) == "m@2"
    store.delete_project(known.id)
    with pytest.raises(Refusal, match="there is no project"):
        run_async(learning.learn(known, Caller(), {}))


def test_the_training_of_a_project_that_is_deleted_as_it_begins_is_cancelled(
    store: ProjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs, project = Jobs(Settings(models=tmp_path / "models"), Metrics()), project_of(store, "a")
    one, delete = round_of(project), store.delete_project
    jobs.store.add(one.job, "segmentation", "x", "data", False, Options())

    def begun_just_before(identity: str) -> Any:  # noqa: ANN401
        store.add_round(one, [], [])
        return delete(identity)

    monkeypatch.setattr(store, "delete_project", begun_just_before)
    projects = Projects.__new__(Projects)
    projects.store, projects.root, projects._jobs = store, tmp_path, jobs
    projects.delete(project)
    assert jobs.get(one.job).state == "cancelled"


def test_a_round_whose_job_is_cancelled_or_deleted(store: ProjectStore, tmp_path: Path) -> None:
    jobs = Jobs(Settings(models=tmp_path / "models"), Metrics())
    unused = cast(Any, object())
    learning = Learning(store, unused, jobs, unused, unused, unused)
    for letter in ("a", "b"):
        one, options = round_of(project_of(store, letter)), Options()
        store.add_round(one, [], [])
        job = jobs.store.add(one.job, "segmentation", "x", "data", False, options)
        jobs.cancel(job.id)
        if letter == "b":
            jobs.cancel(job.id)
        run_async(learning._follow(one))
        (ended,) = store.rounds(one.project)
        told = CANCELLED if letter == "a" else "its training job was deleted"
        assert (ended.state, ended.message) == ("cancelled", told)


def test_a_round_that_cannot_be_followed_holds_up_no_other(
    store: ProjectStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(learning_module, "PAUSE", 0.01)
    broken, good = project_of(store, "a"), project_of(store, "b")
    for project in (broken, good):
        store.add_round(round_of(project), [], [])
    followed, asked = Event(), []

    class Jobs:
        def get(self, job: str) -> Job:
            asked.append(job)
            if job == "a1":
                raise RuntimeError("broken")
            if asked.count(job) == 3:
                followed.set()
            return cast(Job, type("Running", (), {"state": "running", "final": False}))

    unused = cast(Any, object())
    learning = Learning(store, unused, cast(Any, Jobs()), unused, unused, unused)
    during(learning.run(), followed)
    assert asked.count("a1") == 1  # and not at every look
    assert caplog.text.count("cannot be followed") == 1


def test_a_held_out_image_that_is_deleted_while_models_are_compared_costs_no_round(
    store: ProjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are compared anew, on the others."""
    project = project_of(store, "a")
    images = [image_of(store, project, number) for number in range(3)]
    for image in images:
        correct(store, image)
    one, compared = round_of(project), []
    store.add_round(one, [image.id for image in images[:2]], [images[2].id])

    async def scores(*given: Any) -> Scores:  # noqa: ANN401
        compared.append(given[-1])
        if len(compared) == 2:  # of the new model
            store.delete_image(images[0])
            raise Refusal(IMAGE_NOT_FOUND, "this image has been deleted")
        return Scores([{"disc": 0.5}], ["x"])

    async def promote(_: str) -> None:
        return

    monkeypatch.setattr(learning_module, "scores_of", scores)
    job = SimpleNamespace(state="succeeded", final=True, name="x-a", version=1)
    jobs, engine = SimpleNamespace(get=lambda _: job), SimpleNamespace(promote=promote)
    scoring, unused = SimpleNamespace(wake=lambda: None), cast(Any, object())
    given: Any = (engine, jobs, unused, unused, scoring)
    learning = Learning(store, *given)
    run_async(learning._follow(one))
    (shown,) = store.rounds(project.id)
    assert (shown.state, shown.message) == ("evaluating", None)
    run_async(learning._follow(one))
    (shown,) = store.rounds(project.id)
    assert (shown.state, shown.model, shown.accepted) == ("finished", "x-a@1", True)
    assert [len(held_out) for held_out in compared] == [2, 2, 1, 1]


def test_an_image_is_held_for_ten_minutes_and_not_for_ever_after_a_clock_is_set_back(
    store: ProjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = project_of(store, "a")
    image_of(store, project, 1)

    def is_given(at: float, author: str) -> bool:
        monkeypatch.setattr(time, "time", lambda: 1e9 + at)
        return Choice(store.database).next(project.id, "random", author) is not None

    assert is_given(0, "first")
    assert not is_given(LEASE_SECONDS - 1, "second")
    assert not is_given(-5, "second"), "the clock of another service may be behind"
    assert is_given(LEASE_SECONDS + 1, "second")
    assert is_given(-3600, "third")


def test_projects_take_turns_at_scoring(
    store: ProjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many images one has; an image with which its model fails is not tried for ever."""
    monkeypatch.setattr(scoring_module, "PAUSE", 0.01)
    for letter, count in (("a", 3), ("b", 1), ("c", 1)):
        project = project_of(store, letter)
        for number in range(count):
            image_of(store, project, number)
    scoring = Scoring(store, cast(Any, object()), cast(Any, object()))
    order, over = [], Event()

    async def fails(project: Project, image: Image) -> None:
        order.append(project.id[0])
        if len(order) == 5:
            over.set()
        raise RuntimeError("broken")

    monkeypatch.setattr(scoring, "_computed", fails)
    during(scoring.run(), over)
    assert "".join(order) == "abcaa"


def test_a_round_is_cancelled_while_models_are_compared(
    store: ProjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By deleting its job, as MONAI Label's clients do that stop it."""
    jobs = Jobs(Settings(models=tmp_path / "models"), Metrics())
    one, unused = round_of(project_of(store, "a")), cast(Any, object())
    store.add_round(one, [], [])
    job = jobs.store.add(one.job, "segmentation", "x-a", "data", False, Options())
    jobs.store.move(job, "succeeded", version=1)

    async def scores(*_: object) -> Scores:
        Rounds(jobs, store).stop(one)
        return Scores([{"disc": 0.5}], ["x"])

    monkeypatch.setattr(learning_module, "scores_of", scores)
    learning = Learning(store, unused, jobs, unused, unused, unused)
    for _ in range(2):
        run_async(learning._follow(one))
    (ended,) = store.rounds(one.project)
    assert (ended.state, ended.accepted) == ("cancelled", None)
    project = store.project(one.project)
    assert project is not None and project.model == "m@1"


@pytest.mark.parametrize("deaths", [TRIES - 1, TRIES])
def test_a_decoder_that_is_ended_ends_no_round(
    monkeypatch: pytest.MonkeyPatch, deaths: int
) -> None:
    """Unless it always is: then the file may be to blame."""
    monkeypatch.setattr(retrying_module, "PAUSE", 0)
    engine = cast(Any, SimpleNamespace(budget=Budget(2**20)))
    ends = [DecoderDied("killed"), DecodeTimeout("too slow"), NoDecoder("none starts")][-deaths:]

    async def compare() -> str:
        if ends:
            raise ends.pop()
        return "compared"

    if deaths == TRIES:
        with pytest.raises(DecoderDied, match="killed"):
            run_async(retry_while_full(engine, compare))
    else:
        assert run_async(retry_while_full(engine, compare)) == "compared"


@pytest.mark.parametrize(
    "trouble", [Busy("m@1", 64, 0), NoDecoder("none starts"), DecoderDied("killed")], ids=repr
)
def test_an_image_is_scored_after_what_is_not_its_fault(
    store: ProjectStore, monkeypatch: pytest.MonkeyPatch, trouble: Exception
) -> None:
    """A full queue of its model, or no process to decode it in, or one that is killed."""
    monkeypatch.setattr(scoring_module, "PAUSE", 0.01)
    monkeypatch.setattr(retrying_module, "PAUSE", 0.01)
    monkeypatch.setattr(costs, "uncertainty", lambda *_: Cost())
    image = image_of(store, project_of(store, "a"), 1)
    troubles = [trouble]
    found = SimpleNamespace(entropy=0.5, flips=None, members=None, descriptor=[0.0])

    class Engine:
        budget = Budget(2**20)
        give_way = staticmethod(lambda: None)

        async def load(self, _: str) -> object:
            if troubles:
                raise troubles.pop()
            return SimpleNamespace(uncertainty=lambda _: found)

        async def in_background(self, work: Any, _: Cost) -> object:  # noqa: ANN401
            return work()

    async def decoded(*_: object) -> MedicalImage:
        return MedicalImage(np.zeros((1, 8, 8), np.uint8))

    images = cast(Any, SimpleNamespace(decoded=decoded))
    scoring = Scoring(store, cast(Any, Engine()), images)

    async def scored() -> float | None:
        running = asyncio.create_task(scoring.run())
        async with asyncio.timeout(PATIENCE):
            while not ((kept := store.image(image.project, image.id)) and kept.scored):
                await asyncio.sleep(0.01)
        running.cancel()
        return kept.uncertainty

    assert run_async(scored()) == 0.5


def test_images_without_scores_are_found_by_an_index(store: ProjectStore) -> None:
    query = "images WHERE scored = 0 AND project > 'a' ORDER BY project, number LIMIT 1"
    with store.database.connection() as connection:
        rows = connection.execute(f"EXPLAIN QUERY PLAN SELECT id FROM {query}").fetchall()  # noqa: S608 - ours
    plan = " ".join(row[3] for row in rows)
    assert "SEARCH images USING INDEX images_unscored" in plan and "TEMP B-TREE" not in plan


def test_images_from_before_their_warnings_and_patients_were_kept(
    store: ProjectStore, tmp_path: Path
) -> None:
    project = project_of(store, "a")
    before = image_of(store, project, 0)
    with store.database.transaction() as connection:
        for table in ("images", "labels"):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN warnings")
        connection.execute("ALTER TABLE projects DROP COLUMN ignore_label")
        for column in ("patient", "patient_digest", "learned"):
            connection.execute(f"ALTER TABLE images DROP COLUMN {column}")
    again = ProjectStore(tmp_path / "projects.sqlite3", 10**9, 10**7)
    assert again.image(project.id, before.id) == before
    assert again.project(project.id) == replace(project, bytes=before.bytes)
    new = replace(
        before,
        id="b" * 32,
        file="b.png",
        warnings=("padding", "twice"),
        patient="p",
        patient_digest="7",
    )
    (added,) = again.add_images([(new, 0.5)])
    assert (added.warnings, added.patient) == (("padding", "twice"), "p")
    assert added.patient_digest == "7"
    assert again.images(project.id, None, 0, 9) == [before, added]


def test_rounds_from_before_cancelled_ones_were_told_from_failed_ones(
    store: ProjectStore, tmp_path: Path
) -> None:
    project = project_of(store, "a")
    for number, message in enumerate((CANCELLED, "out of memory"), start=1):
        store.add_round(round_of(project, number), [], [])
        store.change_round(round_of(project, number), state="failed", message=message)
    again = ProjectStore(tmp_path / "projects.sqlite3", 10**9, 10**7)
    assert [one.state for one in again.rounds(project.id)] == ["cancelled", "failed"]


def test_projects_that_pile_up(store: ProjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MOST_PROJECTS", 2)
    first = project_of(store, "a", "anna 1")
    project_of(store, "b", "anna 1")
    with pytest.raises(Refusal, match="may have at most 2 projects"):
        project_of(store, "c", "anna 1")
    project_of(store, "c", "ben 2")
    store.delete_project(first.id)
    project_of(store, "d", "anna 1")


def test_versions_that_pile_up(store: ProjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MOST_VERSIONS", 2)
    image = image_of(store, project_of(store, "a"), 1)
    label = LabelVersion(
        image=image.id, version=1, kind="correction", author="anna", model=None, created=0.0,
        parent=None, changed=None, edited=None, file="1.png", bytes=1, sha256="", ids=(0,),
    )  # fmt: skip
    assert store.add_label(image, label)
    assert store.add_label(image, replace(label, version=2, parent=1, file="2.png"))
    with pytest.raises(Refusal, match="may have 2 versions"):
        store.add_label(image, replace(label, version=3, parent=2, file="3.png"))


def test_poses_count_towards_the_memory_of_a_request(store: ProjectStore) -> None:
    project = project_of(store, "a")
    pose = np.zeros(256, np.float32).tobytes()
    for number in range(4):
        store.set_score(project, image_of(store, project, number), 0.5, pose)
    choice = Choice(store.database)
    with Budget(10**6).claim() as claim:
        assert choice.next(project.id, "diversity", "anna") is not None
        assert claim.held > 3 * 4 * len(pose)
    with Budget(10_000).claim(), pytest.raises(InputTooLarge, match="would need about"):
        choice.next(project.id, "diversity", "anna")


def test_what_a_kill_leaves_is_swept_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.projects.service.SWEEP", 0.01)
    swept: list[Path] = []
    over = Event()

    def counted(root: Path, _: object) -> None:
        swept.append(root)
        if len(swept) == 3:
            over.set()
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("api.projects.service.sweep", counted)
    projects = Projects.__new__(Projects)
    projects.root, projects.store = tmp_path, cast(Any, None)
    during(projects._sweep(), over)
    assert set(swept) == {tmp_path}


def test_what_is_deleted_while_it_is_swept(
    store: ProjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = project_of(store, "a")
    folder = tmp_path / project.id
    folder.mkdir()
    monkeypatch.setattr("api.projects.files.FRESH", -1.0)

    def deleted_meanwhile(_: str) -> Project:
        folder.rmdir()
        return project

    monkeypatch.setattr(store, "project", deleted_meanwhile)
    sweep(tmp_path, store)
    assert not folder.exists()
