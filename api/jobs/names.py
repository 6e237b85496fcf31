"""Whose the names of models are: a job never takes over a built-in model, or one of others."""

from __future__ import annotations

import re

from api.jobs.store import JobStore
from api.problems import NAME_TAKEN, Refusal
from caps_med.bundles import ModelRepository

#: The owner of a reserved name; that of any other is the name and the id of a key.
_RESERVED = re.compile(r"[a-z]+:[0-9a-f]+")


class ModelNames:
    """The owners of the names that jobs give to their models.

    A name belongs to the key whose job first got it. Names of built-in models, and of models that
    the operator put into the repository, belong to no key. A service without keys has one user,
    to whom all names but those of built-in models belong.

    A reserved name belongs to a part of this service, as to a project: its versions are candidates
    until that part promotes them.
    """

    def __init__(self, store: JobStore, repository: ModelRepository) -> None:
        self._store, self._repository = store, repository

    def check(self, name: str, owner: str | None, admin: bool) -> None:
        """Refuse a name that is not the caller's.

        Args:
            owner: the caller's key, if one is needed.
            admin: whether it may do everything; then versions under foreign names are candidates.

        Raises:
            Refusal: it belongs to somebody else (409).
        """
        if admin or self._is_theirs(name, owner):
            return
        raise Refusal(
            NAME_TAKEN,
            f"{name!r} is a built-in model or belongs to others: choose another name; a key with "
            "the scope 'admin' can train a candidate under this one",
        )

    def take(self, name: str, owner: str | None) -> None:
        """Make a name the caller's if it is nobody's."""
        if self._is_theirs(name, owner):
            self._store.set_owner(name, owner)

    def reserve(self, name: str, holder: str) -> None:
        """Make a name that of a part of this service.

        Args:
            holder: kind and id, as ``project:ID``; a key's name is never like that.
        """
        self._store.set_owner(name, holder)

    def is_foreign(self, name: str, owner: str | None) -> bool:
        """Whether a version under this name awaits its promotion, because the name is foreign."""
        if self._repository.is_built_in(name) or self._is_reserved(name):
            return True
        return owner is not None and self._store.owner(name) != (owner,)

    def _is_reserved(self, name: str) -> bool:
        (holder,) = self._store.owner(name) or (None,)
        return holder is not None and _RESERVED.fullmatch(holder) is not None

    def _is_theirs(self, name: str, owner: str | None) -> bool:
        if self._repository.is_built_in(name) or self._is_reserved(name):
            return False
        if owner is None or self._store.owner(name) == (owner,):
            return True
        return not self._repository.versions(name) and not self._store.is_wanted(name)
