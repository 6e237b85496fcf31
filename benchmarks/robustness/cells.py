"""Cells: one training or measurement each, one JSON file each; finished ones are not repeated."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from training.atomic import write_text


@dataclass(frozen=True)
class Setting:
    """What the cells of a run share.

    Attributes:
        mnist: the file of digits.
        out: folder of the JSON files.
        work: folder of checkpoints and rendered pictures.
        quick: hardly any data or steps, to see that everything runs.
        device: on which is trained and measured.
        norb: folder of smallNORB, whose views take the place of rendered ones; None without it.
    """

    mnist: Path
    out: Path
    work: Path
    quick: bool
    device: torch.device
    norb: Path | None = None

    def short(self, full: int, quick: int) -> int:
        """A number, or a smaller one for a quick run."""
        return quick if self.quick else full


@dataclass(frozen=True)
class Cell:
    """One cell.

    Attributes:
        experiment: its module in `benchmarks.robustness.experiments`.
        about: what distinguishes it from the experiment's other cells, such as network and seed.
        measure: what it finds, for JSON.
    """

    experiment: str
    about: Mapping[str, Any]
    measure: Callable[[Setting], Mapping[str, Any]]

    @property
    def name(self) -> str:
        """Of its file."""
        return "-".join([self.experiment, *map(str, self.about.values())])

    def run(self, setting: Setting) -> bool:
        """Measure and write; False if it was there already."""
        file = setting.out / f"{self.name}.json"
        if file.exists():
            return False
        started = time.monotonic()
        found = dict(self.measure(setting))
        if not found:
            return False
        header = {
            "experiment": self.experiment,
            "about": dict(self.about),
            "device": device_name(setting.device),
            "seconds": round(time.monotonic() - started, 1),
            "quick": setting.quick,
            "norb": setting.norb is not None,
        }
        write_text(file, json.dumps({**header, **found}) + "\n")
        return True


def device_name(device: torch.device) -> str:
    """Such as ``NVIDIA H100 80GB HBM3``."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU, {torch.get_num_threads()} thread(s)"
