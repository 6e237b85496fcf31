"""Where the service may listen, and the host names of this machine."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence

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
    addresses = [ipaddress.ip_address(str(address).split("%")[0]) for address in found]
    return bool(host) and all(address.is_loopback for address in addresses)


def check_exposure(
    host: str, has_keys: bool, without_keys: bool, allowed_hosts: Sequence[str]
) -> None:
    """Refuse to expose a service without keys to other machines.

    Args:
        allowed_hosts: accepted ``Host`` names. Without keys they are what keeps a page of another
            site, whose name resolves to this service, from calling it in the browser of a user.

    Raises:
        InvalidParameter: there are no keys, and `without_keys` or `allowed_hosts` is not set.
    """
    if is_loopback(host) or has_keys:
        return
    if without_keys and not allowed_hosts:
        raise InvalidParameter(
            "--without-keys needs the names under which the service is called, or pages of other "
            """sites could call it: set for example CAPS_MED_ALLOWED_HOSTS='["scans.example"]'"""
        )
    if without_keys:
        return
    raise InvalidParameter(
        f"--host {host} can be reached from other machines, and there are no keys: make one with "
        "`caps-med keys create --name NAME --scope infer`, or, behind a proxy that asks for "
        "credentials, add --without-keys"
    )
