from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from caps_med.bundles import ModelRepository
from caps_med.bundles.bundle import CANDIDATE
from caps_med.bundles.drafts import ABANDONED
from caps_med.bundles.export import export_model
from caps_med.bundles.manage import (
    copy_model,
    removable,
    remove_model,
    remove_versions,
    rename_model,
)
from caps_med.errors import InvalidBundle, InvalidParameter, ModelNotFound
from tests.conftest import BUILT_IN_NAMES, tiny_card, write_tiny


@pytest.fixture
def repository(tmp_path: Path) -> ModelRepository:
    """One model in two versions, and another one."""
    for name in ("mine", "mine", "other"):
        write_tiny(tmp_path, name, tiny_card("segmentation"))
    return ModelRepository(tmp_path)


def hidden(repository: ModelRepository) -> list[Path]:
    return [path for path in repository.root.rglob(".*")]


def test_a_version_is_removed_and_then_the_model(repository: ModelRepository) -> None:
    assert [one.reference for one in remove_model(repository, "mine@1")] == ["mine@1"]
    assert repository.versions("mine") == [2]
    remove_model(repository, "mine")
    assert not (repository.root / "mine").exists()
    assert repository.versions("other") == [1]
    assert hidden(repository) == []
    with pytest.raises(ModelNotFound, match="no model 'mine'"):
        remove_model(repository, "mine")


def test_a_model_is_renamed_with_all_its_versions(repository: ModelRepository) -> None:
    before = [repository.find(f"mine@{v}").metadata.weights.sha256 for v in (1, 2)]
    renamed = rename_model(repository, "mine", "yours")
    assert [one.reference for one in renamed] == ["yours@1", "yours@2"]
    assert repository.versions("mine") == [] and repository.versions("yours") == [1, 2]
    found = [repository.find(f"yours@{v}") for v in (1, 2)]
    assert [one.metadata.weights.sha256 for one in found] == before
    for bundle in found:
        bundle.load_network()
        metadata = json.loads((bundle.path / "configs" / "metadata.json").read_text())
        assert metadata["name"] == "yours" and metadata["version"] == f"{bundle.version}.0.0"
        title = (bundle.path / "docs" / "README.md").read_text().splitlines()[0]
        assert title == f"# yours {bundle.version}"
    assert hidden(repository) == []


@pytest.mark.parametrize("name", BUILT_IN_NAMES)
def test_built_in_models_are_copied_but_neither_removed_nor_renamed(
    repository: ModelRepository, name: str
) -> None:
    copied = copy_model(repository, name, "copied")
    assert copied.reference == "copied@1" and copied.card == repository.find(name).card
    assert copied.path.is_relative_to(repository.root)
    with pytest.raises(InvalidParameter, match="is built in and cannot be changed or removed"):
        remove_model(repository, name)
    with pytest.raises(InvalidParameter, match="is built in and cannot be changed or removed"):
        rename_model(repository, name, "taken")
    assert repository.versions(name)


@pytest.mark.parametrize("change", [copy_model, rename_model])
@pytest.mark.parametrize("taken", ["other", "brain-t1-tissue"])
def test_a_name_that_exists_is_never_written_over(
    repository: ModelRepository,
    change: object,
    taken: str,
) -> None:
    before = repository.find(taken).metadata
    with pytest.raises(InvalidParameter, match=f"model {taken} exists"):
        change(repository, "mine", taken)  # type: ignore[operator]
    assert repository.find(taken).metadata == before
    assert repository.versions("mine") == [1, 2]


def test_copies_of_protected_models_can_be_changed(
    repository: ModelRepository, tmp_path: Path
) -> None:
    """Of models that are write-protected, or that an installation has so."""
    protected = repository.find("mine@1")
    for path in (*protected.path.rglob("*"), protected.path):
        path.chmod(path.stat().st_mode & ~0o222)
    exported = export_model(protected, "bundle", tmp_path / "exported")
    copied = copy_model(repository, "mine@1", "copied").path
    renamed = rename_model(repository, "mine", "yours")[0].path
    for folder in (exported, copied, renamed):
        assert all(path.stat().st_mode & 0o200 for path in (folder, *folder.rglob("*")))
    remove_model(repository, "yours")
    assert hidden(repository) == [] and repository.versions("mine") == []


