"""What Ray is told by the environment before it is imported: it reads some of it only then."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from api.cluster.serve import private_files


@contextmanager
def ray_environment() -> Iterator[None]:
    """Prepare for a cluster of this machine, unless ``RAY_ADDRESS`` names one.

    Only this user's processes may call it: its token and HAProxy's files are in a folder of its
    own.
    """
    if "RAY_ADDRESS" in os.environ:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="caps-") as name:
        folder = Path(name)
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ.update(private_files(folder))
        if "RAY_AUTH_MODE" not in os.environ:
            token = _token(folder / "token")
            os.environ.update({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)})
        yield


def _token(path: Path) -> Path:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_hex(32))
    return path
