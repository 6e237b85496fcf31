"""Overlapping digits, decoded one at a time (MultiMNIST).

Sabour et al. 2017, section 6: two digits of different classes, each moved by up to 4 pixels in a 36
x 36 frame, added and clipped at 1. Right is only an answer that names both. Each class capsule
must reconstruct its own digit, for which this module has a training loop of its own.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from benchmarks.robustness import mnist
from benchmarks.robustness.cells import Cell, Setting
from caps_med.losses import MarginLoss
from caps_med.networks import ClassificationNetwork, ConvolutionalClassifier, build_network
from training.engine.precision import has_bfloat16
from training.tasks.classification.recipe import NETWORKS, RECONSTRUCTION

EXPERIMENT = "overlap"
EDGE, SHIFT = 36, 4
STEPS, BATCH, TESTED, SHOWN = 2500, 128, 5000, 10
#: Networks of the table -> recipe's name, arguments, learning rate.
SPECS: Mapping[str, tuple[str, Mapping[str, Any], float]] = {
    "efficient": ("efficient", {"decoder": True}, 4e-3),
    "capsnet3": ("capsnet", {"iterations": 3, "decoder": True}, 1e-3),
    "capsnet1": ("capsnet", {"iterations": 1, "decoder": True}, 1e-3),
    "cnn": ("cnn", {"activation": "sigmoid"}, 2e-3),
}
#: Share of the steps during which the learning rate rises.
_WARM_UP = 0.05


def cells(networks: Sequence[str], seeds: Sequence[int]) -> Iterator[Cell]:
    """One for each seed and network."""
    for seed in seeds:
        for network in [name for name in networks or SPECS if name in SPECS]:
            yield Cell(
                EXPERIMENT, {"network": network, "seed": seed}, partial(_measure, network, seed)
            )


class Pairs:
    """Pairs of digits on a device.

    Args:
        digits: that pairs are drawn from.
        device: of the tensors.
        seed: of the draws.
    """

    def __init__(self, digits: mnist.Digits, device: torch.device, seed: int) -> None:
        self.pictures = torch.from_numpy(digits.pictures).to(device).float() / 255
        self.labels = torch.from_numpy(digits.labels).to(device)
        self.draw = np.random.default_rng(seed)

    def batch(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """Pictures ``[B, 1, E, E]``, the two digits alone ``[B, 2, E, E]``, classes ``[B, 2]``."""
        first = self.draw.integers(0, len(self.labels), count)
        second = self._others(first)
        both = torch.from_numpy(np.stack([first, second], 1)).to(self.labels.device)
        classes = self.labels[both]
        alone = torch.stack([self._placed(both[:, k]) for k in (0, 1)], 1)
        return alone.sum(1, keepdim=True).clamp(max=1), alone, classes

    def _others(self, first: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """For each digit one of another class."""
        labels = self.labels.cpu().numpy()
        found = self.draw.integers(0, len(labels), len(first))
        while (same := labels[found] == labels[first]).any():
            found[same] = self.draw.integers(0, len(labels), int(same.sum()))
        return found

    def _placed(self, which: Tensor) -> Tensor:
        """Digits ``[B, E, E]`` at random places."""
        room = EDGE - self.pictures.shape[-1]
        offsets = torch.from_numpy(self.draw.integers(0, room + 1, (2, len(which)))).to(
            which.device
        )
        edge = torch.arange(EDGE, device=which.device)
        rows, columns = edge - offsets[0, :, None], edge - offsets[1, :, None]  # [B, E]
        inside = [(x >= 0) & (x < self.pictures.shape[-1]) for x in (rows, columns)]
        last = self.pictures.shape[-1] - 1
        at = rows.clamp(0, last)[:, :, None], columns.clamp(0, last)[:, None]
        picked = self.pictures[which[:, None, None], 0, at[0], at[1]]
        return picked * (inside[0][:, :, None] & inside[1][:, None])


def loss_of(
    network: ClassificationNetwork, picture: Tensor, alone: Tensor, classes: Tensor
) -> Tensor:
    """Margin loss of both classes and, with a decoder, each class' own reconstruction."""
    target = torch.zeros(len(picture), network.out_channels, device=picture.device)
    target.scatter_(1, classes, 1)
    with torch.autocast(picture.device.type, torch.bfloat16, enabled=has_bfloat16(picture.device)):
        if isinstance(network, ConvolutionalClassifier):
            return F.binary_cross_entropy_with_logits(network.logits(picture).float(), target)
        scores, capsules = network.classify(picture)
        loss: Tensor = MarginLoss(sum_classes=True)(scores.float(), target)
        for k in (0, 1):
            one = F.one_hot(classes[:, k], network.out_channels)
            drawn = network.reconstruct(capsules, one).float()
            loss = loss + RECONSTRUCTION * F.mse_loss(drawn, alone[:, k : k + 1])
    return loss


