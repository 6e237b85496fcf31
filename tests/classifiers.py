"""Tiny classification models with random weights that are always the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from caps_med.bundles import ModelCard, NetworkSpec, WeightsProvenance
from caps_med.bundles.metadata import ClassificationSpec
from caps_med.images import Normalization, Plane
from caps_med.preprocessing import PicturePreprocessing
from tests.conftest import write_tiny

#: Name of the model -> its network.
NETWORKS: dict[str, NetworkSpec] = {
    "tiny-efficient": NetworkSpec(name="EfficientCapsNet", arguments={}),
    "tiny-capsnet": NetworkSpec(
        name="CapsNet", arguments={"width": 8, "primary_types": 2, "decoder": False}
    ),
    "tiny-matrix": NetworkSpec(
        name="MatrixCapsules", arguments={"width": 8, "types": [2, 2, 2], "decoder": True}
    ),
    "tiny-cnn": NetworkSpec(name="ConvNet", arguments={}),
}
CLASSES = {0: "benign", 1: "malignant", 2: "normal tissue"}


def classifier_card(
    network: NetworkSpec,
    channels: int = 1,
    plane: Plane = "axial",
    **changes: Any,  # noqa: ANN401 - each field of a card has its own type
) -> ModelCard:
    """A card for pictures of 20 x 28 pixels."""
    pictures = PicturePreprocessing(
        size=(20, 28),
        channels=channels,
        plane=plane,
        normalization=Normalization(window=(0, 255)),
    )
    size = {"in_channels": channels, "out_channels": len(CLASSES), "image_size": [20, 28]}
    spec = NetworkSpec(name=network.name, arguments={**network.arguments, **size})
    return ModelCard(
        task="classification",
        network=spec,
        labels=CLASSES,
        classification=ClassificationSpec(pictures=pictures, **changes),
        provenance=WeightsProvenance(command="pytest", data="none", seed=0),
    )


def write_classifiers(root: Path) -> Path:
    """A repository with all `NETWORKS`, and with `tiny-findings`, whose classes go together."""
    for name, network in NETWORKS.items():
        write_tiny(root, name, classifier_card(network))
    several = NetworkSpec(name="ConvNet", arguments={"activation": "sigmoid"})
    write_tiny(root, "tiny-findings", classifier_card(several, exclusive=False))
    write_tiny(root, "tiny-colours", classifier_card(NETWORKS["tiny-efficient"], channels=3))
    return root
