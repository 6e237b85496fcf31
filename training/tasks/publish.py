"""A finished run becomes a version in the model repository."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from caps_med.bundles import (
    Bundle,
    ModelCard,
    ModelRepository,
    NetworkSpec,
    Statement,
    WeightsProvenance,
    named_scores,
    write_bundle,
)
from caps_med.errors import InvalidBundle, InvalidParameter
from caps_med.networks import ENSEMBLES, CapsuleNetwork, build_network
from training.data.interface import TrainingSource
from training.engine.recipe import Recipe

#: Networks, each with the data that it was trained on and the cases that it never saw.
Trained = Sequence[tuple[CapsuleNetwork, TrainingSource]]


def publish(
    repository: ModelRepository,
    name: str,
    trained: Trained,
    recipe: Recipe,
    command: str,
    statement: Statement | None = None,
    candidate: bool = False,
    trials: Sequence[Mapping[str, Any]] = (),
    recipes: Sequence[Recipe] = (),
    files_sha256: str = "",
) -> Bundle:
    """Write a network, or those of a cross-validation as one `Ensemble`, with held-out scores.

    The scores of several networks are means, each over the cases that its network never saw.

    Args:
        command: the training, as it can be typed again.
        statement: licence and suitable input; None states neither.
        candidate: see `write_bundle`.
        trials: of the search that found the recipe.
        recipes: of each network its own, where they may differ: one that started again may be
            another network.
        files_sha256: of the data; see `training.data.cases.files_sha256`.

    Returns:
        The new version; or the newest one if it is the same model, as after resuming a finished
        run.

    Raises:
        InvalidParameter: there are several networks of a kind that cannot form an ensemble.
    """
    scores = _means([_held_out(network, source, recipe) for network, source in trained])
    network, source = trained[0]
    spec = recipe.network_spec(source)
    if len(trained) > 1:
        own = recipes or [recipe] * len(trained)
        specs = [of.network_spec(on) for of, (_, on) in zip(own, trained, strict=True)]
        network, spec = _ensemble([each for each, _ in trained], recipe, specs)
    card = _card(
        recipe, spec, trained, scores, command, statement or Statement(), trials, files_sha256
    )
    return _write(repository, name, network.cpu(), card, candidate)


def _held_out(
    network: CapsuleNetwork, source: TrainingSource, recipe: Recipe
) -> Mapping[str, float]:
    """Scores of the network as published: first rounded to the float16 of its file."""
    network.load_state_dict(
        {k: v.half().to(v.dtype) if v.is_floating_point() else v
         for k, v in network.state_dict().items()}
    )  # fmt: skip
    return recipe.held_out_scores(network, source)


def _means(scores: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each score over the mappings that hold it."""
    values: dict[str, list[float]] = {}
    for each in scores:
        for name, value in each.items():
            values.setdefault(name, []).append(value)
    return {name: sum(found) / len(found) for name, found in values.items()}


def _ensemble(
    networks: Sequence[CapsuleNetwork], recipe: Recipe, members: Sequence[NetworkSpec]
) -> tuple[CapsuleNetwork, NetworkSpec]:
    kinds = [kind for kind in ENSEMBLES if isinstance(networks[0], kind)]
    if not kinds:
        raise InvalidParameter(f"folds: networks for {recipe.task} cannot form an ensemble")
    name = ENSEMBLES[kinds[0]].__name__
    arguments: dict[str, Any] = {
        "network": members[0].name,
        "members": len(networks),
        "arguments": members[0].arguments,
    }
    if any(member != members[0] for member in members):
        arguments |= _apart([member.arguments for member in members])
    ensemble = build_network(name, arguments)
    ensemble.load_state_dict(
        {
            f"members.{k}.{key}": value
            for k, network in enumerate(networks)
            for key, value in network.state_dict().items()
        }
    )
    return ensemble, NetworkSpec(name=name, arguments=arguments)


def _apart(each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Arguments that all members have in common, and of each member its `own`."""
    shared = {
        key: value
        for key, value in each[0].items()
        if all(key in one and one[key] == value for one in each)
    }
    own = [{k: v for k, v in one.items() if k not in shared} for one in each]
    return {"arguments": shared, "own": own}


def _write(
    repository: ModelRepository,
    name: str,
    network: CapsuleNetwork,
    card: ModelCard,
    candidate: bool,
) -> Bundle:
    if versions := repository.versions(name):
        newest = repository.find(f"{name}@{versions[-1]}")
        if _is_same(newest, network, card):
            return newest
    return write_bundle(repository, name, network, card, half=True, candidate=candidate)


def _is_same(bundle: Bundle, network: CapsuleNetwork, card: ModelCard) -> bool:
    try:
        if bundle.card != card:
            return False
        published = bundle.load_network().state_dict()
    except InvalidBundle:  # a damaged one is replaced by a new version
        return False
    return all(torch.equal(published[k], v) for k, v in network.state_dict().items())


def _card(
    recipe: Recipe,
    spec: NetworkSpec,
    trained: Trained,
    scores: Mapping[str, float],
    command: str,
    statement: Statement,
    trials: Sequence[Mapping[str, Any]],
    files_sha256: str,
) -> ModelCard:
    network, source = trained[0]
    held_out = {f"held-out {k}": v for k, v in scores.items() if k != "score"}
    return ModelCard.model_validate(
        {
            **statement.model_dump(),
            "task": recipe.task,
            "network": spec,
            **recipe.card_values(network, source),
            **recipe.calibration(trained),
            "scores": named_scores(held_out),
            "description": f"{spec.name} for {recipe.task}, trained on {source.name}.",
            "provenance": WeightsProvenance(
                command=command,
                data=source.description,
                seed=recipe.seed,
                recipe=recipe.model_dump(mode="json"),
                trials=[dict(trial) for trial in trials],
                files_sha256=files_sha256,
            ),
        }
    )
