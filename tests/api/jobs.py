"""A small labelled data set in an archive, and waiting for jobs."""

from __future__ import annotations

import io
import tarfile
import time
import zipfile
from pathlib import Path
from typing import Any

PATIENCE = 600.0
#: A run of seconds.
TINY = {"epochs": "2", "steps": "2", "batch_size": "1", "crop": "64", "atoms": "4"}


def zipped(folder: Path, top: str = "") -> bytes:
    """All files of a folder as a zip."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path in sorted(folder.rglob("*.png")):
            archive.write(path, top + path.relative_to(folder).as_posix())
    return buffer.getvalue()


def tarred(folder: Path, mode: str = "w:gz") -> bytes:
    """All files of a folder as a tar."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        archive.add(folder, ".")
    return buffer.getvalue()


def wait_for(client: Any, identity: str, *states: str) -> dict[str, Any]:  # noqa: ANN401
    """The job once it is in one of these states; fails if it ends in another."""
    end = time.monotonic() + PATIENCE
    while True:
        view: dict[str, Any] = client.get(f"/v1/training-jobs/{identity}").json()
        if view["state"] in states:
            return view
        over = view["state"] in ("succeeded", "failed", "cancelled")
        assert not over and time.monotonic() < end, view
        time.sleep(0.05)
