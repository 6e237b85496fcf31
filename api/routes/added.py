"""Routes of other packages, for the models of their tasks."""

from __future__ import annotations

from fastapi import APIRouter

from caps_med.registries import Registry

#: Added through the entry-point group ``caps_med.routes``.
ROUTERS: Registry[APIRouter] = Registry("caps_med.routes", {})
