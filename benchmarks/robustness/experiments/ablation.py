"""What of matrix capsules matters: table 1 of Hinton, Sabour & Frosst 2018, on rendered objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks.robustness.cells import Cell, Setting
from benchmarks.robustness.learning import learned, schedule_of, source_of, watch
from benchmarks.robustness.views import NAMES, sample, views_of
from training.tasks.classification.recipe import SMALL_MATRIX_CAPSULES

EXPERIMENT = "ablation"
#: Name of a variant -> recipe values that differ from three iterations, matrix poses, coordinate
#: addition and the spread loss.
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "full": {},
    "iterations1": {"iterations": 1},
    "iterations2": {"iterations": 2},
    "no-coordinates": {"arguments": {"coordinates": False}},
    "margin": {"loss": "margin"},
    "cross-entropy": {"loss": "cross_entropy"},
    "vector-pose": {"arguments": {"pose": "vector"}},
    "iterations5": {"iterations": 5},
}
EPOCHS, TRAINED_ON, TESTED = 14, 8000, 3000


def cells(networks: Sequence[str], seeds: Sequence[int]) -> Iterator[Cell]:
    """One for each seed and variant; `networks` may name variants."""
    for seed in seeds:
        for variant in networks or VARIANTS:
            yield Cell(
                EXPERIMENT, {"variant": variant, "seed": seed}, partial(_measure, variant, seed)
            )


def _measure(variant: str, seed: int, setting: Setting) -> Mapping[str, Any]:
    train, test = views_of(setting)
    train = sample(train, setting.short(TRAINED_ON, 200))
    test = sample(test, setting.short(TESTED, 20))
    changes = VARIANTS[variant]
    found = learned(
        setting.work / f"{EXPERIMENT}-{variant}-{seed}",
        source_of("views", train.pictures, train.classes, NAMES),
        {"test": watch(test.pictures, test.classes, len(NAMES))},
        {
            **schedule_of("matrix", setting.short(EPOCHS, 2)),
            "iterations": 3,
            **changes,
            "arguments": {**SMALL_MATRIX_CAPSULES, **changes.get("arguments", {})},
            "seed": seed,
            "augmentation": {"shift": 2, "brightness": 0.2},
        },
    )
    return {"parameters": found.parameters, "epochs": found.epochs}
