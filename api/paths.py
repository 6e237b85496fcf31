"""Which paths are the API's: their calls need keys, are audited, and are not cached."""

from __future__ import annotations

#: First segments of the paths of the MONAI Label protocol, see `api.monai_label`.
MONAI_LABEL = frozenset(
    ("info", "infer", "datastore", "session", "activelearning", "train", "auth")
)


def first_segment(path: str) -> str:
    """The first segment of a path, in lower case; empty for the root."""
    return path.strip("/").partition("/")[0].lower()


def is_api(path: str) -> bool:
    """Whether a path belongs to the API, rather than to the page and the operator's tools."""
    first = first_segment(path)
    return first == "v1" or first in MONAI_LABEL
