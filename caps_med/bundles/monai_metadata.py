"""``configs/metadata.json`` in the form that MONAI's bundle commands check."""

from __future__ import annotations

import importlib.metadata
import math
from collections.abc import Sequence
from typing import Any

from caps_med.bundles.metadata import NOT_STATED, ModelCard, WeightsSpec
from caps_med.bundles.tasks import TASKS, Port
from caps_med.networks import CapsuleNetwork

#: MONAI's schema of metadata.json; its tools check against it when given the file.
SCHEMA = (
    "https://github.com/Project-MONAI/MONAI-extra-test-data/releases/download/0.8.1/"
    "meta_schema_20240725.json"
)
#: Of which sizes are multiples, also of networks that take any.
_MULTIPLE = 8


def monai_metadata(
    name: str, version: int, card: ModelCard, weights: WeightsSpec, network: CapsuleNetwork
) -> dict[str, Any]:
    """All of metadata.json, in the form that MONAI's bundle commands check."""
    inputs, outputs = _data_formats(card, network)
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
        "task": f"{network.spatial_dims}-D {card.task} by convolutional capsules",
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
    """The model's input, as far as stated, and what it is not intended for."""
    takes = f"Takes {card.input_description}. " if card.input_description else ""
    return f"{takes}Research only; not a medical device."


def _data_formats(card: ModelCard, network: CapsuleNetwork) -> list[dict[str, Any]]:
    """MONAI's descriptions of the network's inputs and outputs."""
    traits = TASKS[card.task]
    names = card.shown_channels * (2 * card.neighbours + 1)
    return [
        _data_format(card, network, traits.takes, names),
        _data_format(card, network, traits.gives, ["image"]),
    ]


def _data_format(
    card: ModelCard, network: CapsuleNetwork, port: Port, image: Sequence[str]
) -> dict[str, Any]:
    """MONAI's description of a port; `image` names the channels of one that is an image."""
    least = math.lcm(_MULTIPLE, network.divisor * (2 if network.normalizes_coarsest else 1))
    any_size = [f"{least}*n"] * network.spatial_dims
    count = getattr(network, port.channels, card.network.arguments.get(port.channels, 1))
    size = list(getattr(network, "image_size", None) or any_size)
    pictured = port.format == "magnitude" and port.spatial
    channels = image if pictured else [*card.labels.values()][-count:]  # the foreground if binary
    return {
        "type": "image" if port.spatial else port.format,
        "dtype": "float32",
        "is_patch_data": False,
        "format": port.format,
        "modality": "any",
        "num_channels": count,
        "spatial_shape": size if port.spatial else [],
        "value_range": [0, 1],
        "channel_def": {str(i): name for i, name in enumerate(channels)},
    }
