"""`transfer` in minutes on one processor core, on scikit-learn's digits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from benchmarks.robustness import small_digits
from benchmarks.robustness.cells import Cell, Setting
from benchmarks.robustness.experiments.ablation_digits import BASE, on_digits, trained
from benchmarks.robustness.experiments.transfer import rates_between
from benchmarks.robustness.learning import NETWORKS
from caps_med.networks import ClassificationNetwork

EXPERIMENT = "transfer_digits"
ATTACKED = 100


def cells(networks: Sequence[str], seeds: Sequence[int]) -> Iterator[Cell]:
    """One for each seed; the matrix capsules are those of `ablation_digits`."""
    chosen = networks or ("efficient", "matrix", "cnn")
    for seed in seeds:
        yield Cell(EXPERIMENT, {"seed": seed}, partial(_measure, chosen, seed))


def _measure(names: Sequence[str], seed: int, setting: Setting) -> Mapping[str, Any]:
    _, test = small_digits.split()
    chosen = test.of(test.few(setting.short(ATTACKED, 20) // len(small_digits.CLASSES), 0))
    pictures = torch.from_numpy(chosen.pictures).to(setting.device).float() / 255
    classes = torch.from_numpy(chosen.labels).to(setting.device)
    networks = {name: _network(setting, name, seed) for name in names}
    return rates_between(networks, pictures, classes)


def _network(setting: Setting, name: str, seed: int) -> ClassificationNetwork:
    if name == "matrix":
        return trained(setting, BASE, seed).network
    return on_digits(setting, f"{EXPERIMENT}-{name}-{seed}", NETWORKS[name], seed).network
