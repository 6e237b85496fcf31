"""The projects in SQLite. Every change is one transaction, so that a kill leaves nothing half done.

Files are written before their record and removed after it; what a kill leaves without a record is
swept, see `api.projects.files`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from api.database import Database
from api.problems import LEARNING, PROJECT_NOT_FOUND, QUOTA, Refusal
from api.projects.records import (
    CANCELLED,
    STATE_OF,
    STATES,
    Image,
    LabelVersion,
    Project,
    Round,
    RoundState,
    State,
)
from api.projects.tables import ADDED, SCHEMA, VERSION, T, columns, from_row, to_columns

#: Projects of one key, or of all callers where no key is needed.
MOST_PROJECTS = 1000
#: Versions of one label map.
MOST_VERSIONS = 1000
#: Numbers that the database gives.
_GIVEN = ("number",)
#: Rounds that are not finished.
_OPEN = "state IN ('training', 'evaluating')"
#: Rounds that were cancelled before there was a state for it.
_FIRST_CANCELLED = (
    f"UPDATE rounds SET state = 'cancelled' WHERE state = 'failed' AND message = '{CANCELLED}';"  # noqa: S608 - our own text
)


class ProjectStore:
    """All projects of one folder. Safe for several threads and processes.

    Args:
        path: the SQLite file; created if it does not exist.
        quota: bytes of all projects; those of one key take at most half.
        most_images: images of one project.

    Raises:
        OSError, sqlite3.Error, UnknownVersion: see `api.database.Database`.
    """

    def __init__(self, path: Path, quota: int, most_images: int) -> None:
        self.database = Database(path, SCHEMA + _FIRST_CANCELLED, VERSION, ADDED)
        self._quota, self._most_images = quota, most_images

    def add_project(self, project: Project) -> Project:
        """Add a project; the database gives its number.

        Raises:
            Refusal: its key has `MOST_PROJECTS` already (507).
        """
        with self.database.transaction() as connection:
            query = "SELECT COUNT(*) FROM projects WHERE owner IS ?"
            (count,) = connection.execute(query, (project.owner,)).fetchone()
            if count >= MOST_PROJECTS:
                raise Refusal(
                    QUOTA, f"a key may have at most {MOST_PROJECTS} projects: delete some"
                )
            _insert(connection, "projects", asdict(project))
        return self._known_project(project.id)

    def project(self, identity: str) -> Project | None:
        """The project with this id."""
        return self._one(Project, "projects WHERE id = ?", identity)

    def _known_project(self, identity: str) -> Project:
        found = self.project(identity)
        if found is None:
            raise LookupError(identity)
        return found

    def projects(
        self, owner: str | None, everyone: bool, before: int | None, limit: int
    ) -> list[Project]:
        """The newest projects of a key, or of everyone, older than number `before`."""
        last = 2**62 if before is None else before
        if everyone:
            query = "projects WHERE number < ? ORDER BY number DESC LIMIT ?"
            return self._all(Project, query, last, limit)
        query = "projects WHERE owner IS ? AND number < ? ORDER BY number DESC LIMIT ?"
        return self._all(Project, query, owner, last, limit)

    def delete_project(self, identity: str) -> Round | None:
        """Delete a project with all that belongs to it; its round that is not finished, if any."""
        with self.database.transaction() as connection:
            found = select(connection, Round, f"rounds WHERE project = ? AND {_OPEN}", identity)
            connection.execute("DELETE FROM projects WHERE id = ?", (identity,))
        return next(iter(found), None)

    def counts(self, project: str) -> dict[State, int]:
        """Number of images by state."""
        query = "SELECT state, COUNT(*) FROM images WHERE project = ? GROUP BY state"
        with self.database.connection() as connection:
            rows = connection.execute(query, (project,)).fetchall()
        return {**dict.fromkeys(STATES, 0), **dict(rows)}

    def unscored(self, project: str) -> int:
        """Number of images without the scores of the present model."""
        return self._number("images WHERE project = ? AND scored = 0", project)

    def add_images(
        self, images: Sequence[tuple[Image, float]], labels: Iterable[LabelVersion] = ()
    ) -> list[Image]:
        """Add images of one project, each with its place in the random order, and label maps.

        Raises:
            Refusal: they exceed a quota, or the number of images that a project may have (507); the
                project has been deleted (404).
        """
        first = {label.image: label for label in labels}
        project = images[0][0].project
        with self.database.transaction() as connection:
            if not select(connection, Project, "projects WHERE id = ?", project):
                raise Refusal(PROJECT_NOT_FOUND, f"there is no project {project}")
            for image, draw in images:
                _insert(connection, "images", {**asdict(image), "draw": draw})
                if label := first.get(image.id):
                    _insert_label(connection, label)
            self._count_images(connection, project)
            size = sum(image.bytes for image, _ in images) + sum(
                one.bytes for one in first.values()
            )
            self._take(connection, project, size)
        found = (self.image(project, image.id) for image, _ in images)
        return [image for image in found if image is not None]

    def next_ordinal(self, project: str) -> int:
        """How many images the project has ever had, about: a place in its random order."""
        return self._number("images WHERE project = ?", project)

    def image(self, project: str, identity: str) -> Image | None:
        """The image of a project with this id."""
        return self._one(Image, "images WHERE id = ? AND project = ?", identity, project)

    def images(self, project: str, state: State | None, after: int, limit: int) -> list[Image]:
        """Images in the order of arrival, from number `after` on; of one state, or of all."""
        if state is None:
            query = "images WHERE project = ? AND number > ? ORDER BY number LIMIT ?"
            return self._all(Image, query, project, after, limit)
        query = "images WHERE project = ? AND state = ? AND number > ? ORDER BY number LIMIT ?"
        return self._all(Image, query, project, state, after, limit)

    def delete_image(self, image: Image) -> list[str]:
        """Delete an image with its label maps; the names of their files."""
        with self.database.transaction() as connection:
            query = "SELECT file, bytes FROM labels WHERE image = ?"
            labels = connection.execute(query, (image.id,)).fetchall()
            query = "DELETE FROM images WHERE id = ?"
            if connection.execute(query, (image.id,)).rowcount == 0:
                return []
            size = image.bytes + sum(size for _, size in labels)
            _add_bytes(connection, image.project, -size)
        return [image.file, *(file for file, _ in labels)]

    def kinds(self, project: str) -> set[tuple[int, int]]:
        """The numbers of axes and of channels that its corrected images have."""
        query = (
            "SELECT DISTINCT json_array_length(shape), channels FROM images "
            "WHERE project = ? AND state = 'corrected'"
        )
        with self.database.connection() as connection:
            return {(int(row[0]), int(row[1])) for row in connection.execute(query, (project,))}

    def formats(self, project: str) -> set[str]:
        """The formats that its corrected images have."""
        query = "SELECT DISTINCT format FROM images WHERE project = ? AND state = 'corrected'"
        with self.database.connection() as connection:
            return {str(form) for (form,) in connection.execute(query, (project,))}

    def label(self, image: str, version: int | None = None) -> LabelVersion | None:
        """A version of an image's label map; None for the present one."""
        if version is None:
            return self._one(
                LabelVersion, "labels WHERE image = ? ORDER BY version DESC LIMIT 1", image
            )
        return self._one(LabelVersion, "labels WHERE image = ? AND version = ?", image, version)

    def labels(self, image: str, after: int, limit: int) -> list[LabelVersion]:
        """Versions of an image's label map above `after`, the oldest first."""
        query = "labels WHERE image = ? AND version > ? ORDER BY version LIMIT ?"
        return self._all(LabelVersion, query, image, after, limit)

    def last_prediction(self, image: str) -> LabelVersion | None:
        """The latest version that a model made."""
        query = "labels WHERE image = ? AND kind = 'prediction' ORDER BY version DESC LIMIT 1"
        return self._one(LabelVersion, query, image)

    def add_label(self, image: Image, label: LabelVersion) -> bool:
        """Add a version if its parent is still the present one; return whether it was.

        Raises:
            Refusal: it exceeds a quota, or `MOST_VERSIONS` (507).
        """
        if label.version > MOST_VERSIONS:
            detail = f"a label map may have {MOST_VERSIONS} versions: add its image again"
            raise Refusal(QUOTA, detail)
        with self.database.transaction() as connection:
            query = "SELECT version FROM images WHERE id = ?"
            if connection.execute(query, (image.id,)).fetchone() != (label.parent or 0,):
                return False
            _insert_label(connection, label)
            self._take(connection, image.project, label.bytes)
        return True

    def next_unscored(self, after: str = "") -> tuple[Project, Image] | None:
        """An image without the scores of its project's present model; None if there is none.

        Args:
            after: the id of a project, after which the others come first: projects take turns.
        """
        where = "images WHERE scored = 0 AND project > ? ORDER BY project, number LIMIT 1"
        while image := self._one(Image, where, after) or self._one(Image, where, ""):
            if project := self.project(image.project):  # else it has just been deleted
                return project, image
        return None

    def set_score(
        self, project: Project, image: Image, uncertainty: float | None, pose: bytes | None
    ) -> None:
        """Keep the scores of an image, unless the project has another model by now."""
        with self.database.transaction() as connection:
            connection.execute(
                "UPDATE images SET scored = 1, uncertainty = ?, pose = ? WHERE id = ? "
                "AND EXISTS (SELECT 1 FROM projects WHERE id = ? AND model = ?)",
                (uncertainty, pose, image.id, project.id, project.model),
            )

    def end_lease(self, image: str, author: str) -> None:
        """Give an image back that `author` held."""
        with self.database.transaction() as connection:
            connection.execute(
                "UPDATE images SET holder = NULL, held_until = 0 WHERE id = ? AND holder = ?",
                (image, author),
            )

    def add_round(self, new: Round, held_out: Iterable[str], learned: Iterable[str]) -> None:
        """Add a round, and mark the images that are held out from now on and those it learns from.

        Raises:
            Refusal: another one is not finished (409).
            sqlite3.IntegrityError: the project has been deleted.
        """
        with self.database.transaction() as connection:
            query = f"SELECT EXISTS (SELECT 1 FROM rounds WHERE project = ? AND {_OPEN})"  # noqa: S608 - our own text
            if connection.execute(query, (new.project,)).fetchone()[0]:
                raise Refusal(
                    LEARNING, "a round of this project has not finished: wait, or cancel it"
                )
            _insert(connection, "rounds", asdict(new))
            connection.executemany(
                "UPDATE images SET held_out = 1 WHERE id = ?", [(image,) for image in held_out]
            )
            connection.executemany(
                "UPDATE images SET learned = ? WHERE id = ? AND learned = 0",
                [(new.round, image) for image in learned],
            )

    def rounds(self, project: str) -> list[Round]:
        """The rounds of a project, the oldest first."""
        return self._all(Round, "rounds WHERE project = ? ORDER BY round", project)

    def open_rounds(self) -> list[Round]:
        """The rounds of all projects that are not finished."""
        return self._all(Round, f"rounds WHERE {_OPEN}")

    def open_round(self, project: str) -> Round | None:
        """The round of a project that is not finished, if there is one."""
        return self._one(Round, f"rounds WHERE project = ? AND {_OPEN}", project)

    def change_round(self, one: Round, **values: Any) -> None:  # noqa: ANN401 - columns' values
        """Change columns of a round, if it is still there."""
        with self.database.transaction() as connection:
            _update_round(connection, one, values)

    def end_round(self, one: Round, state: RoundState, message: str) -> None:
        """End a round without a model: the images that were to be learned in it first are not."""
        with self.database.transaction() as connection:
            _update_round(connection, one, {"state": state, "message": message})
            connection.execute(
                "UPDATE images SET learned = 0 WHERE project = ? AND learned = ?",
                (one.project, one.round),
            )

    def finish_round(self, one: Round, model: str | None, **values: Any) -> None:  # noqa: ANN401
        """Change columns of a round; the project's model becomes `model`, unless it is None."""
        with self.database.transaction() as connection:
            _update_round(connection, one, {"state": "finished", **values})
            if model is not None:
                connection.execute(
                    "UPDATE projects SET model = ? WHERE id = ?", (model, one.project)
                )
                connection.execute(
                    "UPDATE images SET scored = 0, uncertainty = NULL, pose = NULL "
                    "WHERE project = ?",
                    (one.project,),
                )

    def mean_edited(self, project: str, since: float) -> float | None:
        """Mean share of voxels that differ from the prediction, of the images corrected since."""
        query = (
            "SELECT AVG(labels.edited) FROM images JOIN labels ON labels.image = images.id "
            "AND labels.version = images.version WHERE images.project = ? "
            "AND images.state = 'corrected' AND labels.created > ?"
        )
        with self.database.connection() as connection:
            (mean,) = connection.execute(query, (project, since)).fetchone()
        return None if mean is None else float(mean)

    def has_file(self, name: str) -> bool:
        """Whether an image or a label map has this file."""
        query = (
            "SELECT EXISTS (SELECT 1 FROM images WHERE file = ?) "
            "OR EXISTS (SELECT 1 FROM labels WHERE file = ?)"
        )
        with self.database.connection() as connection:
            return bool(connection.execute(query, (name, name)).fetchone()[0])

    def _count_images(self, connection: sqlite3.Connection, project: str) -> None:
        query = "SELECT COUNT(*) FROM images WHERE project = ?"
        (count,) = connection.execute(query, (project,)).fetchone()
        if count > self._most_images:
            detail = f"a project may have {self._most_images} images: create another one"
            raise Refusal(QUOTA, detail)

    def _take(self, connection: sqlite3.Connection, project: str, size: int) -> None:
        """Count bytes of a project, within the quotas of all projects and of those of its key."""
        _add_bytes(connection, project, size)
        query = "SELECT owner FROM projects WHERE id = ?"
        (owner,) = connection.execute(query, (project,)).fetchone()
        query = "SELECT TOTAL(bytes), TOTAL(bytes) FILTER (WHERE owner IS ?) FROM projects"
        total, own = connection.execute(query, (owner,)).fetchone()
        if total > self._quota:
            raise Refusal(QUOTA, "the disk quota of all projects is used up: delete some")
        if owner is not None and own > self._quota // 2:
            raise Refusal(
                QUOTA, "the projects of this key have used up its share of the disk: delete some"
            )

    def _number(self, where: str, *values: object) -> int:
        with self.database.connection() as connection:
            query = f"SELECT COUNT(*) FROM {where}"  # noqa: S608 - our own texts
            return int(connection.execute(query, values).fetchone()[0])

    def _one(self, record: type[T], where: str, *values: object) -> T | None:
        return next(iter(self._all(record, where, *values)), None)

    def _all(self, record: type[T], where: str, *values: object) -> list[T]:
        with self.database.connection() as connection:
            return select(connection, record, where, *values)


