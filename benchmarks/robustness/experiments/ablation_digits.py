"""`ablation` in minutes on one processor core: tiny matrix capsules, scikit-learn's digits.

Variants differ from two iterations, not three, for with three hardly anything is learned in so few
steps (``docs/results/classification.md``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks.robustness import small_digits
from benchmarks.robustness.cells import Cell, Setting
from benchmarks.robustness.learning import Learned, learned, source_of, watch

EXPERIMENT = "ablation_digits"
BASE = "iterations2"
#: Name of a variant -> recipe values that differ from two iterations, matrix poses, coordinate
#: addition and the spread loss.
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    BASE: {},
    "iterations1": {"iterations": 1},
    "iterations3": {"iterations": 3},
    "iterations5": {"iterations": 5},
    "vector-pose": {"arguments": {"pose": "vector"}},
    "no-coordinates": {"arguments": {"coordinates": False}},
    "margin": {"loss": "margin"},
    "cross-entropy": {"loss": "cross_entropy"},
}
EPOCHS, BATCH, RATE = 15, 32, 1e-2
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
        "learning_rate": RATE,
        "iterations": 2,
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
