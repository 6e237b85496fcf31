"""The closed list of networks that a bundle may name; nothing else is ever built from a file.

Installed packages add networks of their own through the entry-point group ``caps_med.networks``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from caps_med.networks.base import CapsuleNetwork
from caps_med.networks.ensemble import ClassificationEnsemble, Ensemble
from caps_med.networks.single import SINGLE_NETWORKS, build_from
from caps_med.registries import Registry

NETWORKS: Registry[type[CapsuleNetwork]] = Registry(
    SINGLE_NETWORKS.group,
    {
        **SINGLE_NETWORKS.builtin,
        "Ensemble": Ensemble,
        "ClassificationEnsemble": ClassificationEnsemble,
    },
)


def build_network(name: str, arguments: Mapping[str, Any]) -> CapsuleNetwork:
    """Build a network of the closed registry from untrusted arguments.

    Raises:
        InvalidParameter: an unknown name, an unknown argument, or a value of the wrong type or
            out of range.
    """
    return build_from(NETWORKS, name, arguments)