def test_a_version_that_is_written_meanwhile_stays(
    repository: ModelRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a training that ends before a question is answered, or while files are copied."""
    versions = removable(repository, "mine")
    write_tiny(repository.root, "mine", tiny_card("segmentation"))
    remove_versions(versions)
    assert repository.versions("mine") == [3]

    def written_meanwhile(source: Path, target: Path, **options: Any) -> Path:  # noqa: ANN401
        monkeypatch.undo()
        write_tiny(repository.root, "mine", tiny_card("segmentation"))
        return shutil.copytree(source, target, **options)

    monkeypatch.setattr(shutil, "copytree", written_meanwhile)
    rename_model(repository, "mine", "yours")
    assert repository.versions("mine") == [4] and repository.versions("yours") == [3]


def test_an_empty_folder_takes_no_name(repository: ModelRepository) -> None:
    (repository.root / "left").mkdir()
    assert copy_model(repository, "mine", "left").reference == "left@1"


def test_a_model_of_candidates_alone_is_renamed_and_removed(repository: ModelRepository) -> None:
    remove_model(repository, "mine@1")
    (repository.root / "mine/2" / CANDIDATE).touch()
    rename_model(repository, "mine", "yours")
    assert repository.candidates("yours") == [2] and repository.versions("mine") == []
    assert [one.reference for one in remove_model(repository, "yours")] == ["yours@2"]
    with pytest.raises(ModelNotFound, match="no model 'yours': available are"):
        rename_model(repository, "yours", "mine")


def test_models_with_files_of_other_programs_are_copied_and_renamed(
    repository: ModelRepository,
) -> None:
    """A card in another encoding, and a link whose file was deleted."""
    model = repository.find("mine")
    title = f"# mine {model.version}\n".encode()
    (model.path / "docs" / "README.md").write_bytes(title + b"f\xfcr alle")
    (model.path / "notes").symlink_to(repository.root / "gone")
    copied = copy_model(repository, "mine", "copied")
    assert (copied.path / "docs" / "README.md").read_bytes() == b"# copied 1\nf\xfcr alle"
    assert not (copied.path / "notes").is_symlink()
    assert rename_model(repository, "mine", "renamed")[-1].version == model.version


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xe4", b"[" * 100_000])
def test_damaged_metadata_are_told_and_nothing_is_renamed(
    repository: ModelRepository, content: bytes
) -> None:
    (repository.find("mine").path / "configs" / "metadata.json").write_bytes(content)
    with pytest.raises(InvalidBundle, match=r"mine@2: metadata\.json"):
        rename_model(repository, "mine", "renamed")
    assert repository.versions("mine") == [1, 2]
    assert not hidden(repository)


def test_one_version_cannot_be_renamed(repository: ModelRepository) -> None:
    with pytest.raises(InvalidParameter, match="renamed with all its versions"):
        rename_model(repository, "mine@1", "yours")


@pytest.mark.parametrize("killed_at", ["copytree", "rename"])
def test_a_crash_leaves_every_model_whole(
    repository: ModelRepository, monkeypatch: pytest.MonkeyPatch, killed_at: str
) -> None:
    class _Killed(BaseException):
        """Stands for the end of the process."""

    def killed(*_: object, **__: object) -> None:
        raise _Killed

    module = shutil if killed_at == "copytree" else os
    with monkeypatch.context() as patch:
        patch.setattr(module, killed_at, killed)
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)  # nobody cleans up
        with pytest.raises(_Killed):
            rename_model(repository, "mine", "yours")
    assert repository.names() == sorted([*BUILT_IN_NAMES, "mine", "other"])
    for version in (1, 2):
        repository.find(f"mine@{version}").load_network()


@pytest.mark.parametrize("left", [".draft-0", ".removed-0"])
def test_what_killed_processes_left_goes_an_hour_later(
    repository: ModelRepository, left: str
) -> None:
    long_ago = time.time() - ABANDONED - 1
    for home in (repository.root, repository.root / "mine"):
        for name in (left, f"{left}-in-use"):
            (home / name / "models").mkdir(parents=True)
        os.utime(home / left, (long_ago, long_ago))
    write_tiny(repository.root, "mine", tiny_card("segmentation"))
    copy_model(repository, "mine", "another")
    assert {path.name for path in hidden(repository)} == {f"{left}-in-use"}
    assert repository.versions("mine") == [1, 2, 3]
