"""API keys: shown once, kept as a hash, revoked at once."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hmac import compare_digest
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from caps_med.errors import InvalidParameter

Scope: TypeAlias = Literal["infer", "archive", "train", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)

_KEY = re.compile(r"caps_(?P<id>[0-9a-f]{12})_(?P<secret>[A-Za-z0-9_-]{43})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_TABLE = """CREATE TABLE IF NOT EXISTS keys (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, scopes TEXT NOT NULL, hash BLOB NOT NULL,
    per_minute INTEGER, created TEXT NOT NULL, revoked TEXT)"""
_SHOWN = 3  # of another program's tables
_COLUMNS = ["id", "name", "scopes", "hash", "per_minute", "created", "revoked"]
_TABLES = """SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'
    ORDER BY name"""
#: Errors of SQLite that say nothing of the content: rights, a file system for reading only, a disk.
_OUT_OF_REACH = (
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY,
)


def default_path() -> Path:
    """``keys.db`` in the user's data folder."""
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "caps-med" / "keys.db"


@dataclass(frozen=True)
class Key:
    """What is stored about a key; never the key itself.

    Attributes:
        id: identifies it in logs and for `revoke`.
        name: who holds it.
        scopes: what it may do; "admin" may do everything.
        per_minute: requests per minute; None for the service's setting.
        created, revoked: UTC, ISO 8601.
    """

    id: str
    name: str
    scopes: tuple[str, ...]
    per_minute: int | None
    created: str
    revoked: str | None

    def may(self, scope: str) -> bool:
        """Whether it has this scope."""
        return scope in self.scopes or "admin" in self.scopes


@dataclass(frozen=True)
class StoredKeys:
    """What a file of keys holds.

    Attributes:
        keys: by identifier, each with its hash.
        ever: whether a key was ever created.
    """

    keys: Mapping[str, tuple[Key, bytes]]
    ever: bool

    def find(self, text: str) -> Key | None:
        """The key of this text; None if it is unknown or revoked.

        The hashes are compared in constant time; the identifier is not secret.
        """
        parts = _KEY.fullmatch(text)
        if parts is None:
            return None
        key, wanted = self.keys.get(parts["id"], (None, bytes(32)))
        right = compare_digest(wanted, _hash(parts["secret"]))
        return key if key is not None and right and key.revoked is None else None


