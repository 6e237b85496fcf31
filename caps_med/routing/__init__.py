"""Squash and routing by agreement; `route` dispatches to one file per backend."""

from caps_med.routing.agreement import couplings, route
from caps_med.routing.backends import BACKENDS, active_backend, use_backend
from caps_med.routing.config import Competition, Routing
from caps_med.routing.squash import squash

__all__ = [
    "BACKENDS",
    "Competition",
    "Routing",
    "active_backend",
    "couplings",
    "route",
    "squash",
    "use_backend",
]
