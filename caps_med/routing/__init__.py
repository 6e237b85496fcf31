"""Squash, routing by agreement (`route`, one file per backend), and EM routing (`route_em`)."""

from caps_med.routing.agreement import couplings, route
from caps_med.routing.backends import BACKENDS, active_backend, use_backend
from caps_med.routing.config import Competition, Routing
from caps_med.routing.em import EMCapsules, EMRouting, route_em
from caps_med.routing.squash import squash

__all__ = [
    "BACKENDS",
    "Competition",
    "EMCapsules",
    "EMRouting",
    "Routing",
    "active_backend",
    "couplings",
    "route",
    "route_em",
    "squash",
    "use_backend",
]