class KeyStore:
    """The keys of one SQLite file, which only its owner may read.

    A key is 256 random bits, so one round of SHA-256 is enough: it cannot be guessed.

    Args:
        path: the file; it need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def create(
        self, name: str, scopes: Sequence[Scope], per_minute: int | None = None
    ) -> tuple[Key, str]:
        """A new key and its text, which is not stored.

        Raises:
            InvalidParameter: the name or a scope is not valid.
        """
        if not _NAME.fullmatch(name):
            raise InvalidParameter(f"name {name!r}: use 1 to 64 letters, digits, '.', '_', '-'")
        if not scopes or not set(scopes) <= set(SCOPES):
            raise InvalidParameter(
                f"scope {', '.join(scopes)!r}: must be one or more of {', '.join(SCOPES)}"
            )
        identity, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        listed = " ".join(scope for scope in SCOPES if scope in scopes)
        created = _now()
        with self._opened(create=True) as database:
            database.execute(
                "INSERT INTO keys VALUES (?, ?, ?, ?, ?, ?, NULL)",
                (identity, name, listed, _hash(secret), per_minute, created),
            )
        key = Key(identity, name, tuple(listed.split()), per_minute, created, None)
        return key, f"caps_{identity}_{secret}"

    def revoke(self, identity: str) -> Key:
        """Revoke a key; it stays in the list.

        Raises:
            InvalidParameter: there is no such key.
        """
        if _is_there(self.path):
            with self._opened() as database:
                database.execute(
                    "UPDATE keys SET revoked = ? WHERE id = ? AND revoked IS NULL",
                    (_now(), identity),
                )
        for key in self.list():
            if key.id == identity:
                return key
        raise InvalidParameter(f"no key {identity!r}: `caps-med keys list` shows them")

    def list(self) -> list[Key]:
        """All keys, the oldest first, including revoked ones.

        Raises:
            OSError, InvalidParameter: as `read` does.
        """
        if not _is_there(self.path):
            return []
        with self._opened() as database:
            rows = database.execute("SELECT * FROM keys ORDER BY created, id").fetchall()
        return [_key(row) for row in rows]

    def holds_any(self) -> bool:
        """Whether a key was ever created, even if its file is lost."""
        return self.read().ever

    def find(self, text: str) -> Key | None:
        """The key of this text; None if it is unknown or revoked."""
        return self.read().find(text)

    def read(self) -> StoredKeys:
        """All keys, with the hashes of their texts. Blocks, and waits for no lock.

        Raises:
            OSError: its folder cannot be entered.
            InvalidParameter: the file is locked, cannot be read, or is not a file of keys.
        """
        if not _is_there(self.path):
            return StoredKeys({}, self._trace.exists())
        with self._opened(timeout=0) as database:
            rows = database.execute("SELECT * FROM keys").fetchall()
        if rows and not self._trace.exists():  # keys from before there were traces
            with suppress(OSError):
                self._trace.touch()
        found = {row["id"]: (_key(row), row["hash"]) for row in rows}
        return StoredKeys(found, bool(rows) or self._trace.exists())

    @property
    def _trace(self) -> Path:
        """An empty file beside the keys; while it exists, their loss opens no service."""
        return self.path.with_name(f"{self.path.name}.created")

    @contextmanager
    def _opened(self, create: bool = False, timeout: float = 10) -> Iterator[sqlite3.Connection]:
        if create:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if not _is_there(self.path):
                os.close(os.open(self.path, os.O_CREAT | os.O_WRONLY, 0o600))
        address = f"{self.path.absolute().as_uri()}?mode=rw"  # never makes an empty file
        try:
            opened = sqlite3.connect(address, timeout=timeout, uri=True)
            with closing(opened) as database, database:
                self._prepare(database)
                if create:
                    self._trace.touch(mode=0o600)
                database.row_factory = sqlite3.Row
                yield database
        except sqlite3.DatabaseError as error:
            raise InvalidParameter(_told(self.path, error)) from error

    def _prepare(self, database: sqlite3.Connection) -> None:
        """Create the table of keys in an empty file.

        Raises:
            InvalidParameter: it is the database of another program, which is left as it is.
        """
        tables = [name for (name,) in database.execute(_TABLES)]
        if not tables:
            database.execute(_TABLE)
            return
        columns = [column[1] for column in database.execute("PRAGMA table_info(keys)")]
        if columns != _COLUMNS:
            raise InvalidParameter(
                f"{self.path} is not a file of API keys: it is a database of another program, with "
                f"the tables {', '.join(tables[:_SHOWN])}; use a separate file (CAPS_MED_KEYS)"
            )


def _is_there(path: Path) -> bool:
    """Whether it exists.

    Raises:
        OSError: its folder cannot be entered; who takes that for no file opens the service.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _told(path: Path, error: sqlite3.DatabaseError) -> str:
    """What is wrong with a file of keys, and what to do."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_NOTADB) & 0xFF  # the primary one
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"{path}: another process has locked the API keys: try again when it has finished"
    if code == sqlite3.SQLITE_FULL:
        return f"{path}: the API keys cannot be written: the disk is full"
    if path.is_file() and code in _OUT_OF_REACH:
        return (
            f"{path}: the API keys cannot be read or written ({error}): check who owns the file "
            "and its folder, and whether their disk works"
        )
    return f"{path} is not a file of API keys: {error}"


def _key(row: sqlite3.Row) -> Key:
    return Key(
        row["id"], row["name"], tuple(row["scopes"].split()), row["per_minute"],
        row["created"], row["revoked"],
    )  # fmt: skip


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
