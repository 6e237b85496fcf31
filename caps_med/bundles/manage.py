"""Remove, rename and copy models of a repository.

A crash at any moment leaves each model whole: new folders appear by a rename, and folders to be
deleted are first renamed to names that are not model names.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from caps_med.bundles.bundle import CANDIDATE, Bundle
from caps_med.bundles.drafts import copy_writable, new_draft, remove_left, remove_whole
from caps_med.bundles.repository import BUILT_IN, ModelRepository
from caps_med.errors import InvalidParameter


def removable(repository: ModelRepository, reference: str) -> list[Bundle]:
    """The versions that `remove_model` deletes: ``name@3``, or all of ``name``.

    Raises:
        ModelNotFound: there is no such model or version.
        InvalidParameter: one of them is a built-in model.
    """
    if "@" in reference:
        return _own([repository.find(reference)])
    return _own(_versions(repository, reference))


def remove_model(repository: ModelRepository, reference: str) -> list[Bundle]:
    """Delete ``name@3``, or all versions of ``name``; returns what was deleted.

    Raises:
        ModelNotFound, InvalidParameter: see `removable`.
    """
    removed = removable(repository, reference)
    remove_versions(removed)
    return removed


def remove_versions(versions: Iterable[Bundle]) -> None:
    """Delete these versions, from `removable`, but none that has been written since.

    The newest is deleted last: until then the bare name refers to it.
    """
    for bundle in versions:
        remove_whole(bundle.path)
        _tidy(bundle.path.parent)


def _tidy(home: Path) -> None:
    """Delete the folder of a model that has neither a version nor a draft of one."""
    if home.is_dir():
        remove_left(home)
        with suppress(OSError):  # it is not empty
            home.rmdir()


def copy_model(repository: ModelRepository, reference: str, name: str) -> Bundle:
    """Copy one version, ``name@3`` or the newest, as version 1 of a new name.

    Raises:
        ModelNotFound: there is no such model or version.
        InvalidParameter: the new name is invalid, or already exists.
        InvalidBundle: the weights are damaged.
    """
    source = repository.find(reference)
    source.verify()
    _check_new(repository, name)
    with _new_home(repository, name) as home:
        _copy(source, home, name, 1)
        (home / "1" / CANDIDATE).unlink(missing_ok=True)
    return repository.find(name)


def rename_model(repository: ModelRepository, name: str, new: str) -> list[Bundle]:
    """Rename a model with all its versions; returns them in ascending order.

    Raises:
        ModelNotFound: there is no such model.
        InvalidParameter: it is built in or a single version, or the new name is invalid or exists.
        InvalidBundle: the metadata of a version are damaged; nothing is renamed.
    """
    if "@" in name:
        raise InvalidParameter(
            f"{name}: a model is renamed with all its versions; give its name without @ and a "
            "version"
        )
    versions = _own(_versions(repository, name))
    _check_new(repository, new)
    with _new_home(repository, new) as home:
        for bundle in versions:
            _copy(bundle, home, new, bundle.version)
    remove_versions(versions)
    return _versions(repository, new)


def _versions(repository: ModelRepository, name: str) -> list[Bundle]:
    """All versions of a model, including candidates.

    Raises:
        ModelNotFound: there is no such model.
    """
    versions = repository.versions(name)
    if not versions:
        repository.find(name)  # which raises, and says what there is
    return [repository.find(f"{name}@{version}") for version in versions]


def _own(bundles: Iterable[Bundle]) -> list[Bundle]:
    """The bundles, after checking that none comes with the package."""
    found = list(bundles)
    for bundle in found:
        if bundle.path.is_relative_to(BUILT_IN):
            raise InvalidParameter(
                f"{bundle.reference} is built in and cannot be changed or removed: copy it, or "
                "name a version of your own"
            )
    return found


def _check_new(repository: ModelRepository, name: str) -> None:
    repository.check_name(name)
    _tidy(repository.root / name)
    if repository.versions(name) or (repository.root / name).exists():
        raise InvalidParameter(f"model {name} exists: choose another name, or remove it first")


@contextmanager
def _new_home(repository: ModelRepository, name: str) -> Iterator[Path]:
    """A hidden folder that becomes the model's when complete, and is otherwise deleted."""
    repository.make_ready()
    draft = new_draft(repository.root)
    try:
        yield draft
        draft.chmod(0o755)
        try:
            os.rename(draft, repository.root / name)  # noqa: PTH104 - fails where one appeared
        except OSError as error:
            raise InvalidParameter(f"model {name} exists: choose another name") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _copy(bundle: Bundle, home: Path, name: str, version: int) -> None:
    """Copy a bundle's files to ``home/version``, with the new name in its texts."""
    bundle.metadata  # noqa: B018 - which is rewritten: reading it is the check
    target = home / str(version)
    copy_writable(bundle.path, target)
    path = target / "configs" / "metadata.json"
    metadata = json.loads(path.read_text(encoding="utf-8-sig"))
    metadata |= {"name": name, "version": f"{version}.0.0"}
    path.write_text(json.dumps(metadata, indent=2) + "\n", encoding="utf-8")
    readme = target / "docs" / "README.md"
    if readme.is_file():  # which may have been edited in any encoding
        old, new = f"# {bundle.name} {bundle.version}\n", f"# {name} {version}\n"
        readme.write_bytes(readme.read_bytes().replace(old.encode(), new.encode(), 1))
