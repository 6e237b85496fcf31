"""Pictures unlike those trained on: crowded by another class, turned, noisy, hidden in part.

All changes of ``caps-med evaluate --robust`` at all their strengths, on MNIST digits of 28 x 28
pixels; training moves them by up to two pixels and changes nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.robustness import mnist
from benchmarks.robustness.cells import Cell, Setting
from benchmarks.robustness.learning import learned, schedule_of, source_of, watch
from caps_med.networks import ClassificationNetwork
from training.evaluation.robustness.families import FAMILIES
from training.evaluation.robustness.predictions import predicted

EXPERIMENT = "families"
EPOCHS, SHIFT = 12, 2
#: Test digits of each class.
TESTED = 100


def cells(networks: Sequence[str], seeds: Sequence[int]) -> Iterator[Cell]:
    """One for each seed and network."""
    for seed in seeds:
        for network in networks or ("efficient", "cnn"):
            about = {"network": network, "seed": seed}
            yield Cell(EXPERIMENT, about, partial(_measure, network, seed))


def _measure(network: str, seed: int, setting: Setting) -> Mapping[str, Any]:
    train, test = mnist.split(setting.mnist)
    if setting.quick:
        train = train.of(train.few(20, 0))
    test = test.of(test.few(setting.short(TESTED, 2), 0))
    found = learned(
        setting.work / f"{EXPERIMENT}-{network}-{seed}",
        source_of("mnist10k-28", train.pictures, train.labels, mnist.CLASSES),
        {"clean": watch(test.pictures, test.labels, len(mnist.CLASSES))},
        {
            **schedule_of(network, setting.short(EPOCHS, 1)),
            "seed": seed,
            "augmentation": {"shift": SHIFT},
        },
    )
    pictures = torch.from_numpy(test.pictures).to(setting.device).float() / 255
    classes = torch.from_numpy(test.labels).to(setting.device)
    accuracies = {
        name: [
            _accuracy(found.network, family.change(pictures, classes, strength, _draw()), classes)
            for strength in family.strengths
        ]
        for name, family in FAMILIES.items()
    }
    return {"parameters": found.parameters, "epochs": found.epochs, "families": accuracies}


def _draw() -> np.random.Generator:
    """The same for every network and strength."""
    return np.random.default_rng(0)


def _accuracy(network: ClassificationNetwork, pictures: Tensor, classes: Tensor) -> float:
    return (predicted(network, pictures) == classes).float().mean().item()
