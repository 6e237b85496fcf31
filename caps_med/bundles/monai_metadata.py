"""``configs/metadata.json`` in the form that MONAI's bundle commands check."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from typing import Any

from caps_med.bundles.metadata import NOT_STATED, ModelCard, WeightsSpec
from caps_med.bundles.tasks import TASKS, Port

#: MONAI's schema of metadata.json; its tools check against it when given the file.
SCHEMA = (
    "https://github.com/Project-MONAI/MONAI-extra-test-data/releases/download/0.8.1/"
    "meta_schema_20240725.json"
)


def monai_metadata(
    name: str, version: int, card: ModelCard, weights: WeightsSpec
) -> dict[str, Any]:
    """All of metadata.json, in the form that MONAI's bundle commands check."""
    inputs, outputs = _data_formats(card)
    packages = {"safetensors": importlib.metadata.version("safetensors")}
    return {
        "schema": SCHEMA,
        "version": f"{version}.0.0",
        "changelog": {f"{version}.0.0": "written by caps_med"},
        "monai_version": importlib.metadata.version("monai"),
        "pytorch_version": importlib.metadata.version("torch").split("+")[0],
        "numpy_version": importlib.metadata.version("numpy"),
        "required_packages_version": packages,
        "name": name,
        "task": f"{_dims(card)}-D {card.task} by convolutional capsules",
        "description": card.description or f"{card.network.name} for {card.task}",
        "authors": NOT_STATED,
        "copyright": card.license,
        "data_source": card.provenance.data,
        "intended_use": intended_use(card),
        "network_data_format": {"inputs": {"image": inputs}, "outputs": {"pred": outputs}},
        "caps_med": card.model_dump(mode="json"),
        "weights": weights.model_dump(mode="json"),
    }


def intended_use(card: ModelCard) -> str:
    """What the model takes, as far as it is stated, and what it is not intended for."""
    takes = f"Takes {card.input_description}. " if card.input_description else ""
    return f"{takes}Research only; not a medical device."


def _arguments(card: ModelCard) -> dict[str, Any]:
    """Of the network, or of the members of an ensemble."""
    found: dict[str, Any] = card.network.arguments.get("arguments", card.network.arguments)
    return found


def _dims(card: ModelCard) -> int:
    arguments = _arguments(card)
    if "spatial_dims" in arguments:
        return int(arguments["spatial_dims"])
    return len(arguments.get("image_size") or (0, 0))


def _data_formats(card: ModelCard) -> list[dict[str, Any]]:
    """MONAI's descriptions of the network's inputs and outputs."""
    traits = TASKS[card.task]
    names = card.shown_channels * (2 * card.neighbours + 1)
    return [
        _data_format(card, traits.takes, names),
        _data_format(card, traits.gives, ["image"]),
    ]


def _data_format(card: ModelCard, port: Port, image: Sequence[str]) -> dict[str, Any]:
    """MONAI's description of a port; `image` names the channels of one that is an image."""
    arguments = _arguments(card)
    size = list(arguments.get("image_size") or ["8*n"] * _dims(card))
    pictured = port.format == "magnitude" and port.spatial
    channels = image if pictured else card.labels.values()
    return {
        "type": "image" if port.spatial else port.format,
        "dtype": "float32",
        "is_patch_data": False,
        "format": port.format,
        "modality": "any",
        "num_channels": arguments.get(port.channels, 1),
        "spatial_shape": size if port.spatial else [],
        "value_range": [0, 1],
        "channel_def": {str(i): name for i, name in enumerate(channels)},
    }
