"""Few labels: 1, 5, 25 and 100 digits of each class; the same number of steps for all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks.robustness import mnist
from benchmarks.robustness.cells import Cell, Setting
from benchmarks.robustness.learning import NETWORKS, learned, source_of, watch

EXPERIMENT = "few_labels"
COUNTS = (1, 5, 25, 100)
EPOCHS, STEPS = 8, 60


def cells(networks: Sequence[str], seeds: Sequence[int]) -> Iterator[Cell]:
    """One for each seed, number and network; each seed draws other digits."""
    for seed in seeds:
        for count in COUNTS:
            for network in networks or ("efficient", "cnn", "capsnet3", "matrix"):
                about = {"per_class": count, "network": network, "seed": seed}
                yield Cell(EXPERIMENT, about, partial(_measure, count, network, seed))


def _measure(count: int, network: str, seed: int, setting: Setting) -> Mapping[str, Any]:
    train, test = mnist.split(setting.mnist)
    if setting.quick:
        test = test.of(test.few(2, 0))
    few, rest = train.of(train.few(count, seed)), train.of(train.few(20, seed + 1))
    found = learned(
        setting.work / f"{EXPERIMENT}-{count}-{network}-{seed}",
        source_of(
            "mnist10k-few", few.pictures, few.labels, mnist.CLASSES, (rest.pictures, rest.labels)
        ),
        {"test": watch(test.pictures, test.labels, len(mnist.CLASSES))},
        {
            **NETWORKS[network],
            "batch_size": 64,
            "seed": seed,
            "epochs": setting.short(EPOCHS, 1),
            "steps": setting.short(STEPS, 2),
        },
    )
    return {"parameters": found.parameters, "epochs": found.epochs}
