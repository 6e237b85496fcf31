"""Squash and routing by agreement; each backend is one file behind `route`."""

from caps_med.routing.agreement import Competition, Routing, couplings, route
from caps_med.routing.backends import BACKENDS, active_backend, use_backend
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
