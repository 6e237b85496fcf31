"""Build networks before they get their weights, or only to learn the shapes of these."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

#: Functions of `torch.nn.init` and methods of tensors that draw random numbers in place.
_DRAWS = {"normal_", "uniform_", "trunc_normal_", "kaiming_normal_", "kaiming_uniform_"}


@contextmanager
def shapes_only() -> Iterator[None]:
    """Modules built in this context are on the device ``meta``: shapes without numbers.

    Random initialization is left out: on ``meta`` PyTorch would import its compiler for it, which
    takes a second and leaves a folder behind.

    >>> with shapes_only():
    ...     layer = torch.nn.Linear(2**20, 2**20)
    >>> layer.weight.shape, layer.weight.device.type
    (torch.Size([1048576, 1048576]), 'meta')
    """
    with torch.device("meta"), without_draws():
        yield


@contextmanager
def without_draws() -> Iterator[None]:
    """Modules built in this context are not initialized at random, but filled afterwards.

    PyTorch's random generator is not advanced, so the caller's own random numbers do not depend on
    whether a network was loaded before.
    """
    with _NoDraws():
        yield


class _NoDraws(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        if getattr(func, "__name__", "") in _DRAWS:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **(kwargs or {}))
