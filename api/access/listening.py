"""Where the service may listen, and the host names of this machine."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Sequence

from caps_med.errors import InvalidParameter

#: Names of this machine for itself.
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
#: Why a socket cannot listen, and what to do.
_REFUSED = {
    errno.EADDRINUSE: "--port {port}: another program is listening there: choose another port, or "
    "0 for a free one",
    errno.EACCES: "--port {port}: requires administrator rights: choose a port from 1024 up",
    errno.EADDRNOTAVAIL: "--host {host}: is not an address of this machine",
}
_EVERYWHERE = "0.0.0.0"  # noqa: S104 - an empty name listens on all addresses


def is_loopback(host: str) -> bool:
    """Whether every address of `host` is reachable from this machine only.

    Raises:
        InvalidParameter: the name has no address.
    """
    return bool(host) and all(address.is_loopback for address in _addresses(host))


def answers_at(address: str, host: str) -> bool:
    """Whether what listens on `host` answers at this address of the same machine, too.

    Raises:
        InvalidParameter: the name has no address.
    """
    wanted = ipaddress.ip_address(address)
    return any(one.is_unspecified or one == wanted for one in _addresses(host))


def _addresses(host: str) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host or _EVERYWHERE, None)}
    except OSError as error:
        raise InvalidParameter(f"--host {host}: this machine has no such address") from error
    return [ipaddress.ip_address(str(address).split("%")[0]) for address in found]


def listening(host: str, port: int) -> socket.socket:
    """A socket that accepts connections at one of the host's addresses.

    Args:
        port: 0 for a free one.

    Raises:
        InvalidParameter: the port is taken or not allowed, or the address is another machine's.
    """
    try:
        found = socket.getaddrinfo(host or _EVERYWHERE, port, type=socket.SOCK_STREAM)
        family, *_, address = sorted(found)[0]  # IPv4 where a name has both
        return socket.create_server(address, family=family)
    except OSError as error:
        what = _REFUSED.get(error.errno or 0)
        if what is None:
            raise
        raise InvalidParameter(what.format(host=host, port=port)) from error


def url_of(scheme: str, host: str, port: int) -> str:
    """The address of a service, as browsers and clients take it.

    >>> url_of("http", "::1", 8000)
    'http://[::1]:8000'
    """
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


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
            "--without-keys needs the host names of the service, because otherwise pages of other "
            """sites could call it: set for example CAPS_MED_ALLOWED_HOSTS='["scans.example"]'"""
        )
    if without_keys:
        return
    raise InvalidParameter(
        f"--host {host} can be reached from other machines, and there are no keys: create one with "
        "`caps-med keys create --name NAME --scope infer`, or, behind a proxy that asks for "
        "credentials, add --without-keys"
    )
