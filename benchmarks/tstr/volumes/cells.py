"""One cell of the table: labelled volumes, seed, and what is learned from; a JSON file each."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict

from benchmarks.tstr.volumes.data import Pool, Split, Volume
from benchmarks.tstr.volumes.generators import synthesized, trained
from benchmarks.tstr.volumes.randomized import randomized
from benchmarks.tstr.volumes.segmenter import dice_of_each, train
from training.atomic import write_text

#: Volumes drawn from the label maps, `benchmarks.tstr.volumes.randomized`.
RANDOMIZED = "randomization"


@dataclass(frozen=True)
class Arm:
    """What a network learns from.

    Attributes:
        title: in the table.
        augmented: whether batches are warped and recoloured (classical augmentation).
        generator: whose volumes are added; `RANDOMIZED` is one that is not trained.
        real: whether real volumes are learned from, or added ones alone.
        further: whether as many further real volumes are added instead: the most that synthetic
            ones could be worth.
    """

    title: str
    augmented: bool = True
    generator: str | None = None
    real: bool = True
    further: bool = False


ARMS: Mapping[str, Arm] = {
    "augmented": Arm("real, classical augmentation"),
    "caps": Arm("the same + CapsPix2Pix", generator="capspix2pix"),
    "caps-3d": Arm("the same + CapsPix2Pix in 3-D", generator="capspix2pix-3d"),
    "pix2pix": Arm("the same + pix2pix", generator="pix2pix"),
    "spade": Arm("the same + SPADE", generator="spade"),
    "randomized": Arm("the same + domain randomization", generator=RANDOMIZED),
    "further": Arm("the same + further real volumes", further=True),
    "real": Arm("real, no augmentation", augmented=False),
    "caps-plain": Arm("real + CapsPix2Pix, no augmentation", False, "capspix2pix"),
    "pix2pix-plain": Arm("real + pix2pix, no augmentation", False, "pix2pix"),
    "spade-plain": Arm("real + SPADE, no augmentation", False, "spade"),
    "caps-alone": Arm("CapsPix2Pix alone", generator="capspix2pix", real=False),
}


class Cell(BaseModel):
    """What one network scored.

    Attributes:
        volumes: labelled ones that were learned from.
        dice: of each tested volume and each class but the background.
        seconds: of the network's training; of its generator's, if it was trained for this cell.
        device: the GPU's name, or the CPU.
    """

    model_config = ConfigDict(frozen=True)

    arm: str
    volumes: int
    seed: int
    dice: list[list[float]]
    steps: int
    generator_steps: int
    seconds: dict[str, float]
    device: str

    @property
    def mean(self) -> float:
        """Over volumes and classes."""
        return float(np.mean(self.dice))


@dataclass
class Settings:
    """Of all cells.

    Attributes:
        steps, generator_steps: of each network and generator.
        added: synthetic, or further real, volumes that an arm adds to the labelled ones.
        work, out: where models and results lie.
    """

    steps: int
    generator_steps: int
    added: int
    work: Path
    out: Path
    device: torch.device


def run_cells(
    pool: Pool, count: int, seed: int, arms: Sequence[str], settings: Settings
) -> list[Cell]:
    """The cells of one number of volumes and one seed, those on disk read.

    Raises:
        SystemExit: those on disk, or the generators, were trained with other numbers of steps.
    """
    split = pool.split(count, settings.added, seed)
    cells, seconds = [], {}

    def volumes_of(name: str) -> list[Volume]:
        if name == RANDOMIZED:
            return randomized(split.learned, split.labels, settings.added, seed, pool.edges)
        work = settings.work / f"n{count}-seed{seed}"
        begun = time.monotonic()
        model = trained(name, split.learned, split.labels, settings.generator_steps, work)
        seconds[name] = time.monotonic() - begun
        return synthesized(model, split.learned, settings.added, seed, pool.edges)

    made = _Kept(volumes_of)
    for name in arms:
        file = settings.out / f"n{count}-seed{seed}-{name}.json"
        if not file.exists():
            cell = _run(ARMS[name], name, split, seed, pool.edges, made, seconds, settings)
            write_text(file, cell.model_dump_json())
            print(f"n={count}, seed {seed}, {name}: Dice {cell.mean:.4f}", flush=True)
        cells.append(_known(file, settings))
    return cells


def _known(file: Path, settings: Settings) -> Cell:
    cell = Cell.model_validate_json(file.read_text())
    found, asked = ((each.steps, each.generator_steps) for each in (cell, settings))
    if found != asked:
        raise SystemExit(
            f"{file} was measured with --steps {found[0]} --generator-steps {found[1]}: give the "
            "same, or name another --out and --work"
        )
    return cell


class _Kept(dict[str, list[Volume]]):
    """The volumes of each generator, made when they are first needed."""

    def __init__(self, make: Callable[[str], list[Volume]]) -> None:
        self._make = make

    def __missing__(self, name: str) -> list[Volume]:
        self[name] = self._make(name)
        return self[name]


def _run(
    arm: Arm,
    name: str,
    split: Split,
    seed: int,
    edges: Sequence[int],
    made: Mapping[str, list[Volume]],
    seconds: dict[str, float],
    settings: Settings,
) -> Cell:
    added = split.further if arm.further else made[arm.generator] if arm.generator else []
    classes, begun = len(split.labels), time.monotonic()
    network = train(
        split.learned if arm.real else [],
        added,
        edges,
        classes,
        augmented=arm.augmented,
        steps=settings.steps,
        seed=seed,
        device=settings.device,
    )
    spent = {"segmenter": time.monotonic() - begun}
    if arm.generator in seconds:
        spent["generator"] = seconds[arm.generator]
    cuda = settings.device.type == "cuda"
    return Cell(
        arm=name,
        volumes=len(split.learned),
        seed=seed,
        dice=[
            [round(v, 4) for v in of] for of in dice_of_each(network, split.tested, edges, classes)
        ],
        steps=settings.steps,
        generator_steps=settings.generator_steps,
        seconds={k: round(v, 1) for k, v in spent.items()},
        device=torch.cuda.get_device_name() if cuda else "cpu",
    )
