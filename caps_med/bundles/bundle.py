"""One model on disk: a MONAI bundle folder ``<name>/<version>/``."""

from __future__ import annotations

import codecs
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from caps_med.bundles.metadata import BundleMetadata, ModelCard
from caps_med.errors import InvalidBundle
from caps_med.wording import reason

if TYPE_CHECKING:
    from caps_med.networks import CapsuleNetwork

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
            InvalidBundle: it is missing, too large, or does not have the required form.
        """
        path = self.path / "configs" / "metadata.json"
        try:
            if path.stat().st_size > LARGEST_METADATA:
                raise InvalidBundle(f"{self.reference}: metadata.json is over {LARGEST_METADATA} B")
            content = path.read_bytes().removeprefix(codecs.BOM_UTF8)  # as editors on Windows add
            return BundleMetadata.model_validate_json(content)
        except (OSError, json.JSONDecodeError) as error:
            raise InvalidBundle(f"{self.reference}: metadata.json cannot be read") from error
        except ValidationError as error:
            first = error.errors()[0]
            if first["type"] == "missing" and first["loc"] == ("caps_med",):
                raise InvalidBundle(
                    f"{self.reference}: metadata.json has no section caps_med: it is a MONAI "
                    "bundle of another project, whose network MONAI runs, not caps_med"
                ) from error
            place = ".".join(str(part) for part in first["loc"])  # empty for broken JSON
            where = f"metadata.json, {place}" if place else "metadata.json"
            raise InvalidBundle(f"{self.reference}: {where}: {reason(first)}") from error

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
        """The network in evaluation mode, with verified weights.

        No memory is allocated for a network until weights with its shapes are found.

        Raises:
            InvalidBundle: the checksum, the network's arguments, the labels or a tensor does not
                match.
        """
        from caps_med.bundles.loading import load_network

        return load_network(self)

    def verify(self) -> None:
        """Check the weights against the recorded checksum.

        Raises:
            InvalidBundle: they are missing or differ, or the network's arguments are invalid.
        """
        from caps_med.bundles.loading import verify

        verify(self)


def is_candidate(folder: Path) -> bool:
    """Whether the version in this folder waits to be promoted."""
    return (folder / CANDIDATE).exists()
