"""One cell: a network trained on some cases and scored on others."""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.segmentation import hippocampus
from benchmarks.segmentation.batch_augmentation import (
    BatchAugmentation,
    ContrastShift,
    DeviceSamples,
)
from benchmarks.segmentation.shifts import SHIFTS, shifted
from caps_med.networks import SegCaps, SegmentationNetwork, UCaps, one_hot, predicted_classes
from caps_med.networks.padding import cropped, padded
from training.atomic import write_text
from training.data import Sample
from training.engine.collapse import RESTARTS, Collapsed, CollapseWatch, until_it_finds
from training.engine.initial import initial_network
from training.engine.loop import schedule
from training.engine.precision import computed_in, has_bfloat16
from training.tasks.segmentation import SegmentationRecipe, loss_of, takes_mask
from training.transforms import Augmentation

CROP = (32, 48, 32)
FOREGROUND = 0.5
#: Volumes of one size that are segmented at once.
TOGETHER = 8

#: Augmentation and further shifts by name: crops alone; the usual; all that is tested.
LEVELS: Mapping[str, tuple[Augmentation | None, ContrastShift]] = {
    "none": (None, ContrastShift()),
    "usual": (Augmentation(), ContrastShift()),
    "wide": (
        Augmentation(
            rotation=math.pi, zoom=0.25, field=0.3, contrast=0.9, brightness=0.3, blur=1.5,
            noise=0.2,
        ),
        ContrastShift(inverted=0.5, coarse=3.0),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """What is trained and scored.

    Attributes:
        network: as in a recipe.
        fold: of four.
        count: training cases; None for all.
        seed: of weights, crops, and which cases are drawn.
        level: of augmentation, a key of `LEVELS`.
        steps: optimizer steps.
        batch: crops in each.
        rate: peak learning rate; None for the network's default.
        capsule_weight: of the margin loss of class capsules; None for the default.
        choosing: score 20 cases of the training part, and train on the others.
        shifts: score all out-of-domain tests as well.
    """

    network: str
    fold: int = 0
    count: int | None = None
    seed: int = 0
    level: str = "usual"
    steps: int = 1000
    batch: int = 4
    rate: float | None = None
    capsule_weight: float | None = None
    choosing: bool = False
    shifts: bool = False

    @property
    def name(self) -> str:
        """For the file of its result."""
        parts = [
            self.network, f"fold{self.fold}", f"n{self.count or 'all'}", f"seed{self.seed}",
            self.level, f"{self.steps}x{self.batch}",
            *([f"rate{self.rate:g}"] if self.rate else []),
            *([] if self.capsule_weight is None else [f"capsules{self.capsule_weight:g}"]),
            *(["choosing"] if self.choosing else []),
        ]  # fmt: skip
        return "-".join(parts)


@dataclass(frozen=True)
class Fitted:
    """A trained network and how it came about."""

    network: SegmentationNetwork
    losses: list[float]
    step_ms: float
    restarts: int


def run(
    cell: Cell, data: Mapping[str, Sample], device: torch.device
) -> tuple[dict[str, Any], SegmentationNetwork]:
    """Train and score: the result as it is written, and the network."""
    began = time.perf_counter()
    chosen = hippocampus.split(list(data), cell.fold, cell.count, cell.seed, cell.choosing)
    fitted = fit(cell, [data[name] for name in chosen.training], device)
    names = tuple(SHIFTS) if cell.shifts else ("as it is",)
    dice = score(fitted.network, {name: data[name] for name in chosen.scored}, names, device)
    return {
        **asdict(cell),
        "device": device_name(device),
        "parameters": sum(p.numel() for p in fitted.network.parameters()),
        "training_cases": len(chosen.training),
        "memory_mib": torch.cuda.max_memory_allocated() >> 20 if device.type == "cuda" else None,
        "seconds": round(time.perf_counter() - began, 1),
        "step_ms": round(fitted.step_ms, 2),
        "restarts": fitted.restarts,
        "losses": fitted.losses,
        "cases": chosen.scored,
        "dice": dice,
    }, fitted.network


def fit(cell: Cell, samples: Sequence[Sample], device: torch.device) -> Fitted:
    """Train; a network that answers nothing but background is started again with another seed."""
    on_device = DeviceSamples(samples, device)
    return until_it_finds(lambda restarts: _attempt(cell, samples, on_device, device, restarts))


def _attempt(
    cell: Cell, samples: Sequence[Sample], data: DeviceSamples, device: torch.device, restarts: int
) -> Fitted:
    """One training by the parts of the public one."""
    recipe = recipe_of(cell, restarts)
    source = hippocampus.source(list(samples))
    network = initial_network(recipe, source, None).train()
    assert isinstance(network, SegmentationNetwork)  # noqa: S101 - of this recipe
    optimizer = torch.optim.Adam(network.parameters(), lr=recipe.rate, fused=device.type == "cuda")
    rates, watch = schedule(optimizer, recipe), CollapseWatch(cell.steps)
    masked, loss_function = takes_mask(network), loss_of(recipe, network)
    level, shift = LEVELS[cell.level]
    augmentation, rng = (
        BatchAugmentation(CROP, level, FOREGROUND, shift),
        np.random.default_rng([recipe.seed, 5]),
    )
    losses, loss, began = [], torch.zeros(()), time.perf_counter()
    torch.manual_seed(recipe.seed)
    torch.backends.cudnn.benchmark = True
    for step in range(1, cell.steps + 1):
        if step == min(10, cell.steps):  # the first ones compile and search for algorithms
            synchronize(device)
            began = time.perf_counter()
        image, label = augmentation.draw(data, cell.batch, rng)
        target = one_hot(label, len(hippocampus.LABELS))
        with precision(network, device):
            answer = network(image, target) if masked else network(image)
        loss = loss_function(_as_float(answer), (target, image))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        rates.step()
        lengths = answer if isinstance(answer, Tensor) else answer[0]
        if watch.collapsed(step, lengths, target) and restarts < RESTARTS:
            raise Collapsed
        if step % max(1, cell.steps // 20) == 0:
            losses.append(round(loss.item(), 4))
            if not math.isfinite(losses[-1]):
                raise RuntimeError(f"{cell.name}: the loss is {losses[-1]} in step {step}")
    synchronize(device)
    milliseconds = 1000 * (time.perf_counter() - began) / max(1, cell.steps - 9)
    return Fitted(network.eval(), losses, milliseconds, restarts)


def recipe_of(cell: Cell, restarts: int = 0) -> SegmentationRecipe:
    """The recipe of a public training with these settings."""
    return SegmentationRecipe.model_validate(
        {
            "data": "hippocampus", "network": cell.network, "seed": cell.seed, "epochs": 1,
            "steps": cell.steps, "batch_size": cell.batch, "crop": 48, "learning_rate": cell.rate,
            "restarts": restarts,
            **({} if cell.capsule_weight is None else {"capsule_weight": cell.capsule_weight}),
        }
    ).started()  # fmt: skip


def score(
    network: SegmentationNetwork,
    data: Mapping[str, Sample],
    names: tuple[str, ...],
    device: torch.device,
) -> dict[str, list[list[float | None]]]:
    """Test -> Dice of anterior and posterior part, of each case; None where a case has no such."""
    torch.backends.cudnn.benchmark = False
    pending: dict[tuple[str, torch.Size], list[tuple[int, Tensor, Tensor]]] = defaultdict(list)
    found: dict[str, list[Any]] = {name: [None] * len(data) for name in names}
    for case, sample in enumerate(data.values()):
        image = torch.as_tensor(np.asarray(sample["image"]), device=device)[None]
        label = torch.as_tensor(np.asarray(sample["label"], np.float32), device=device)[None]
        for name, changed, truth in shifted(image, label, case, names):
            full = padded(network, changed)
            pending[name, full.shape].append((case, full, truth))
    for (name, _), items in pending.items():
        for start in range(0, len(items), TOGETHER):
            some = items[start : start + TOGETHER]
            with torch.inference_mode(), precision(network, device):
                answers = predicted_classes(network(torch.cat([image for _, image, _ in some])))
            for (case, _, truth), answer in zip(some, answers, strict=True):
                own = cropped(answer[None], truth.shape[2:])
                found[name][case] = dice(own, truth)
    return found


def dice(answer: Tensor, truth: Tensor) -> list[float | None]:
    """Of each class but the background; None if the truth has none."""
    scores: list[float | None] = []
    for label in list(hippocampus.LABELS)[1:]:
        a, b = answer == label, truth == label
        overlap, total, there = (
            int(x) for x in torch.stack([(a & b).sum(), a.sum() + b.sum(), b.sum()])
        )
        scores.append(round(2 * overlap / total, 4) if there else None)
    return scores


def precision(network: SegmentationNetwork, device: torch.device) -> AbstractContextManager[Any]:
    """bfloat16 where the device has it, but for deep capsules, which multiply its rounding."""
    if isinstance(network, (SegCaps, UCaps)) or not has_bfloat16(device):
        return nullcontext()
    return computed_in("bfloat16", device)


def _as_float(answer: Tensor | tuple[Tensor, Tensor]) -> Tensor | tuple[Tensor, Tensor]:
    return answer.float() if isinstance(answer, Tensor) else (answer[0].float(), answer[1].float())


def synchronize(device: torch.device) -> None:
    """Wait for the GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def device_name(device: torch.device) -> str:
    """As results name it."""
    return torch.cuda.get_device_name() if device.type == "cuda" else "CPU"


def write(file: Path, result: Mapping[str, Any]) -> None:
    """All or nothing."""
    write_text(file, json.dumps(result) + "\n")


def finished(cell: Cell, file: Path) -> bool:
    """Whether a file has the result of a cell, with the out-of-domain tests if it wants them."""
    return file.exists() and bool(json.loads(file.read_text())["shifts"] >= cell.shifts)
