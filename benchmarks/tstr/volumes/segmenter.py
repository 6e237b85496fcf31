"""The U-Net that is trained for every cell, with the same steps and batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from monai.losses import DiceCELoss
from monai.networks.nets import BasicUNet
from torch import Tensor

from benchmarks.tstr.volumes.data import Volume, padded
from benchmarks.tstr.volumes.warps import recoloured, warped
from training.evaluation.dice import mean_dice

#: MONAI's BasicUNet in 3-D with half of its channels.
FEATURES = (16, 16, 32, 64, 128, 16)
BATCH, RATE, WARM_UP = 8, 2e-3, 0.05


def train(
    real: Sequence[Volume],
    added: Sequence[Volume],
    edges: Sequence[int],
    classes: int,
    *,
    augmented: bool,
    steps: int,
    seed: int,
    device: torch.device,
) -> torch.nn.Module:
    """The network after the last step; half of each batch is `added`, if there is any."""
    torch.manual_seed(seed)
    generator = torch.Generator(device).manual_seed(seed)
    network: torch.nn.Module = BasicUNet(3, 1, classes, features=FEATURES).to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, RATE, total_steps=steps, pct_start=WARM_UP, cycle_momentum=False
    )
    loss = DiceCELoss(to_onehot_y=True, softmax=True, include_background=False)
    sets = [stacked(each, edges, device) for each in (real, added) if each]
    network.train()
    for _ in range(steps):
        image, label = _batch(sets, generator)
        if augmented:
            image, label = warped(image, label, generator)
            image = recoloured(image, generator)
        with torch.autocast(device.type, torch.bfloat16):
            logits = network(image)
        error = loss(logits.float(), label.float())
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
        schedule.step()
    return network.eval()


def dice_of_each(
    network: torch.nn.Module, tested: Sequence[Volume], edges: Sequence[int], classes: int
) -> list[list[float]]:
    """Dice of each class but the background, case by case, without the padding."""
    device = next(network.parameters()).device
    image, _ = stacked(tested, edges, device)
    found = []
    with torch.inference_mode():
        for one, volume in zip(image.split(1), tested, strict=True):
            answer = network(one).argmax(1)[0].cpu().numpy()
            inside = answer[tuple(slice(0, edge) for edge in volume.label.shape)]
            found.append([mean_dice(inside, volume.label, [k]) for k in range(1, classes)])
    return found


def stacked(
    volumes: Sequence[Volume], edges: Sequence[int], device: torch.device
) -> tuple[Tensor, Tensor]:
    """Images and label maps ``[N, 1, *edges]``."""
    image, label = (
        torch.from_numpy(np.stack([padded(getattr(v, name), edges) for v in volumes])[:, None])
        for name in ("image", "label")
    )
    return image.float().to(device), label.to(device)


def _batch(
    sets: Sequence[tuple[Tensor, Tensor]], generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    parts = []
    for images, labels in sets:
        size = (BATCH // len(sets),)
        chosen = torch.randint(len(images), size, generator=generator, device=images.device)
        parts.append((images[chosen], labels[chosen]))
    image, label = (torch.cat(each) for each in zip(*parts, strict=True))
    return image, label