def both_named(network: ClassificationNetwork, pairs: Pairs, count: int) -> float:
    """Share of pairs whose two highest scores are those of their classes."""
    right = 0
    with torch.inference_mode():
        for start in range(0, count, BATCH):
            picture, _, classes = pairs.batch(min(BATCH, count - start))
            scores, _ = network.classify_together(picture)
            named = scores.topk(2).indices.sort(1).values
            right += int((named == classes.sort(1).values).all(1).sum())
    return right / count


def _measure(network: str, seed: int, setting: Setting) -> Mapping[str, Any]:
    train, test = mnist.split(setting.mnist)
    name, arguments, rate = SPECS[network]
    size = {"in_channels": 1, "out_channels": len(mnist.CLASSES), "image_size": [EDGE, EDGE]}
    torch.manual_seed(seed)
    built = build_network(NETWORKS[name], {**size, **arguments}).to(setting.device)
    assert isinstance(built, ClassificationNetwork)  # noqa: S101 - of this list
    steps = setting.short(STEPS, 3)
    _train(built, Pairs(train, setting.device, seed), steps, rate)
    tested = Pairs(test, setting.device, 0)
    found = {"accuracy": both_named(built, tested, setting.short(TESTED, 20)), "steps": steps}
    if built.reconstructs:
        found |= _decoded(built, Pairs(test, setting.device, 1))
    return {"parameters": _parameters(built), **found}


def _train(network: ClassificationNetwork, pairs: Pairs, steps: int, rate: float) -> None:
    """AdamW with warm-up and cosine decay, as in the public training code."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, rate, total_steps=steps + 1, pct_start=_WARM_UP, cycle_momentum=False
    )
    network.train()
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(network, *pairs.batch(BATCH)).backward()
        optimizer.step()
        schedule.step()
    network.eval()


def _decoded(network: ClassificationNetwork, pairs: Pairs) -> Mapping[str, Any]:
    """Error of single reconstructions, and a picture: inputs, then each digit and its own."""
    picture, alone, classes = pairs.batch(SHOWN)
    with torch.inference_mode():
        _, capsules = network.classify_together(picture)
        drawn = [
            network.reconstruct(capsules, F.one_hot(classes[:, k], network.out_channels))[:, 0]
            for k in (0, 1)
        ]
    error = torch.stack([F.mse_loss(drawn[k], alone[:, k]) for k in (0, 1)]).mean().item()
    rows = torch.stack([picture[:, 0], alone[:, 0], drawn[0], alone[:, 1], drawn[1]])
    sheet = rows.permute(0, 2, 1, 3).reshape(5 * EDGE, -1).mul(255).byte().cpu().numpy()
    stream = io.BytesIO()
    Image.fromarray(sheet).save(stream, "png", optimize=True)
    return {
        "reconstruction_mse": error,
        "pairs": classes.tolist(),
        "sheet_png": base64.b64encode(stream.getvalue()).decode(),
    }


def _parameters(network: ClassificationNetwork) -> int:
    drawn = sum(p.numel() for p in network.decoder.parameters()) if network.decoder else 0
    return sum(p.numel() for p in network.parameters()) - drawn
