"""Whether the service of this container is ready, as its ``HEALTHCHECK``: ``python -m
api.health_check``.

It asks where the container's command has the service listen, under a name that is allowed.
"""

from __future__ import annotations

import argparse
import json
import os
import ssl
import sys
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path

#: Seconds for the answer, below the check's own timeout.
PATIENCE = 2.5
#: At which addresses of this machine those answer that listen on all.
_OWN = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - nothing listens here


def connection_to(command: str) -> HTTPConnection:
    """To the service that a command has started.

    Args:
        command: with its arguments; that of an ``init`` or a shell with it is as good.
    """
    options = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--port", type=int, default=8000)
    options.add_argument("--tls-cert")
    given = [word for word in command.split() if word != "--"]  # after which no options come
    found, _ = options.parse_known_args(given)
    host = _OWN.get(found.host, found.host)
    if found.tls_cert is None:
        return HTTPConnection(host, found.port, timeout=PATIENCE)
    # its certificate is for the name that its users know
    context = ssl._create_unverified_context()  # noqa: S323
    return HTTPSConnection(host, found.port, timeout=PATIENCE, context=context)


def allowed_name(environment: Mapping[str, str]) -> str:
    """A host name that the service accepts."""
    names = json.loads(environment.get("CAPS_MED_ALLOWED_HOSTS") or "[]")
    name = str(names[0]) if names else "localhost"
    return f"[{name}]" if ":" in name else name


def is_ready(command: str, environment: Mapping[str, str]) -> bool:
    """Whether the service that a command has started is ready."""
    connection = connection_to(command)
    try:
        connection.request("GET", "/readyz", headers={"Host": allowed_name(environment)})
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    first = Path("/proc/1/cmdline").read_text(encoding="utf-8", errors="replace").replace("\0", " ")
    sys.exit(not is_ready(first, os.environ))
