"""affNIST-like: trained on digits at random places, tested on affine-transformed ones; attacks.

Sabour et al. 2017, section 5.2: 28 x 28 digits padded by 6 to 40 x 40 and moved by up to 6 pixels.
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
from benchmarks.robustness.learning import NETWORKS, Learned, learned, schedule_of, source_of, watch
from caps_med.networks import ClassificationNetwork
from training.evaluation.robustness.affine import AffineMaps
from training.evaluation.robustness.attacks import (
    BIM,
    FGSM,
    FGSM_TARGETED,
    Attack,
    gradient,
    wanted_classes,
)
from training.evaluation.robustness.predictions import predicted
from training.evaluation.robustness.votes import routes, votes_count_alike

EXPERIMENT = "affine"
MARGIN, SHIFT, EPOCHS = 6, 6, 20
#: Affine maps of each test digit, and angles of the test of unseen rotations.
MAPS, ANGLES = 2, tuple(range(0, 181, 30))
#: Largest changes of a pixel, and how many digits are attacked.
EPSILONS, ATTACKED = (0.02, 0.05, 0.1, 0.2, 0.3), 200
PGD = Attack(steps=20, step=0.125, restarts=2)


def cells(networks: Sequence[str], seeds: Sequence[int]) -> Iterator[Cell]:
    """One for each seed and network."""
    for seed in seeds:
        for network in networks or NETWORKS:
            about = {"network": network, "seed": seed}
            yield Cell(EXPERIMENT, about, partial(_measure, network, seed))


def trained(setting: Setting, network: str, seed: int) -> Learned:
    """The network, from its checkpoint if it was trained before."""
    train, test = mnist.split(setting.mnist)
    if setting.quick:
        train, test = train.of(train.few(20, 0)), test.of(test.few(2, 0))
    train, test = train.padded(MARGIN), test.padded(MARGIN)
    moved = [test.affine(seed=number) for number in range(MAPS)]
    pictures, labels = (np.concatenate(x) for x in zip(*map(_parts, moved), strict=True))
    count = len(mnist.CLASSES)
    return learned(
        setting.work / f"{EXPERIMENT}-{network}-{seed}",
        source_of("mnist10k-40", train.pictures, train.labels, mnist.CLASSES),
        {
            "clean": watch(test.pictures, test.labels, count),
            "affine": watch(pictures, labels, count),
        },
        {
            **schedule_of(network, setting.short(EPOCHS, 2)),
            "seed": seed,
            "augmentation": {"shift": SHIFT},
        },
    )


def _parts(digits: mnist.Digits) -> tuple[mnist.Bytes, mnist.Labels]:
    return digits.pictures, digits.labels


def attacked(setting: Setting) -> tuple[Tensor, Tensor]:
    """The digits that are attacked, ``[N, 1, 40, 40]`` in [0, 1], and their classes."""
    _, test = mnist.split(setting.mnist)
    chosen = test.of(test.few(setting.short(ATTACKED, 20) // len(mnist.CLASSES), 0)).padded(MARGIN)
    pictures = torch.from_numpy(chosen.pictures).to(setting.device).float() / 255
    return pictures, torch.from_numpy(chosen.labels).to(setting.device)


def _measure(network: str, seed: int, setting: Setting) -> Mapping[str, Any]:
    found = trained(setting, network, seed)
    return {
        "parameters": found.parameters,
        "epochs": found.epochs,
        "rotations": _rotations(setting, found),
        "attacks": _attacks(setting, found),
    }


def _rotations(setting: Setting, found: Learned) -> dict[str, float]:
    """Accuracy at angles that no training picture had."""
    _, test = mnist.split(setting.mnist)
    test = (test.of(test.few(2, 0)) if setting.quick else test).padded(MARGIN)
    pictures = torch.from_numpy(test.pictures).to(setting.device).float() / 255
    labels = torch.from_numpy(test.labels).to(setting.device)
    scores = {}
    for angle in ANGLES:
        maps = AffineMaps.rotations(np.full(len(test), float(angle)))
        right = predicted(found.network, maps(pictures)) == labels
        scores[str(angle)] = right.float().mean().item()
    return scores


def _attacks(setting: Setting, found: Learned) -> Mapping[str, Any]:
    """Share of the digits that were right on which each attack succeeds, by ε."""
    network, generator = found.network, torch.Generator().manual_seed(0)
    pictures, classes = attacked(setting)
    right = predicted(network, pictures) == classes
    pictures, classes = pictures[right], classes[right]
    wanted = wanted_classes(classes, len(mnist.CLASSES), generator)
    slopes = torch.cat([
        gradient(network, x, c) for x, c in zip(pictures.split(64), classes.split(64), strict=True)
    ])  # fmt: skip
    attacks = {"fgsm": FGSM, "fgsm-targeted": FGSM_TARGETED, "bim": BIM, "pgd": PGD}
    if routes(network):
        attacks["votes"] = Attack(PGD.steps, PGD.step, PGD.restarts, bypass=votes_count_alike)
    rates = {
        name: _rates(attack, network, pictures, wanted if attack.targeted else classes, generator)
        for name, attack in attacks.items()
    }
    return {
        "epsilons": EPSILONS,
        "right": len(pictures),
        "of": len(right),
        "rates": rates,
        "zero_gradients": (slopes == 0).float().mean().item(),
        "median_gradient": slopes.abs().flatten(1).mean(1).median().item(),
    }


def _rates(
    attack: Attack,
    network: ClassificationNetwork,
    pictures: Tensor,
    goal: Tensor,
    generator: torch.Generator,
) -> list[float]:
    """Success at each ε; with random starts what a smaller change fools is not tried again."""
    fooled = torch.zeros(len(pictures), dtype=torch.bool, device=pictures.device)
    rates = []
    for epsilon in EPSILONS:
        if not attack.restarts:
            fooled = torch.zeros_like(fooled)
        left = (~fooled).nonzero()[:, 0]
        if len(left):
            changed = attack(network, pictures[left], goal[left], epsilon, generator)
            fooled[left] = attack.succeeds(network, changed, goal[left])
        rates.append(round(fooled.float().mean().item(), 4))
    return rates
