"""``caps-med serve --cluster``: start or join a Ray cluster, and deploy the service on it."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import ray
import typer
from ray import serve
from ray.serve.context import _get_global_client

from api.access.keys import default_path
from api.access.listening import is_loopback
from api.cluster.replica import application
from api.cluster.serve import check_http, environment, longest_request
from api.cluster.size import Size
from api.settings import Settings
from api.startup import checked
from caps_med.errors import InvalidParameter

APPLICATION = "caps-med"
#: Bytes of Ray's object store where the command starts Ray: bodies do not pass through it.
_OBJECT_STORE_BYTES = 100 * 2**20


def serve_on_cluster(
    settings: Settings, host: str, port: int, without_keys: bool, size: Size
) -> None:
    """Deploy the service, or update the one that runs, replica by replica.

    On a cluster that was there (``RAY_ADDRESS``) this returns when all replicas answer; otherwise
    Ray runs on this machine until SIGTERM or SIGINT.

    Raises:
        InvalidParameter: see `api.startup.checked`; or Serve runs on another address already.
    """
    settings = checked(settings, host, without_keys)
    settings = settings.model_copy(update={"keys": (settings.keys or default_path()).absolute()})
    if settings.models is not None:
        settings = settings.model_copy(update={"models": settings.models.absolute()})
    os.environ.update(environment(settings))
    joined = "RAY_ADDRESS" in os.environ
    with _connected(joined):
        _check_nodes(host)
        address = _deploy(settings, host, port, without_keys, size)
        typer.echo(f"caps_med on {address}", err=True)
        if joined:
            return
        _until_asked_to_stop()
        serve.delete(APPLICATION)  # its requests end first, while the proxies are there
        serve.shutdown()


@contextmanager
def _connected(joined: bool) -> Iterator[None]:
    """A connection to the cluster; to a new one on this machine if there is none to join."""
    if joined:
        ray.init(log_to_driver=False)
    else:
        ray.init("local", include_dashboard=False, object_store_memory=_OBJECT_STORE_BYTES)
    try:
        yield
    finally:
        ray.shutdown()


def _check_nodes(host: str) -> None:
    """Refuse the loopback interface where replicas are on several machines.

    Raises:
        InvalidParameter: HAProxy of one machine could not reach the replicas of another.
    """
    machines = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
    if len(machines) > 1 and is_loopback(host):
        raise InvalidParameter(
            f"--host {host}: the cluster has {len(machines)} machines, whose proxies and replicas "
            "call each other: give --host 0.0.0.0, and keys"
        )


def _deploy(settings: Settings, host: str, port: int, without_keys: bool, size: Size) -> str:
    """Deploy, wait until all replicas answer, and return the address."""
    serve.start(
        proxy_location="EveryNode",
        http_options={
            "host": host,
            "port": port or _free_port(host),
            "request_timeout_s": longest_request(settings),
        },
        controller_options={"runtime_env": {"env_vars": environment(settings)}},
    )
    options = ray.get(_get_global_client()._controller.get_http_config.remote())
    if (options.host, options.port) != (host, port or options.port):
        raise InvalidParameter(
            f"--host {host} --port {port}: Ray Serve runs on {options.host}:{options.port} "
            "already: name these, or end it with `serve shutdown`"
        )
    check_http(options, settings)
    app = application(settings, size, without_keys)
    try:
        serve.run(app, name=APPLICATION, route_prefix="/")
    except RuntimeError as error:
        raise InvalidParameter(f"the replicas do not start: {_reason()}") from error
    return f"http://{options.host}:{options.port}"


def _reason() -> str:
    """Why replicas do not start: the last line of what they raised."""
    application = serve.status().applications[APPLICATION]
    messages = [deployment.message for deployment in application.deployments.values()]
    lines = "\n".join([application.message, *messages]).strip().splitlines()
    return lines[-1] if lines else "see their logs"


def _free_port(host: str) -> int:
    with socket.create_server((host, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _until_asked_to_stop() -> None:
    asked = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked.set())
    asked.wait()
