"""Where the service may listen, and by which names it is then called."""

from __future__ import annotations

import ipaddress
import socket

from caps_med.errors import InvalidParameter

#: Names of this machine for itself.
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_EVERYWHERE = "0.0.0.0"  # noqa: S104 - what an empty name listens on


def is_loopback(host: str) -> bool:
    """Whether every address of `host` is reached from this machine alone.

    Raises:
        InvalidParameter: the name has no address.
    """
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host or _EVERYWHERE, None)}
    except OSError as error:
        raise InvalidParameter(f"--host {host}: no such address") from error
    return bool(host) and all(ipaddress.ip_address(a.split("%")[0]).is_loopback for a in found)  # type: ignore[union-attr]


def check_exposure(host: str, has_keys: bool, without_keys: bool) -> None:
    """Refuse to listen where others reach an open service.

    Raises:
        InvalidParameter: there are no keys, and nobody said that none are needed.
    """
    if is_loopback(host) or has_keys or without_keys:
        return
    raise InvalidParameter(
        f"--host {host} can be reached from other machines, and there are no keys: make one with "
        "`caps-med keys create --name NAME --scope infer`, or, behind a proxy that asks for "
        "credentials, say --without-keys"
    )
