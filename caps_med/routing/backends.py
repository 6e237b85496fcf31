"""The routing backends, and the choice of one for a device."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib import import_module, util

import torch
from torch import Tensor

from caps_med.errors import InvalidParameter
from caps_med.extras import install_command
from caps_med.routing.config import Routing

Route = Callable[[Tensor, Tensor | None, Routing], Tensor]

#: Overrides the choice by device: the name of a backend.
ENVIRONMENT = "CAPS_MED_ROUTING"


@dataclass(frozen=True)
class Backend:
    """One way to route.

    Attributes:
        name: as in the argument and the environment variable; its function is ``route_<name>``.
        module: where the function is, in `caps_med.routing`.
        missing: why it cannot run on a device, or None if it can.
        automatic: device types on which it is chosen by default.
    """

    name: str
    module: str
    missing: Callable[[torch.device], str | None]
    automatic: tuple[str, ...] = ()

    @property
    def route(self) -> Route:
        """The function, imported when first asked for."""
        module = import_module(f"caps_med.routing.{self.module}")
        function: Route = getattr(module, f"route_{self.name}")
        return function


@cache  # the path of imports is searched anew each time: a tenth of a small layer's time
def _installed(package: str) -> bool:
    return util.find_spec(package) is not None


def _never_missing(device: torch.device) -> str | None:
    return None


def _numba_missing(device: torch.device) -> str | None:
    if not _installed("numba"):
        return "numba is not installed: pip install numba"
    return None if device.type == "cpu" else f"it runs on CPUs, not on {device.type!r}"


def _triton_missing(device: torch.device) -> str | None:
    if not _installed("triton"):
        return f"triton is not installed: {install_command('triton')}"
    if device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        return f"it needs a CUDA device, not {device.type!r} (or TRITON_INTERPRET=1, for tests)"
    return None


#: Best first.
BACKENDS: Mapping[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend("triton", "triton_backend", _triton_missing, automatic=("cuda",)),
        Backend("numba", "numba_backend", _numba_missing, automatic=("cpu",)),
        Backend("eager", "eager", _never_missing, automatic=("cpu", "cuda", "mps", "xpu", "meta")),
        Backend("plain", "plain", _never_missing),
    )
}

_chosen: ContextVar[str | None] = ContextVar("caps_med_routing", default=None)


@contextmanager
def use_backend(name: str) -> Iterator[None]:
    """Route with this backend inside the ``with`` block; other threads are not affected.

    >>> with use_backend("plain"):
    ...     active_backend()
    'plain'
    """
    _named(name)
    token = _chosen.set(name)
    try:
        yield
    finally:
        _chosen.reset(token)


def active_backend(device: torch.device | str = "cpu", name: str | None = None) -> str:
    """The name of the backend that routes on this device.

    In order of precedence: the argument `name`, `use_backend`, the environment variable
    ``CAPS_MED_ROUTING``, the first backend in `BACKENDS` that can run.

    Raises:
        InvalidParameter: no backend has that name, or it cannot run on the device.
    """
    device = torch.device(device)
    wanted = name or _chosen.get() or os.environ.get(ENVIRONMENT)
    if wanted:
        reason = _named(wanted).missing(device)
        if reason is not None:
            raise InvalidParameter(f"routing backend {wanted!r} cannot run: {reason}")
        return wanted
    return next(
        backend.name
        for backend in BACKENDS.values()
        if device.type in backend.automatic and backend.missing(device) is None
    )


def in_graph() -> bool:
    """Whether a graph is compiled, exported or traced, to be used with other sizes and values."""
    tracing: bool = torch.jit.is_tracing()  # type: ignore[attr-defined,no-untyped-call]  # no stubs
    return torch.compiler.is_compiling() or tracing


def is_transformed() -> bool:
    """Whether a transform of `torch.func`, such as `vmap` or `jvp`, is active."""
    active: bool = torch._C._are_functorch_transforms_active()
    return active


def _named(name: str) -> Backend:
    if name not in BACKENDS:
        raise InvalidParameter(f"routing backend {name!r}: must be one of {tuple(BACKENDS)}")
    return BACKENDS[name]
