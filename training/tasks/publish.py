"""A finished run becomes a version in the model repository."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from caps_med.bundles import (
    Bundle,
    ModelCard,
    ModelRepository,
    NetworkSpec,
    WeightsProvenance,
    named_scores,
    write_bundle,
)
from caps_med.errors import InvalidBundle, InvalidParameter
from caps_med.networks import CapsuleNetwork, SegmentationNetwork, SynthesisNetwork, build_network
from training.data.dataset import Source
from training.engine.loop import Best
from training.engine.recipe import Recipe
from training.evaluation.validation import dice_scores, synthesis_scores
from training.tasks import segmentation
from training.tasks.synthesis import train as synthesis


def publish_segmentation(
    repository: ModelRepository,
    name: str,
    network: SegmentationNetwork,
    source: Source,
    recipe: segmentation.SegmentationRecipe,
    best: Best,
    command: str,
) -> Bundle:
    """Write the segmentation network with its held-out Dice."""
    _round_to_half(network)
    scores = dice_scores(network, source.validation, source.labels)
    spec = segmentation.network_spec(recipe, source)
    card = _card("segmentation", *spec, source, recipe, scores, command)
    return _write(repository, name, network, card)


def publish_ensemble(
    repository: ModelRepository,
    name: str,
    folds: Sequence[tuple[SegmentationNetwork, Source]],
    recipe: Recipe,
    command: str,
) -> Bundle:
    """Write the networks of a cross-validation as one model.

    Its scores are means over the folds, each on the cases that its own network never saw.
    """
    scores: dict[str, list[float]] = {}
    for network, source in folds:
        _round_to_half(network)
        for key, value in dice_scores(network, source.validation, source.labels).items():
            scores.setdefault(key, []).append(value)
    if not isinstance(recipe, segmentation.SegmentationRecipe):
        raise InvalidParameter("folds: only segmentation networks answer together")
    member, arguments = segmentation.network_spec(recipe, folds[0][1])
    spec = {"network": member, "members": len(folds), "arguments": arguments}
    ensemble = build_network("Ensemble", spec)
    state = {
        f"members.{k}.{key}": value
        for k, (network, _) in enumerate(folds)
        for key, value in network.state_dict().items()
    }
    ensemble.load_state_dict(state)
    means = {key: sum(values) / len(values) for key, values in scores.items()}
    card = _card("segmentation", "Ensemble", spec, folds[0][1], recipe, means, command)
    return _write(repository, name, ensemble, card)


def publish_synthesis(
    repository: ModelRepository,
    name: str,
    network: SynthesisNetwork,
    source: Source,
    recipe: synthesis.SynthesisRecipe,
    best: Best,
    command: str,
) -> Bundle:
    """Write the generator with its held-out SSIM."""
    _round_to_half(network)
    scores = synthesis_scores(network, source.validation, source.class_channels)
    arguments = synthesis.network_arguments(recipe, source)
    name_of = synthesis.NETWORK_NAMES[recipe.network]
    card = _card("synthesis", name_of, arguments, source, recipe, scores, command)
    return _write(repository, name, network, card)


def _round_to_half(network: torch.nn.Module) -> None:
    """Give the network the values that its float16 file will hold, so that scores are theirs."""
    network.load_state_dict(
        {k: v.half().to(v.dtype) if v.is_floating_point() else v
         for k, v in network.state_dict().items()}
    )  # fmt: skip


def _write(
    repository: ModelRepository, name: str, network: CapsuleNetwork, card: ModelCard
) -> Bundle:
    """The next version; or the newest, if it is this very model: a finished run was resumed."""
    network = network.cpu()
    newest = repository.find(name) if repository.versions(name) else None
    if newest is not None and _is(newest, network, card):
        return newest
    return write_bundle(repository, name, network, card, half=True)


def _is(bundle: Bundle, network: CapsuleNetwork, card: ModelCard) -> bool:
    try:
        if bundle.card != card:
            return False
        kept = bundle.load_network().state_dict()
    except InvalidBundle:  # a damaged one is no model
        return False
    return all(torch.equal(kept[k], v) for k, v in network.state_dict().items())


def _card(
    task: str,
    network: str,
    arguments: Mapping[str, object],
    source: Source,
    recipe: Recipe,
    scores: Mapping[str, float],
    command: str,
) -> ModelCard:
    measured = {f"held-out {k}": v for k, v in scores.items() if k != "score"}
    return ModelCard.model_validate(
        {
            "task": task,
            "network": NetworkSpec(name=network, arguments=dict(arguments)),
            "labels": source.labels,
            "colors": source.colors,
            "plane": source.plane or "axial",
            "spacing_mm": source.spacing_mm,
            "neighbours": source.neighbours,
            "normalization": source.normalization,
            "scores": named_scores(measured),
            "description": f"{network} for {task}, trained on {source.name}.",
            "provenance": WeightsProvenance(
                command=command,
                data=source.description,
                seed=recipe.seed,
                recipe=recipe.model_dump(mode="json"),
            ),
        }
    )
