"""`ablation` in minutes on one processor core: tiny matrix capsules, scikit-learn's digits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks.robustness import small_digits
from benchmarks.robustness.cells import Cell, Setting
from benchmarks.robustness.experiments.ablation import VARIANTS
from benchmarks.robustness.learning import Learned, learned, source_of, watch

EXPERIMENT = "ablation_digits"
EPOCHS, BATCH = 15, 32
#: Of the network: a fiftieth of the multiplications of the small published one.
TINY = {"width": 32, "types": [4, 8, 8]}


def cells(networks: Sequence[str], seeds: Sequence[int]) -> Iterator[Cell]:
    """One for each seed and variant; `networks` may name variants."""
    for seed in seeds:
        for variant in networks or VARIANTS:
            yield Cell(
                EXPERIMENT, {"variant": variant, "seed": seed}, partial(_measure, variant, seed)
            )


def trained(setting: Setting, variant: str, seed: int) -> Learned:
    """The network, from its checkpoint if it was trained before."""
    changes = VARIANTS[variant]
    values = {
        "network": "matrix",
        "iterations": 3,
        **changes,
        "arguments": {**TINY, **changes.get("arguments", {})},
    }
    return on_digits(setting, f"{EXPERIMENT}-{variant}-{seed}", values, seed)


def on_digits(setting: Setting, folder: str, values: Mapping[str, Any], seed: int) -> Learned:
    """A network trained on the digits, whose accuracy on the others is watched."""
    train, test = small_digits.split()
    if setting.quick:
        train, test = train.of(train.few(10, 0)), test.of(test.few(2, 0))
    return learned(
        setting.work / folder,
        source_of("digits-8", train.pictures, train.labels, small_digits.CLASSES),
        {"test": watch(test.pictures, test.labels, len(small_digits.CLASSES))},
        {
            "batch_size": BATCH,
            "epochs": setting.short(EPOCHS, 2),
            **values,
            "seed": seed,
            "augmentation": {"shift": 1},
        },
    )


def _measure(variant: str, seed: int, setting: Setting) -> Mapping[str, Any]:
    found = trained(setting, variant, seed)
    return {"parameters": found.parameters, "epochs": found.epochs}
