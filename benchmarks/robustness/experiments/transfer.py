"""Black box: adversarial digits made for one network and shown to the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.robustness.cells import Cell, Setting
from benchmarks.robustness.experiments import affine
from benchmarks.robustness.learning import NETWORKS
from caps_med.networks import ClassificationNetwork
from training.evaluation.robustness.predictions import predicted

EXPERIMENT = "transfer"
EPSILONS = (0.1, 0.2, 0.3)


def cells(networks: Sequence[str], seeds: Sequence[int]) -> Iterator[Cell]:
    """One for each seed: all networks of `affine` against one another."""
    for seed in seeds:
        yield Cell(EXPERIMENT, {"seed": seed}, partial(_measure, networks or list(NETWORKS), seed))


def _measure(names: Sequence[str], seed: int, setting: Setting) -> Mapping[str, Any]:
    """Share of the digits right on both networks that the one's attack turns for the other."""
    networks = {name: affine.trained(setting, name, seed).network for name in names}
    return rates_between(networks, *affine.attacked(setting))


def rates_between(
    networks: Mapping[str, ClassificationNetwork], pictures: Tensor, classes: Tensor
) -> Mapping[str, Any]:
    """The same of any networks, pictures ``[N, C, H, W]`` in [0, 1] and classes ``[N]``."""
    right = {name: predicted(network, pictures) == classes for name, network in networks.items()}
    rates: dict[str, dict[str, list[float | None]]] = {name: {} for name in networks}
    for source, network in networks.items():
        for epsilon in EPSILONS:
            generator = torch.Generator().manual_seed(0)
            changed = affine.PGD(network, pictures, classes, epsilon, generator)
            for target, other in networks.items():
                both = right[source] & right[target]
                fooled = (predicted(other, changed) != classes)[both]
                rate = round(fooled.float().mean().item(), 4) if len(fooled) else None
                rates[source].setdefault(target, []).append(rate)
    return {"epsilons": EPSILONS, "rates": rates}
