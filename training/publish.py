"""A finished run becomes a version in the model repository."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from caps_med.bundles import (
    Bundle,
    ModelCard,
    ModelRepository,
    NetworkSpec,
    Provenance,
    named_scores,
    write_bundle,
)
from caps_med.networks import CapsPix2Pix, CapsuleNetwork, SegCaps
from training import segmentation, synthesis
from training.datasets.source import Source
from training.evaluation import dice_scores, synthesis_scores
from training.run import Best, Recipe


def publish_segmentation(
    repository: ModelRepository,
    name: str,
    network: SegCaps,
    source: Source,
    recipe: segmentation.SegmentationRecipe,
    best: Best,
    command: str,
) -> Bundle:
    """Write the segmentation network with its held-out Dice."""
    _round_to_half(network)
    scores = dice_scores(network, source.validation, source.labels)
    arguments = segmentation.network_arguments(recipe, source)
    card = _card("segmentation", "SegCaps", arguments, source, recipe, scores, command)
    return _write(repository, name, network, card)


def publish_synthesis(
    repository: ModelRepository,
    name: str,
    network: CapsPix2Pix,
    source: Source,
    recipe: synthesis.SynthesisRecipe,
    best: Best,
    command: str,
) -> Bundle:
    """Write the generator with its held-out SSIM."""
    _round_to_half(network)
    scores = synthesis_scores(network, source.validation, source.class_channels, recipe.seed)
    arguments = synthesis.network_arguments(recipe, source)
    card = _card("synthesis", "CapsPix2Pix", arguments, source, recipe, scores, command)
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
    return write_bundle(repository, name, network.cpu(), card, half=True)


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
            "normalization": source.normalization,
            "scores": named_scores(measured),
            "description": f"{network} for {task}, trained on {source.name}.",
            "provenance": Provenance(
                command=command,
                data=source.description,
                seed=recipe.seed,
                recipe=recipe.model_dump(mode="json"),
            ),
        }
    )
