"""The connection of this process to a Ray cluster, or to one that starts here and ends with it."""

from __future__ import annotations

import logging
import os
import secrets
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from caps_med.errors import CapsMedError
from caps_med.extras import require_extra

#: Starts Ray on this machine, instead of an address.
LOCAL = "local"
#: Bytes of shared memory of a cluster on this machine: images and requests do not pass through it.
_OBJECT_STORE_BYTES = 256 * 2**20
#: What Ray is told unless the environment says otherwise.
_DEFAULTS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_COLOR_PREFIX": "0",  # logs are read as plain text, too
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",  # no GPU for a share of none
}


class ClusterError(CapsMedError):
    """The cluster cannot be used."""

    code = "cluster"


@contextmanager
def connected(
    address: str, purpose: str, echo: bool = False, environment: Mapping[str, str] | None = None
) -> Iterator[None]:
    """A connection to a cluster until the block ends, which also ends all that was started there.

    Ray reads some of the environment when it is imported, so it must not be imported earlier.
    A cluster that starts here has a token that only this user's processes know, unless the
    environment provides one or sets RAY_AUTH_MODE to ``disabled``.

    Args:
        address: ``host:port`` of the head, from one of the cluster's nodes; ``auto`` for the
            cluster of ``RAY_ADDRESS``, or that to which this machine belongs; ``local`` starts Ray
            here, for the duration of the block.
        purpose: what needs Ray, see `require_extra`.
        echo: whether to print the output of the cluster's processes.
        environment: additional variables for Ray, for the duration of the block.

    Raises:
        MissingExtra: Ray is not installed.
        ClusterError: no cluster answers there, it refuses the token, or Ray does not start here.
    """
    require_extra("scale", purpose)
    defaults = {name: value for name, value in _DEFAULTS.items() if name not in os.environ}
    private = _private() if address == LOCAL else {}
    with _variables({**defaults, **private, **(environment or {})}):
        import ray

        _connect(address, echo)
        try:
            yield
        finally:
            ray.shutdown()


def _connect(address: str, echo: bool) -> None:
    import ray

    given: dict[str, Any] = {"log_to_driver": echo, "logging_level": logging.ERROR}
    if address == LOCAL:
        given |= {"include_dashboard": False, "object_store_memory": _OBJECT_STORE_BYTES}
    try:
        ray.init(address, **given)
    except Exception as error:  # Ray raises no more than that where a node is slow to start
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        if address == LOCAL:
            raise ClusterError(f"Ray does not start on this machine: {reason}") from error
        raise ClusterError(
            f"no Ray cluster answers at {address!r}: start one with `ray start --head`, name its "
            f"head as HOST:6379, or say '{LOCAL}' for one on this machine; a cluster with a token "
            f"wants its RAY_AUTH_TOKEN_PATH here ({reason})"
        ) from error


def write_token(path: Path) -> Path:
    """Write a new cluster token to a new file that only its owner can read.

    Whoever has the token can run code on every node. The file that Ray creates by itself,
    ``~/.ray/auth_token``, can be read by all users of the machine.

    Raises:
        FileExistsError: the file already exists.
    """
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secrets.token_hex(32).encode())
    return path


def _private() -> dict[str, str]:
    """Variables that close a cluster on this machine to other users."""
    if os.environ.get("RAY_AUTH_MODE", "token") != "token":
        return {}
    if "RAY_AUTH_TOKEN" in os.environ or "RAY_AUTH_TOKEN_PATH" in os.environ:
        return {"RAY_AUTH_MODE": "token"}
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(Path(_token_folder().name, "token")),
    }


@cache
def _token_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder with this process' token: Ray remembers the first token that it reads."""
    folder = tempfile.TemporaryDirectory(prefix="caps-med-")
    write_token(Path(folder.name, "token"))
    return folder


@contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set these environment variables until the block ends."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
