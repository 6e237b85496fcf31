"""The jobs in SQLite. Every change is one transaction, so that a kill never leaves it half done."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from api.database import Column, Database
from api.jobs.job import FINAL, STATES, Job, Options, State

#: Kept in ``PRAGMA user_version``; files of other versions are refused.
VERSION = 1

_SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,
    task TEXT NOT NULL,
    name TEXT NOT NULL,
    data TEXT NOT NULL,
    uploaded INTEGER NOT NULL,
    options TEXT NOT NULL,
    owner TEXT,
    token TEXT UNIQUE,
    created REAL NOT NULL,
    started REAL,
    finished REAL,
    crashes INTEGER NOT NULL DEFAULT 0,
    seconds REAL NOT NULL DEFAULT 0,
    version INTEGER,
    code TEXT,
    error TEXT
);
CREATE INDEX IF NOT EXISTS jobs_by_state ON jobs (state, number);
CREATE TABLE IF NOT EXISTS names (name TEXT PRIMARY KEY, owner TEXT);
"""
#: What the table of jobs got later.
_ADDED = (Column("jobs", "archive_sha256", "TEXT"),)
#: Of models that were trained before names had owners.
_FIRST_OWNERS = """
INSERT OR IGNORE INTO names SELECT name, owner FROM jobs WHERE state = 'succeeded' AND version = 1;
"""
_LAST_SECONDS = "SELECT seconds FROM jobs WHERE state = 'succeeded' ORDER BY number DESC LIMIT 20"
_COLUMNS = (
    "id, number, state, task, name, data, uploaded, options, owner, created, started, finished, "
    "crashes, seconds, version, code, error, archive_sha256"
)


class JobStore:
    """All jobs of one folder. Safe for several threads and processes.

    Args:
        path: the SQLite file; created if it does not exist.

    Raises:
        OSError, sqlite3.Error: the file cannot be written, or is damaged.
        UnknownVersion: see `api.database.Database`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._database = Database(path, _SCHEMA + _FIRST_OWNERS, VERSION, _ADDED)

    def add(
        self,
        identity: str,
        task: str,
        name: str,
        data: str,
        uploaded: bool,
        options: Options,
        owner: str | None = None,
        token: str | None = None,
        archive_sha256: str | None = None,
    ) -> Job:
        """A new job at the end of the queue, or the earlier one with the same `token`."""
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO jobs (id, state, task, name, data, uploaded, options, owner, token, "
                "created, archive_sha256) VALUES (?, 'queued', ?, ?, ?, ?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (token) DO NOTHING",
                (identity, task, name, data, uploaded, options.model_dump_json(), owner, token,
                 time.time(), archive_sha256),
            )  # fmt: skip
            query = "SELECT id FROM jobs WHERE id = ? OR token = ?"
            found = connection.execute(query, (identity, token)).fetchone()
        return self._known(found[0])

    def get(self, identity: str) -> Job | None:
        """The job with this id."""
        return next(iter(self._select("WHERE id = ?", identity)), None)

    def by_token(self, token: str) -> Job | None:
        """The job that was submitted with this token."""
        return next(iter(self._select("WHERE token = ?", token)), None)

    def _known(self, identity: str) -> Job:
        job = self.get(identity)
        if job is None:
            raise LookupError(identity)
        return job

    def newest(self, count: int) -> list[Job]:
        """The last `count` jobs, the newest first."""
        return self._select("ORDER BY number DESC LIMIT ?", count)

    def in_states(self, *states: State) -> list[Job]:
        """The jobs in these states, in the order of arrival."""
        marks = ", ".join("?" * len(states))
        return self._select(f"WHERE state IN ({marks}) ORDER BY number", *states)

    def move(self, job: Job, state: State, **values: Any) -> bool:  # noqa: ANN401 - columns' values
        """Change state and columns if the state is still that of `job`; return whether it was."""
        assignments = ", ".join(f"{column} = ?" for column in ("state", *values))
        with self._database.transaction() as connection:
            changed = connection.execute(
                f"UPDATE jobs SET {assignments} WHERE id = ? AND state = ?",  # noqa: S608 - our own columns
                (state, *values.values(), job.id, job.state),
            )
            return changed.rowcount == 1

    def delete(self, job: Job) -> bool:
        """Delete a job if it is finished; return whether it was."""
        with self._database.transaction() as connection:
            marks = ", ".join("?" * len(FINAL))
            query = f"DELETE FROM jobs WHERE id = ? AND state IN ({marks})"  # noqa: S608 - question marks alone
            return connection.execute(query, (job.id, *FINAL)).rowcount == 1

    def owner(self, name: str) -> tuple[str | None] | None:
        """The owner of a model's name; None if nobody has taken it."""
        with self._database.connection() as connection:
            query = "SELECT owner FROM names WHERE name = ?"
            found: tuple[str | None] | None = connection.execute(query, (name,)).fetchone()
        return found

    def set_owner(self, name: str, owner: str | None) -> None:
        """Make `owner`, a key or None, the owner of a model's name."""
        with self._database.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO names VALUES (?, ?)", (name, owner))

    def is_wanted(self, name: str) -> bool:
        """Whether a job that is not finished will give this name to its model."""
        marks = ", ".join("?" * len(FINAL))
        return bool(self._select(f"WHERE name = ? AND state NOT IN ({marks})", name, *FINAL))

    def counts(self) -> dict[State, int]:
        """Number of jobs by state."""
        with self._database.connection() as connection:
            rows = connection.execute("SELECT state, COUNT(*) FROM jobs GROUP BY state").fetchall()
        return {**dict.fromkeys(STATES, 0), **dict(rows)}

    def usual_seconds(self) -> float | None:
        """Median duration of the last jobs that succeeded; None before the first."""
        with self._database.connection() as connection:
            seconds = sorted(row[0] for row in connection.execute(_LAST_SECONDS))
        return seconds[len(seconds) // 2] if seconds else None

    def _select(self, where: str, *values: object) -> list[Job]:
        with self._database.connection() as connection:
            rows = connection.execute(f"SELECT {_COLUMNS} FROM jobs {where}", values)  # noqa: S608 - our own texts
            return [_job(row) for row in rows]


def _job(row: tuple[Any, ...]) -> Job:
    names = _COLUMNS.split(", ")
    values = dict(zip(names, row, strict=True))
    values["uploaded"] = bool(values["uploaded"])
    values["options"] = Options.model_validate_json(values["options"])
    return Job(**values)
