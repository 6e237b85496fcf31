"""The network that a training starts with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from caps_med.bundles import Bundle, ModelRepository
from caps_med.bundles.shapes import mismatches
from caps_med.errors import InvalidParameter
from caps_med.layers import recompute_votes
from caps_med.networks import CapsuleNetwork, build_network, on_device
from training.data.interface import TrainingSource
from training.engine import distributed
from training.engine.recipe import Recipe

Weights = dict[str, Tensor]
#: Tensors that differ, of those that an error names.
MOST_TENSORS = 5


def model_to_start_from(reference: str, models: Path | None) -> Bundle:
    """A model whose weights a training starts with.

    Args:
        models: its repository; None is the usual one.

    Raises:
        ModelNotFound: there is no such model.
        InvalidParameter: it is an ensemble.
    """
    bundle = ModelRepository(models).find(reference)
    if bundle.card.is_ensemble:
        raise InvalidParameter(
            f"start_from={reference}: the model is an ensemble, and a training starts from a "
            "single network: choose a model that was trained without --folds"
        )
    return bundle


def initial_network(
    recipe: Recipe,
    source: TrainingSource,
    models: Path | None,
    adapt: Callable[[Weights, Weights], Weights] = lambda weights, _: weights,
) -> CapsuleNetwork:
    """The recipe's network on this process' device, seeded, or with the weights of `start_from`.

    Args:
        models: the repository of `start_from`; None is the usual one.
        adapt: from the model's weights and the network's own to those to load.

    Raises:
        ModelNotFound: there is no such model.
        InvalidParameter: it is an ensemble, or its network is a different one; the message lists
            the tensors that differ.
    """
    torch.manual_seed(recipe.seed)
    spec, model = recipe.network_spec(source), recipe.start_from
    network = build_network(spec.name, spec.arguments)
    if model is not None:
        own = network.state_dict()
        bundle = model_to_start_from(model, models)
        weights = adapt(bundle.load_network().state_dict(), own)
        if problems := mismatches(weights, own, MOST_TENSORS):
            kinds = bundle.card.network.name, spec.name
            which = "" if len(set(kinds)) == 1 else " ({} where {} is trained)".format(*kinds)
            raise InvalidParameter(
                f"start_from={model}: its network is a different one{which}: {problems}"
            )
        network.load_state_dict(weights)
    recompute_votes(network, recipe.recompute_votes)
    return on_device(network, distributed.device())
