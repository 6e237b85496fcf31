"""SQLite files of the service: checked when opened, every change one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from caps_med.disk import is_full


class UnknownVersion(RuntimeError):
    """The file is of another version of the service."""


@dataclass(frozen=True)
class Column:
    """One that a table has not had from the beginning.

    Attributes:
        declared: its type and default, which rows have that were there before.
    """

    table: str
    name: str
    declared: str


class Database:
    """One SQLite file. Safe for several threads and processes.

    Args:
        path: the file; created if it does not exist.
        schema: statements that leave what there is, ``CREATE TABLE IF NOT EXISTS``.
        version: kept in ``PRAGMA user_version``; files of other versions are refused.
        added: columns that older files of this version get. Services that do not know them go on
            with the same file.

    Raises:
        OSError, sqlite3.Error: the file cannot be written, or is damaged.
        UnknownVersion: it is of another version of the service.
    """

    def __init__(self, path: Path, schema: str, version: int, added: Iterable[Column] = ()) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.connection() as connection:
            (state,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if state != "ok":
                raise sqlite3.DatabaseError(f"{path.name} is damaged: {state}")
            connection.execute("PRAGMA journal_mode = WAL")
            found = connection.execute("PRAGMA user_version").fetchone()[0]
            if found not in (0, version):
                raise UnknownVersion(f"{path.name} has version {found}, but {version} is needed")
            connection.executescript(schema)
            connection.execute(f"PRAGMA user_version = {version}")
        self._add(added)

    def _add(self, columns: Iterable[Column]) -> None:
        """Add the columns that are missing; of several services that begin, one does."""
        with self.transaction() as connection:
            for column in columns:
                rows = connection.execute(f"PRAGMA table_info({column.table})")
                if column.name not in [row[1] for row in rows]:
                    connection.execute(
                        f"ALTER TABLE {column.table} ADD COLUMN {column.name} {column.declared}"
                    )

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """A connection of its own, which is closed at the end of the block.

        On a full disk the error of SQLite has the code of a full disk, also where SQLite has no
        room for its index (-shm) and tells an I/O error.
        """
        connection = sqlite3.connect(self._path, timeout=30, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            # what is deleted may name a patient; not every build of SQLite overwrites it
            connection.execute("PRAGMA secure_delete = ON")
            yield connection
        except sqlite3.OperationalError as error:
            if is_full(self._path.parent):
                error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise
        finally:
            connection.close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A connection whose changes are made together at the end of the block, or not at all."""
        with self.connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")
