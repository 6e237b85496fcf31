"""What the data store holds, from the records of its project, a page at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from api.database import Database
from api.monai_label.answers import label_names
from api.projects.images import Upload
from api.projects.label_maps import format_of
from api.projects.records import Image, LabelVersion, Project
from api.projects.store import select
from caps_med.images import CODECS

#: Tags of label maps: the present one if a person made it, and the last one that a model made.
FINAL, ORIGINAL = "final", "original"
#: Images that are in memory at a time.
PAGE = 500

_PRESENT = (
    "labels WHERE image IN (SELECT value FROM json_each(?)) AND kind <> 'prediction' "
    "AND version = (SELECT version FROM images WHERE id = image)"
)
_PREDICTED = (
    "labels WHERE image IN (SELECT value FROM json_each(?)) AND kind = 'prediction' AND version = "
    "(SELECT MAX(version) FROM labels AS other "
    "WHERE other.image = labels.image AND other.kind = 'prediction')"
)


class Catalogue:
    """Finds images by their names, and lists them with their label maps.

    Args:
        database: of the projects.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def project(self, owner: str | None, name: str) -> Project | None:
        """The newest project of a key with this name."""
        query = "projects WHERE owner IS ? AND name = ? ORDER BY number DESC LIMIT 1"
        with self._database.connection() as connection:
            return next(iter(select(connection, Project, query, owner, name)), None)

    def named(self, project: str, name: str) -> list[Image]:
        """The images with this name; of several the first two."""
        query = "images WHERE project = ? AND name = ? ORDER BY number LIMIT 2"
        with self._database.connection() as connection:
            return select(connection, Image, query, project, name)

    def listing(self, project: Project) -> Iterator[str]:
        """All images with their label maps as JSON, in pieces of one page each."""
        head = {"name": project.name, "description": f"corrected with {project.model}"}
        yield json.dumps(head)[:-1] + ', "objects": {'
        after, comma = 0, ""
        while page := self._page(project.id, after):
            yield comma + self._objects(project, page)
            after, comma = page[-1].number, ", "
        yield "}}"

    def _page(self, project: str, after: int) -> list[Image]:
        query = "images WHERE project = ? AND number > ? ORDER BY number LIMIT ?"
        with self._database.connection() as connection:
            return select(connection, Image, query, project, after, PAGE)

    def _objects(self, project: Project, page: list[Image]) -> str:
        ids = json.dumps([image.id for image in page])
        with self._database.connection() as connection:
            tagged = {
                tag: {label.image: label for label in select(connection, LabelVersion, query, ids)}
                for tag, query in ((FINAL, _PRESENT), (ORIGINAL, _PREDICTED))
            }
        objects = (
            {
                "image": {"ext": suffix(image.format), "info": image_info(image)},
                "labels": {
                    tag: {
                        "ext": suffix(format_of(image)),
                        "info": label_info(project, labels[image.id]),
                    }
                    for tag, labels in tagged.items()
                    if image.id in labels
                },
            }
            for image in page
        )
        pairs = zip(page, objects, strict=True)
        return ", ".join(f'"{image.id}": {json.dumps(found)}' for image, found in pairs)


def suffix(form: str) -> str:
    """The usual suffix of a format."""
    return CODECS[form].suffixes[0]


def file_name(image: Image) -> str:
    """The name under which a client saves an image: its suffix says the format."""
    return f"{Upload(image.name, b'').stem}{suffix(image.format)}"


def image_info(image: Image) -> dict[str, Any]:
    """The description of an image for clients."""
    return {
        "name": file_name(image),
        "ts": int(image.created),
        "state": image.state,
        "shape": image.shape,
    }


def label_info(project: Project, label: LabelVersion) -> dict[str, Any]:
    """The description of a label map for clients."""
    return {
        "ts": int(label.created),
        "time": datetime.fromtimestamp(label.created, UTC).isoformat(timespec="seconds"),
        "version": label.version,
        "client_id": label.author,
        "model": label.model,
        "params": {"label_names": label_names(label.ids, project.ids)},
    }
