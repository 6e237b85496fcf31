"""The service on a Ray cluster: replicas of one app behind Ray Serve's HAProxy.

``caps-med serve --cluster`` deploys it; in a Serve configuration file, ``api.cluster:build`` is its
`import_path`. Either way each replica makes the same checks as ``caps-med serve``, by
`api.startup.prepared`, before it answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from caps_med.extras import require_extra

if TYPE_CHECKING:
    from ray.serve import Application


def build(args: dict[str, Any]) -> Application:
    """The Serve application, for the `import_path` of a Serve configuration file.

    Args:
        args: ``settings`` (of `api.settings.Settings`, by their names; the environment of the node
            has the others), ``without_keys``, and the fields of `api.cluster.size.Size`.

    Raises:
        InvalidParameter: a name is unknown, or a value out of its range.
        MissingExtra: Ray is not installed.
    """
    require_extra("scale", "the service on a cluster")
    from api.cluster.replica import application
    from api.cluster.size import read_size
    from api.startup import read_settings

    given = dict(args)
    settings = read_settings(dict(given.pop("settings", {})))
    without_keys = bool(given.pop("without_keys", False))
    return application(settings, read_size(given), without_keys)