def select(connection: sqlite3.Connection, record: type[T], where: str, *values: object) -> list[T]:
    """The records of ``FROM where``."""
    query = f"SELECT {columns(record)} FROM {where}"  # noqa: S608 - our own texts
    return [from_row(record, row) for row in connection.execute(query, values)]


def _insert(connection: sqlite3.Connection, table: str, values: Mapping[str, Any]) -> None:
    given = to_columns({name: value for name, value in values.items() if name not in _GIVEN})
    names, marks = ", ".join(given), ", ".join("?" * len(given))
    query = f"INSERT INTO {table} ({names}) VALUES ({marks})"  # noqa: S608 - our own columns
    connection.execute(query, tuple(given.values()))


def _insert_label(connection: sqlite3.Connection, label: LabelVersion) -> None:
    """Add a label map, which becomes the present one of its image."""
    _insert(connection, "labels", asdict(label))
    connection.execute(
        "UPDATE images SET version = ?, state = ?, author = ? WHERE id = ?",
        (label.version, STATE_OF[label.kind], label.author, label.image),
    )


def _update_round(connection: sqlite3.Connection, one: Round, values: Mapping[str, Any]) -> None:
    given = to_columns(values)
    assignments = ", ".join(f"{column} = ?" for column in given)
    connection.execute(
        f"UPDATE rounds SET {assignments} WHERE project = ? AND round = ?",  # noqa: S608 - our own columns
        (*given.values(), one.project, one.round),
    )


def _add_bytes(connection: sqlite3.Connection, project: str, size: int) -> None:
    connection.execute("UPDATE projects SET bytes = bytes + ? WHERE id = ?", (size, project))
