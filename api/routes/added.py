"""Routes of other packages, for the models of their tasks."""

from __future__ import annotations

from fastapi import APIRouter

from caps_med.registers import Register

#: Added through the entry-point group ``caps_med.routes``.
ROUTERS: Register[APIRouter] = Register("caps_med.routes", {})
