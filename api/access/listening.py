"""Where the service may listen, and the host names of this machine."""

from __future__ import annotations

import ipaddress
import socket

from caps_med.errors import InvalidParameter

#: Names of this machine for itself.
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_EVERYWHERE = "0.0.0.0"  # noqa: S104 - an empty name listens on all addresses


def is_loopback(host: str) -> bool:
    """Whether every address of `host` is reachable from this machine only.

    Raises:
        InvalidParameter: the name has no address.
    """
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host or _EVERYWHERE, None)}
    except OSError as error:
        raise InvalidParameter(f"--host {host}: no such address") from error
    return bool(host) and all(ipaddress.ip_address(a.split("%")[0]).is_loopback for a in found)  # type: ignore[union-attr]


def check_exposure(host: str, has_keys: bool, without_keys: bool) -> None:
    """Refuse to expose a service without keys to other machines.

    Raises:
        InvalidParameter: there are no keys, and `without_keys` is not set.
    """
    if is_loopback(host) or has_keys or without_keys:
        return
    raise InvalidParameter(
        f"--host {host} can be reached from other machines, and there are no keys: make one with "
        "`caps-med keys create --name NAME --scope infer`, or, behind a proxy that asks for "
        "credentials, add --without-keys"
    )
