"""One replica: the app of ``caps-med serve``, warm before it answers."""

from __future__ import annotations

import ray
from fastapi import FastAPI
from ray import serve
from ray.serve.context import _get_global_client

from api.access.keys import KeyStore, default_path
from api.app import create_app
from api.cluster.serve import check_http, environment
from api.cluster.size import Size
from api.settings import Settings
from api.startup import prepared
from caps_med.errors import InvalidParameter

#: Requests that a replica takes at a time. The service's own queues refuse sooner, and say when to
#: come back; Serve's default would keep them from filling a batch.
MAX_ONGOING_REQUESTS = 1000
#: Seconds that Serve gives HAProxy to forget a replica, before the replica ends its requests.
DEREGISTRATION_SECONDS = 30


@serve.ingress()
class Replica:
    """The service in a Serve replica.

    Args:
        settings: of the service.
        without_keys: whether other machines may call without keys.
    """

    def __init__(self, settings: Settings, without_keys: bool) -> None:
        self._settings, self._without_keys = settings, without_keys

    async def __serve_build_asgi_app__(self) -> FastAPI:
        """The app, whose preloaded models have run.

        Raises:
            InvalidParameter: the service must not or cannot run here; the deployment fails with
                this message.
        """
        options = await _get_global_client()._controller.get_http_config.remote()
        check_http(options, self._settings)
        settings = prepared(self._settings, options.host, self._without_keys)
        _check_files(settings)
        app = create_app(settings)
        await app.state.engine.warm_up()
        return app


def _check_files(settings: Settings) -> None:
    """Check that this node has the files that the command has seen elsewhere.

    Raises:
        InvalidParameter: the models or the keys are not there.
    """
    node = ray.util.get_node_ip_address()
    if settings.models is not None and not settings.models.is_dir():
        raise InvalidParameter(
            f"CAPS_MED_MODELS={settings.models} is not a folder on node {node}: share it among all "
            "nodes, under the same path"
        )
    keys = settings.keys or default_path()
    if settings.require_keys and not KeyStore(keys).holds_any():
        raise InvalidParameter(
            f"CAPS_MED_KEYS={keys} holds no keys on node {node}: create one, and share the file "
            "among all nodes, under the same path"
        )


def application(settings: Settings, size: Size, without_keys: bool) -> serve.Application:
    """The Serve application with these settings."""
    threads = settings.threads or max(1, int(size.num_cpus))  # Ray hides the CPUs of the others
    own: dict[str, object] = {"inference_only": True, "threads": threads}
    if "trusted_proxies" not in settings.model_fields_set:
        own["trusted_proxies"] = ()  # Ray's HAProxy passes on what clients say they are
    settings = settings.model_copy(update=own)
    scaling = {
        "min_replicas": size.min_replicas,
        "max_replicas": size.most,
        "target_ongoing_requests": size.target_ongoing_requests,
    }
    deployment = serve.deployment(
        Replica,
        name="caps-med",
        autoscaling_config=scaling,
        max_ongoing_requests=MAX_ONGOING_REQUESTS,
        max_queued_requests=-1,
        graceful_shutdown_timeout_s=DEREGISTRATION_SECONDS + settings.drain_seconds,
        ray_actor_options={
            "num_cpus": size.num_cpus,
            "num_gpus": size.num_gpus,
            "runtime_env": {"env_vars": environment(settings)},
        },
        logging_config={"enable_access_log": False},  # the service has its own
    )
    return deployment.bind(settings, without_keys)
