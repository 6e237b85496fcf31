"""Routing bypassed: every vote counts alike, so that gradients reach the votes directly.

Gu, Wu & Tresp 2021, "Effective and efficient vote attack on capsule networks": a network that seems
robust because gradients are lost in its routing is fooled by gradients of its votes. The attack is
crafted on the network without routing and judged by the network with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from torch import nn

from caps_med.layers.attention import SelfAttentionCapsules
from caps_med.routing import EMRouting, Routing


def routes(network: nn.Module) -> bool:
    """Whether the network has routing to bypass."""
    return any(_is_routed(layer) for layer in network.modules())


@contextmanager
def votes_count_alike(network: nn.Module) -> Iterator[None]:
    """Inside the ``with`` block each routed layer does a single iteration, with equal couplings.

    Self-attention routing gives each class an equal share of each vote; its learned priors stay.
    """
    before: list[tuple[nn.Module, str, object]] = []
    for layer in network.modules():
        if isinstance(layer, SelfAttentionCapsules):
            before.append((layer, "attends", layer.attends))
            layer.attends = False
        elif isinstance(routing := getattr(layer, "routing", None), (Routing, EMRouting)):
            before.append((layer, "routing", routing))
            layer.routing = replace(routing, iterations=1)  # type: ignore[assignment]
    try:
        yield
    finally:
        for layer, name, value in before:
            setattr(layer, name, value)


def _is_routed(layer: nn.Module) -> bool:
    if isinstance(layer, SelfAttentionCapsules):
        return layer.attends
    routing = getattr(layer, "routing", None)
    return isinstance(routing, (Routing, EMRouting)) and routing.iterations > 1
