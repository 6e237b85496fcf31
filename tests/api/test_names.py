"""Whose the names of models are: who may train under them, and when they answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from api.access.keys import KeyStore, Scope
from api.jobs.job import Options
from api.jobs.names import ModelNames
from api.jobs.store import JobStore
from api.problems import Refusal
from api.settings import Settings
from caps_med.bundles import ModelRepository
from caps_med.client import Client, ServiceError
from tests.api.jobs import TINY
from tests.api.running import Running, running
from tests.conftest import BUILT_IN_NAMES, tiny_card, write_tiny


@pytest.fixture
def store(tmp_path: Path) -> JobStore:
    return JobStore(tmp_path / "models" / ".jobs" / "jobs.sqlite3")


@pytest.fixture
def names(tmp_path: Path, store: JobStore) -> ModelNames:
    write_tiny(tmp_path / "models", "operators", tiny_card("segmentation"))
    return ModelNames(store, ModelRepository(tmp_path / "models"))


def queue(store: JobStore, names: ModelNames, name: str, owner: str | None) -> None:
    names.check(name, owner, admin=False)
    names.take(name, owner)
    store.add(f"{name}-{owner}", "segmentation", name, "discs", False, Options(), owner)


@pytest.mark.parametrize("owner", ["ann 1", None])
@pytest.mark.parametrize("name", BUILT_IN_NAMES)
def test_names_of_built_in_models_are_nobodys(
    name: str, owner: str | None, names: ModelNames
) -> None:
    with pytest.raises(Refusal, match=f"'{name}' is a built-in model or belongs to others"):
        names.check(name, owner, admin=False)
    names.check(name, "root 0", admin=True)
    names.take(name, "root 0")
    assert names.is_foreign(name, "root 0")


def test_a_new_name_is_of_the_key_that_first_took_it(names: ModelNames, store: JobStore) -> None:
    queue(store, names, "mine", "ann 1")
    names.check("mine", "ann 1", admin=False)
    assert not names.is_foreign("mine", "ann 1")
    with pytest.raises(Refusal, match="'mine' is a built-in model or belongs to others"):
        names.check("mine", "bob 2", admin=False)
    names.check("mine", "root 0", admin=True)
    names.take("mine", "root 0")
    assert names.is_foreign("mine", "root 0")
    assert not names.is_foreign("mine", "ann 1")


def test_what_the_operator_put_there_is_no_keys(names: ModelNames) -> None:
    with pytest.raises(Refusal, match="'operators' is a built-in model or belongs to others"):
        names.check("operators", "ann 1", admin=False)
    assert names.is_foreign("operators", "root 0")


def test_without_keys_all_names_are_the_one_users(names: ModelNames, store: JobStore) -> None:
    queue(store, names, "mine", "ann 1")
    for name in ("operators", "mine", "new"):
        names.check(name, None, admin=False)
        assert not names.is_foreign(name, None)


def test_a_name_whose_job_left_no_model_is_free_again(names: ModelNames, store: JobStore) -> None:
    queue(store, names, "mine", "ann 1")
    (job,) = store.newest(1)
    assert store.move(job, "failed")
    queue(store, names, "mine", "bob 2")
    with pytest.raises(Refusal, match="belongs to others"):
        names.check("mine", "ann 1", admin=False)


def test_models_from_before_names_had_owners_are_of_their_jobs_keys(
    names: ModelNames, store: JobStore, tmp_path: Path
) -> None:
    write_tiny(tmp_path / "models", "old", tiny_card("segmentation"))
    store.add("1", "segmentation", "old", "discs", False, Options(), "ann 1")
    (job,) = store.newest(1)
    assert store.move(job, "succeeded", version=1)
    again = JobStore(tmp_path / "models" / ".jobs" / "jobs.sqlite3")
    ModelNames(again, ModelRepository(tmp_path / "models")).check("old", "ann 1", admin=False)
    with pytest.raises(Refusal, match="belongs to others"):
        names.check("old", "bob 2", admin=False)


class TestServed:
    @pytest.fixture
    def server(self, tmp_path: Path, discs: Path) -> Iterator[Running]:
        write_tiny(tmp_path / "models", "operators", tiny_card("segmentation"))
        settings = Settings(
            models=tmp_path / "models", preload=(), datasets={"discs": discs},
            keys=tmp_path / "keys.db", reload_seconds=0.05,
        )  # fmt: skip
        with running(settings) as found:
            yield found

    def client(self, server: Running, *scopes: Scope) -> Client:
        keys = server.engine.settings.keys
        assert keys is not None
        _, text = KeyStore(keys).create("-".join(scopes), scopes)
        return Client(server.address, key=text)

    def test_a_training_key_takes_over_nothing(self, server: Running) -> None:
        with self.client(server, "infer", "train") as client:
            for name in ("operators", *BUILT_IN_NAMES):
                with pytest.raises(ServiceError, match="choose another name") as refused:
                    client.train("segmentation", name, data="discs", **TINY)
                assert (refused.value.status, refused.value.code) == (409, "name_taken")
            assert client.jobs() == []
            with pytest.raises(ServiceError, match="scope 'admin'") as forbidden:
                client.promote("operators@1")
            assert forbidden.value.status == 403

    @pytest.mark.slow
    def test_a_version_of_a_foreign_name_answers_once_it_is_promoted(self, server: Running) -> None:
        with self.client(server, "admin") as client:
            job = client.train("segmentation", "operators", data="discs", **TINY)
            done = client.wait(job["id"])
            assert (done["state"], done["model"]) == ("succeeded", "operators@2"), done
            assert done["candidate"]
            model = client.model("operators")
            assert (model["version"], model["candidates"]) == (1, [2])
            assert client.model("operators@2")["version"] == 2
            assert client.promote("operators@2")["version"] == 2
            assert client.model("operators")["version"] == 2
            assert not client.job(job["id"])["candidate"]
            assert client.promote("operators@1")["version"] == 1
            model = client.model("operators")
            assert (model["version"], model["versions"]) == (1, [1, 2])
