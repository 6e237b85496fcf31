"""The layers of a network that have weights, and their number of parameters."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class LayerParameters:
    """One layer with its own weights.

    Attributes:
        name: its path in the network, such as ``decoder.layers.0``.
        type: its class, such as ``Conv2d``.
        shapes: shapes of its weights, such as ``weight 256x1x9x9``.
        parameters: total number of weights.
    """

    name: str
    type: str
    shapes: tuple[str, ...]
    parameters: int


def parameters_of(network: nn.Module) -> list[LayerParameters]:
    """The layers in the network's order; each weight is counted once.

    >>> [(one.name, one.parameters) for one in parameters_of(nn.Sequential(nn.Linear(3, 2)))]
    [('0', 8)]
    """
    found, counted = [], set[int]()
    for name, layer in network.named_modules():
        own = [(key, p) for key, p in layer.named_parameters(recurse=False) if id(p) not in counted]
        if not own:
            continue
        counted.update(id(parameter) for _, parameter in own)
        shapes = tuple(f"{key} {'x'.join(map(str, p.shape)) or '1'}" for key, p in own)
        numbers = sum(parameter.numel() for _, parameter in own)
        found.append(LayerParameters(name or "itself", type(layer).__name__, shapes, numbers))
    return found
