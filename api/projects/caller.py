"""Who calls, and what is theirs."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request

from api.access.gate import is_admin
from api.projects.records import Project
from api.record import known

#: The author of what is corrected where neither a key nor a parameter says who.
ANONYMOUS = "anonymous"


@dataclass(frozen=True)
class Caller:
    """The key of a request.

    Attributes:
        owner: name and id of the key; None if no key is needed.
        admin: whether it may do everything.
    """

    owner: str | None = None
    admin: bool = False

    @classmethod
    def of(cls, request: Request) -> Caller:
        """The caller of a request."""
        who = known("who")
        return cls(None if who is None else str(who), is_admin(request))

    @property
    def author(self) -> str:
        """The key's name, without its id."""
        return ANONYMOUS if self.owner is None else self.owner.rpartition(" ")[0]

    def may_use(self, project: Project) -> bool:
        """Whether the project is this key's; an admin's are all."""
        return self.admin or project.owner == self.owner
