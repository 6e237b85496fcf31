"""Squash and routing by agreement; each backend is one file behind `route`."""

from caps_med.routing.agreement import Competition, Routing, couplings, route
from caps_med.routing.squash import squash

__all__ = ["Competition", "Routing", "couplings", "route", "squash"]
