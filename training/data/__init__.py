"""Data sets: by a registered name, or labelled images of one's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from caps_med.errors import InvalidInput
from training.data.dataset import Sample, Source
from training.data.mni152 import load_mni152
from training.data.prepare import Preparation, Track, load_folder

#: Data sets that need no folder, by the name that ``--data`` takes.
REGISTERED: Mapping[str, Callable[[], Source]] = {"mni152": load_mni152}


def load_source(
    data: str, store: Path, preparation: Preparation | None = None, track: Track = iter
) -> Source:
    """The registered data set of that name, or the folder or list at that path.

    Args:
        data: a name or a path.
        store: where the prepared arrays of a folder lie; see `training.data.prepare`.
        preparation: how a folder is prepared; a registered data set decides itself.
        track: wraps the iteration over cases, to show progress.

    Raises:
        InvalidInput: neither is there.
    """
    if data in REGISTERED:
        return REGISTERED[data]()
    if not Path(data).exists():
        raise InvalidInput(
            f"--data {data}: neither a folder or list of labelled images nor one of "
            f"{', '.join(REGISTERED)}"
        )
    return load_folder(Path(data), store, preparation, track)


__all__ = ["REGISTERED", "Preparation", "Sample", "Source", "load_source"]
