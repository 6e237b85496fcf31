"""Novel viewpoints at equal error on familiar ones, on rendered objects or smallNORB.

Hinton, Sabour & Frosst 2018, section 5.2: trained on a third of the azimuths (300 to 40 degrees) or
on the three lowest of nine elevations, tested on other objects from the viewpoints left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.robustness.cells import Cell, Setting
from benchmarks.robustness.learning import learned, schedule_of, source_of, watch
from benchmarks.robustness.rendering import ELEVATIONS, Views
from benchmarks.robustness.views import NAMES, sample, views_of

EXPERIMENT = "viewpoints"
AZIMUTHS = (300, 320, 340, 0, 20, 40)
PROTOCOLS = ("azimuth", "elevation")
EPOCHS, TESTED = 15, 3000


def cells(networks: Sequence[str], seeds: Sequence[int]) -> Iterator[Cell]:
    """One for each seed, protocol and network."""
    for seed in seeds:
        for protocol in PROTOCOLS:
            for network in networks or ("matrix", "cnn", "capsnet3", "efficient"):
                about = {"protocol": protocol, "network": network, "seed": seed}
                yield Cell(EXPERIMENT, about, partial(_measure, protocol, network, seed))


def familiar(views: Views, protocol: str) -> NDArray[np.bool_]:
    """Which views are from where training looks."""
    if protocol == "azimuth":
        return np.isin(views.azimuths, AZIMUTHS)
    return np.isin(views.elevations, ELEVATIONS[:3])


def _measure(protocol: str, network: str, seed: int, setting: Setting) -> Mapping[str, Any]:
    train, test = views_of(setting)
    train, known = train.of(familiar(train, protocol)), familiar(test, protocol)
    parts = {"familiar": test.of(known), "novel": test.of(~known)}
    tested = {name: sample(part, setting.short(TESTED, 20)) for name, part in parts.items()}
    train = sample(train, setting.short(len(train.classes), 200))
    found = learned(
        setting.work / f"{EXPERIMENT}-{protocol}-{network}-{seed}",
        source_of(f"views-{protocol}", train.pictures, train.classes, NAMES),
        {name: watch(v.pictures, v.classes, len(NAMES)) for name, v in tested.items()},
        {
            **schedule_of(network, setting.short(EPOCHS, 2)),
            "seed": seed,
            "augmentation": {"shift": 2, "brightness": 0.2},
        },
    )
    return {
        "parameters": found.parameters,
        "epochs": found.epochs,
        "trained_on": len(train.classes),
    }
