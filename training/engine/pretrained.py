"""The weights that a training starts with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from caps_med.bundles import ModelRepository
from caps_med.bundles.weights import mismatches
from caps_med.errors import InvalidParameter
from caps_med.networks import CapsuleNetwork

Weights = dict[str, Tensor]


def load_pretrained(
    network: CapsuleNetwork,
    model: str | None,
    models: Path | None,
    adapt: Callable[[Weights, Weights], Weights] = lambda weights, _: weights,
) -> None:
    """Load the weights of a model into the network; with None it keeps its own.

    Args:
        adapt: from the model's weights and the network's own to those to load.

    Raises:
        ModelNotFound: there is no such model.
        InvalidParameter: its network is a different one; the message lists the tensors that differ.
    """
    if model is None:
        return
    own = network.state_dict()
    weights = adapt(ModelRepository(models).find(model).load_network().state_dict(), own)
    problems = mismatches(weights, own)
    if problems:
        raise InvalidParameter(f"start_from={model}: its network is a different one: {problems}")
    network.load_state_dict(weights)
