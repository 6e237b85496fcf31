"""A repository of two tiny models that all tests may read."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from caps_med.bundles import ModelCard, ModelRepository, NetworkSpec, Provenance, write_bundle
from caps_med.networks import build_network

LABELS = {0: "background", 2: "nucleus", 7: "membrane"}


def tiny_card(task: str, spacing: tuple[float, float] | None = (1.0, 1.0)) -> ModelCard:
    """The card of a tiny model that knows the labels 0, 2 and 7."""
    segments = task == "segmentation"
    arguments = {"atoms": 4, "out_channels" if segments else "label_channels": 3}
    return ModelCard.model_validate(
        {
            "task": task,
            "network": NetworkSpec(
                name="SegCaps" if segments else "CapsPix2Pix", arguments=arguments
            ),
            "labels": LABELS,
            "spacing_mm": spacing,
            "provenance": Provenance(command="pytest", data="none", seed=0),
        }
    )


def write_tiny(root: Path, name: str, card: ModelCard) -> None:
    """A model with random weights that are always the same."""
    torch.manual_seed(5)
    network = build_network(card.network.name, card.network.arguments)
    write_bundle(ModelRepository(root), name, network, card)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with `tiny-segmentation` and `tiny-synthesis`."""
    root = tmp_path_factory.mktemp("models")
    for task in ("segmentation", "synthesis"):
        write_tiny(root, f"tiny-{task}", tiny_card(task))
    return root
