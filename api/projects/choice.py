"""Choosing the next image to correct, and who has it meanwhile."""

from __future__ import annotations

import json
import time
from collections.abc import Collection

import numpy as np

from api.budget import current
from api.database import Database
from api.projects.records import Image
from api.projects.store import select
from api.projects.strategies import BLOCK, Strategy, farthest

#: Seconds for which an image that somebody was given is not given to others.
LEASE_SECONDS = 600.0
#: Images whose poses are compared, of the corrected and of the others.
MOST_COMPARED = 5_000
#: Attempts, while others take the same image at the same time.
_TRIES = 20

#: Nobody else has it now, or until a time that only a clock which was set back since could have
#: given: those of several services may differ by as much as an image is held.
_UNHELD = (
    "state <> 'corrected' "
    "AND (holder = :author OR held_until NOT BETWEEN :now AND :now + 2 * :lease)"
)
#: Images that may be given to :author.
FREE = f"project = :project AND {_UNHELD} AND id NOT IN (SELECT value FROM json_each(:skip))"  # noqa: S608 - our own texts

#: What a query is told.
_Values = dict[str, object]


class Choice:
    """Gives the images of a project to those who correct them.

    After a clock was set back by more than `LEASE_SECONDS`, what was given before is free: two
    people may then have the same image, of whom the one who saves it last is told.

    Args:
        database: of the projects.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def next(
        self,
        project: str,
        strategy: Strategy,
        author: str,
        skip: Collection[str] = (),
        take: bool = True,
    ) -> tuple[Image, Strategy] | None:
        """An image that is not corrected and that nobody else has, and how it was chosen.

        What `author` had before is free again. Where there are no scores yet, it is chosen at
        random.

        Args:
            skip: the ids of images that are not to be chosen.
            take: give it to `author`; else nothing changes.

        Returns:
            None if there is none left.
        """
        if take:
            self._give_back(project, author)
        free = self._at(project, author=author, skip=json.dumps(list(skip)))
        for _ in range(_TRIES):
            found, used = self._chosen(strategy, free)
            if found is None:
                return None
            if image := self._taken(found, free) if take else self._seen(found):
                return image, used
        return None

    def _chosen(self, strategy: Strategy, free: _Values) -> tuple[str | None, Strategy]:
        if strategy == "uncertainty":
            order = "AND uncertainty IS NOT NULL ORDER BY uncertainty DESC"
            if found := self._first(free, order):
                return found, strategy
        if strategy == "diversity" and (found := self._unlike(free)):
            return found, strategy
        return self._first(free, "ORDER BY draw"), "random"

    def _first(self, free: _Values, order: str) -> str | None:
        query = f"SELECT id FROM images WHERE {FREE} {order} LIMIT 1"  # noqa: S608 - our own texts
        with self._database.connection() as connection:
            row = connection.execute(query, free).fetchone()
        return None if row is None else str(row[0])

    def _unlike(self, free: _Values) -> str | None:
        """The image that is least like the corrected ones."""
        which = f"{FREE} AND pose IS NOT NULL ORDER BY draw LIMIT :most"
        known = (
            "project = :project AND state = 'corrected' AND pose IS NOT NULL "
            "ORDER BY draw LIMIT :most"
        )
        query, values = "SELECT id, pose FROM images WHERE ", {**free, "most": MOST_COMPARED}
        with self._database.connection() as connection:
            rows = connection.execute(query + which, values).fetchall()
            corrected = connection.execute(query + known, values).fetchall()
        if not rows:
            return None
        size = len(rows[0][1])
        if claim := current():  # joined, and in blocks of distances
            claim.add(3 * size * (len(rows) + len(corrected)) + 8 * BLOCK * len(rows))
        poses, others = (
            np.frombuffer(b"".join(pose for _, pose in group), np.float32).reshape(-1, size // 4)
            for group in (rows, corrected)
        )
        return str(rows[farthest(poses, others)][0])

    def _taken(self, identity: str, free: _Values) -> Image | None:
        """The image, if nobody else has taken it meanwhile."""
        query = (
            "UPDATE images SET holder = :author, held_until = :now + :lease "  # noqa: S608 - our own texts
            f"WHERE project = :project AND id = :id AND {_UNHELD}"
        )
        with self._database.transaction() as connection:
            taken = connection.execute(query, {**free, "id": identity})
            if taken.rowcount == 0:
                return None
            return select(connection, Image, "images WHERE id = ?", identity)[0]

    def _seen(self, identity: str) -> Image | None:
        """The image, unless it was deleted meanwhile."""
        with self._database.connection() as connection:
            found = select(connection, Image, "images WHERE id = ?", identity)
        return found[0] if found else None

    def _give_back(self, project: str, author: str) -> None:
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE images SET holder = NULL, held_until = 0 WHERE project = ? AND holder = ?",
                (project, author),
            )

    def _at(self, project: str, **values: object) -> _Values:
        """The parameters of a query that depend on the present."""
        return {"project": project, "now": time.time(), "lease": LEASE_SECONDS, **values}
