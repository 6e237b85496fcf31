"""The optimizer of every task."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.optim import Adam


def adam(network: nn.Module, rate: float, kind: type[Adam] = Adam, **options: Any) -> Adam:  # noqa: ANN401 - of `kind`
    """Adam, or a `kind` of it, of a network on its device; on a GPU a step is one kernel."""
    on_gpu = next(network.parameters()).is_cuda
    return kind(network.parameters(), lr=rate, fused=on_gpu or None, **options)
