"""The result of an importer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from caps_med.bundles.shapes import Shape
from caps_med.networks import CapsuleNetwork


@dataclass(frozen=True)
class Imported:
    """An upstream model as a network of this library.

    Attributes:
        network: with the file's weights, in eval mode.
        name: of the network in the registry.
        arguments: the arguments that build it.
        file: name of the upstream file.
        sha256: of that file.
        unused: tensors of the file that the forward pass never uses, name -> shape.
        warnings: what is not stored in the file and should be checked by the user.
    """

    network: CapsuleNetwork
    name: str
    arguments: Mapping[str, Any]
    file: str
    sha256: str
    unused: Mapping[str, Shape] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
