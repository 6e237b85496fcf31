"""The service's deployment on the Ray cluster that this process is connected to."""

from __future__ import annotations

import ray
from ray import serve
from ray.serve.context import _get_global_client

from api.access.listening import is_loopback, listening, url_of
from api.cluster.replica import application
from api.cluster.serve import check_http, environment, longest_request
from api.cluster.size import Size
from api.settings import Settings
from caps_med.errors import InvalidParameter

APPLICATION = "caps-med"


def check_nodes(host: str) -> None:
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


def deploy(settings: Settings, host: str, port: int, without_keys: bool, size: Size) -> str:
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
            f"--host {host} --port {port}: Ray Serve is already running on "
            f"{options.host}:{options.port}: use these, or stop it with `serve shutdown`"
        )
    check_http(options, settings)
    app = application(settings, size, without_keys)
    try:
        serve.run(app, name=APPLICATION, route_prefix="/")
    except RuntimeError as error:
        raise InvalidParameter(f"the replicas could not be started: {_reason()}") from error
    return url_of("http", options.host, options.port)


def end() -> None:
    """End the service; its requests end first, while the proxies are there."""
    serve.delete(APPLICATION)
    serve.shutdown()


def _reason() -> str:
    """Why replicas do not start: the last line of what they raised."""
    application = serve.status().applications[APPLICATION]
    messages = [deployment.message for deployment in application.deployments.values()]
    lines = "\n".join([application.message, *messages]).strip().splitlines()
    return lines[-1] if lines else "see their logs"


def _free_port(host: str) -> int:
    with listening(host, 0) as listener:
        port: int = listener.getsockname()[1]
        return port
