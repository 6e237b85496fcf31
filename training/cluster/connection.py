"""The Ray cluster that trainings run on."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from caps_med.errors import CapsMedError
from caps_med.extras import require_extra

#: Starts Ray on this machine, instead of an address.
LOCAL = "local"
#: Bytes of shared memory of a node on this machine: data are read from files.
_OBJECT_STORE_BYTES = 256 * 2**20


class ClusterError(CapsMedError):
    """The cluster cannot be used."""

    code = "cluster"


@dataclass(frozen=True)
class Share:
    """What each of several trainings takes: CPUs and GPUs."""

    cpus: int
    gpus: int


@contextmanager
def connected(address: str, echo: bool = False) -> Iterator[None]:
    """A connection to a cluster until the block ends, and with it all that was started there.

    Args:
        echo: whether to print what the processes print.
        address: ``host:port`` of the head, from one of the cluster's nodes; ``auto`` for the one
            that this machine belongs to; ``local`` starts Ray here, for as long as the block.

    Raises:
        MissingExtra: Ray is not installed.
        ClusterError: there is no cluster at that address, or it refuses.
    """
    require_extra("scale", "training several networks at a time")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_COLOR_PREFIX", "0")  # logs are read as plain text, too
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")  # no GPU for a share of none
    if address == LOCAL:
        _lock_local()
    import ray  # which reads what is set above
    from ray.exceptions import AuthenticationError

    given: dict[str, Any] = {"log_to_driver": echo, "logging_level": logging.ERROR}
    if address == LOCAL:
        given |= {"include_dashboard": False, "object_store_memory": _OBJECT_STORE_BYTES}
    try:
        ray.init(address, **given)
    except (ConnectionError, TimeoutError, ValueError, AuthenticationError) as error:
        raise ClusterError(
            f"--cluster {address}: {str(error).splitlines()[0]}. Give host:port of the head "
            "(RAY_AUTH_TOKEN_PATH for its token) from one of the cluster's nodes, or 'local'"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _lock_local() -> None:
    """A token for this process' own cluster, that other users of the machine do not know."""
    if not any(name.startswith("RAY_AUTH_") for name in os.environ):
        os.environ["RAY_AUTH_MODE"], os.environ["RAY_AUTH_TOKEN"] = "token", secrets.token_hex(32)


def share_of(trainings: int) -> Share:
    """An equal share of the cluster, at least a CPU, and a GPU where there are any."""
    import ray

    found = ray.cluster_resources()
    return Share(max(1, int(found.get("CPU", 1)) // trainings), min(1, int(found.get("GPU", 0))))
