"""One model on disk: a MONAI bundle folder ``<name>/<version>/``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import Tensor

from caps_med.bundles.metadata import BundleMetadata, ModelCard
from caps_med.bundles.weights import fill, parse_weights, read_weights
from caps_med.errors import InvalidBundle, InvalidParameter
from caps_med.networks import (
    CapsuleNetwork,
    ClassificationNetwork,
    SegmentationNetwork,
    SynthesisNetwork,
    build_network,
)
from caps_med.networks.shapes import shapes_only

#: metadata.json above this is no metadata.
LARGEST_METADATA = 2**20

#: An empty file that marks a version as a candidate: it answers as ``name@3``, but the bare name
#: does not stand for it until it is promoted.
CANDIDATE = "CANDIDATE"


@dataclass(frozen=True)
class Bundle:
    """A model's folder. Its configs are never evaluated: the network comes from the registry."""

    name: str
    version: int
    path: Path

    @property
    def reference(self) -> str:
        """``name@version``."""
        return f"{self.name}@{self.version}"

    @cached_property
    def metadata(self) -> BundleMetadata:
        """The parsed ``configs/metadata.json``.

        Raises:
            InvalidBundle: it is missing, too large, or not of the form needed here.
        """
        path = self.path / "configs" / "metadata.json"
        try:
            if path.stat().st_size > LARGEST_METADATA:
                raise InvalidBundle(f"{self.reference}: metadata.json is over {LARGEST_METADATA} B")
            return BundleMetadata.model_validate_json(path.read_bytes())
        except (OSError, json.JSONDecodeError) as error:
            raise InvalidBundle(f"{self.reference}: metadata.json cannot be read") from error
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise InvalidBundle(
                f"{self.reference}: metadata.json, {where}: {first['msg']}"
            ) from error

    @property
    def card(self) -> ModelCard:
        """The section of the metadata that inference needs."""
        return self.metadata.caps_med

    def as_dict(self) -> dict[str, Any]:
        """Name, version, checksum and model card, for JSON."""
        return {
            "name": self.name,
            "version": self.version,
            "weights_sha256": self.metadata.weights.sha256,
            **self.card.model_dump(mode="json"),
        }

    @property
    def weights(self) -> Path:
        """The file of the weights."""
        return self.path / self.metadata.weights.file

    def load_network(self) -> CapsuleNetwork:
        """The network in evaluation mode, its weights verified.

        No memory is taken for a network before there are weights of its shapes.

        Raises:
            InvalidBundle: the checksum, the network's arguments, the labels or a tensor does not
                match.
        """
        with shapes_only():
            needed = self._network().state_dict()
        state = parse_weights(self._verified(needed), self.weights.name, needed)
        network = self._network()
        fill(network, state)
        return network.eval()

    def verify(self) -> None:
        """Check the weights against the recorded checksum.

        Raises:
            InvalidBundle: they are missing or differ, or the network's arguments are not valid.
        """
        with shapes_only():
            needed = self._network().state_dict()
        self._verified(needed)

    def _network(self) -> CapsuleNetwork:
        """The network with random weights."""
        spec = self.card.network
        try:
            network = build_network(spec.name, spec.arguments)
        except InvalidParameter as error:
            raise InvalidBundle(f"{self.reference}: {error}") from error
        problem = labels_problem(self.card, network) or channels_problem(self.card, network)
        if problem:
            raise InvalidBundle(f"{self.reference}: {problem}")
        return network

    def _verified(self, needed: Mapping[str, Tensor]) -> bytes:
        """The content of the weights' file, which has the recorded checksum."""
        if not self.weights.is_file():
            raise InvalidBundle(f"{self.reference}: {self.metadata.weights.file} is missing")
        content = read_weights(self.weights, needed)
        found = hashlib.sha256(content).hexdigest()
        if found != self.metadata.weights.sha256:
            raise InvalidBundle(
                f"{self.reference}: the weights have sha256 {found}, the metadata say "
                f"{self.metadata.weights.sha256}: the file was changed or damaged; fetch it again"
            )
        return content


def is_candidate(folder: Path) -> bool:
    """Whether the version in this folder waits to be promoted."""
    return (folder / CANDIDATE).exists()


def labels_problem(card: ModelCard, network: CapsuleNetwork) -> str:
    """How the card's labels differ from the network's classes; empty if they do not."""
    if isinstance(network, ClassificationNetwork):
        wanted, counted = network.out_channels, ""
    elif isinstance(network, SegmentationNetwork):
        wanted, counted = max(2, network.out_channels), ", background included"
    elif isinstance(network, SynthesisNetwork):
        wanted, counted = max(2, network.label_channels), ", background included"
    else:
        return ""
    if len(card.labels) == wanted:
        return ""
    return f"{len(card.labels)} labels, the network has {wanted} classes{counted}"


def channels_problem(card: ModelCard, network: CapsuleNetwork) -> str:
    """How the card's names of channels differ from the network's input; empty if they do not."""
    if not card.channel_names or not isinstance(network, SegmentationNetwork):
        return ""
    wanted = network.in_channels // (2 * card.neighbours + 1)
    if len(card.channel_names) == wanted:
        return ""
    return f"{len(card.channel_names)} names of channels, the network takes {wanted}"
