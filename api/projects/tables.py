"""The tables of projects, and rows as records."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from api.database import Column
from api.projects.records import Image, LabelVersion, Project, Round

#: Kept in ``PRAGMA user_version``.
VERSION = 1

#: Images that are not corrected yet are found by their own indices, however many are done.
SCHEMA = """
CREATE TABLE IF NOT EXISTS projects (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    owner TEXT,
    start_model TEXT NOT NULL,
    model TEXT NOT NULL,
    trained_name TEXT NOT NULL UNIQUE,
    labels TEXT NOT NULL,
    seed INTEGER NOT NULL,
    held_out REAL NOT NULL,
    created REAL NOT NULL,
    bytes INTEGER NOT NULL DEFAULT 0,
    ignore_label INTEGER
);
CREATE INDEX IF NOT EXISTS projects_by_owner ON projects (owner, number);
CREATE TABLE IF NOT EXISTS images (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    project TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    file TEXT NOT NULL UNIQUE,
    format TEXT NOT NULL,
    channels INTEGER NOT NULL,
    shape TEXT NOT NULL,
    affine TEXT,
    bytes INTEGER NOT NULL,
    created REAL NOT NULL,
    state TEXT NOT NULL DEFAULT 'unlabelled',
    version INTEGER NOT NULL DEFAULT 0,
    author TEXT,
    patient TEXT,
    patient_digest TEXT,
    held_out INTEGER NOT NULL DEFAULT 0,
    learned INTEGER NOT NULL DEFAULT 0,
    scored INTEGER NOT NULL DEFAULT 0,
    uncertainty REAL,
    holder TEXT,
    held_until REAL NOT NULL DEFAULT 0,
    pose BLOB,
    draw REAL NOT NULL,
    warnings TEXT NOT NULL DEFAULT '[]'
);
CREATE INDEX IF NOT EXISTS images_by_project ON images (project, number);
CREATE INDEX IF NOT EXISTS images_by_name ON images (project, name);
CREATE INDEX IF NOT EXISTS images_by_state ON images (project, state, number);
CREATE INDEX IF NOT EXISTS images_held ON images (project, holder) WHERE holder IS NOT NULL;
CREATE INDEX IF NOT EXISTS images_unscored ON images (project, number) WHERE scored = 0;
CREATE INDEX IF NOT EXISTS images_to_draw ON images (project, draw) WHERE state <> 'corrected';
CREATE INDEX IF NOT EXISTS images_unsure ON images (project, uncertainty)
    WHERE state <> 'corrected' AND uncertainty IS NOT NULL;
CREATE TABLE IF NOT EXISTS labels (
    image TEXT NOT NULL REFERENCES images (id) ON DELETE CASCADE,
    version INTEGER NOT NULL,
    kind TEXT NOT NULL,
    author TEXT,
    model TEXT,
    created REAL NOT NULL,
    parent INTEGER,
    changed REAL,
    edited REAL,
    file TEXT NOT NULL UNIQUE,
    bytes INTEGER NOT NULL,
    sha256 TEXT NOT NULL,
    ids TEXT NOT NULL,
    warnings TEXT NOT NULL DEFAULT '[]',
    PRIMARY KEY (image, version)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS rounds (
    project TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    round INTEGER NOT NULL,
    job TEXT NOT NULL,
    state TEXT NOT NULL,
    created REAL NOT NULL,
    base TEXT NOT NULL,
    corrected INTEGER NOT NULL,
    trained_on INTEGER NOT NULL,
    held_out INTEGER NOT NULL,
    changed REAL,
    model TEXT,
    accepted INTEGER,
    message TEXT,
    dice TEXT,
    before TEXT,
    PRIMARY KEY (project, round)
) WITHOUT ROWID;
"""

#: What the tables have not had from the beginning.
ADDED = (
    *(Column(table, "warnings", "TEXT NOT NULL DEFAULT '[]'") for table in ("images", "labels")),
    Column("projects", "ignore_label", "INTEGER"),
    Column("images", "patient", "TEXT"),
    Column("images", "patient_digest", "TEXT"),
    Column("images", "learned", "INTEGER NOT NULL DEFAULT 0"),
)

T = TypeVar("T", Project, Image, LabelVersion, Round)


def _labels(text: str) -> dict[int, str]:
    return {int(label): name for label, name in json.loads(text).items()}


def _tuple(text: str) -> tuple[Any, ...]:
    return tuple(json.loads(text))


#: Columns whose values are written otherwise than they are kept in the records.
_READ: Mapping[type, Mapping[str, Callable[[Any], Any]]] = {
    Project: {"labels": _labels},
    Image: {
        "shape": _tuple,
        "affine": _tuple,
        "held_out": bool,
        "learned": bool,
        "scored": bool,
        "warnings": _tuple,
    },
    LabelVersion: {"ids": _tuple, "warnings": _tuple},
    Round: {"accepted": bool, "dice": json.loads, "before": json.loads},
}


def columns(record: type[T]) -> str:
    """The columns of a record, for a query."""
    return ", ".join(field.name for field in fields(record))


def from_row(record: type[T], row: Sequence[Any]) -> T:
    """A row of `columns` as a record."""
    read = _READ[record]
    named = zip((field.name for field in fields(record)), row, strict=True)
    return record(**{k: read[k](v) if k in read and v is not None else v for k, v in named})


def to_columns(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a record as those of its columns."""
    return {
        name: json.dumps(value) if isinstance(value, (dict, list, tuple)) else value
        for name, value in values.items()
    }
