"""Bytes that calls take at most: ``python -m tests.api.peaks``, which tells their estimates too.

Each line of its input, ``MODELS MODEL WHAT SIZES...``, is a call, answered by a line: bytes taken,
and of the estimate those held and those to work with. A call has a process of its own, as it would
take less after another one; it is forked from this one, which has imported what takes seconds.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

import caps_med
from api.budget import Cost
from api.engine import Classify, Segment, Synthesize, costs
from api.engine.calls import Apply, ModelCall
from caps_med.images import MedicalImage
from caps_med.inference import Model
from caps_med.inference.uncertainty_maps import PROBABILITIES

#: What calls import when they run; all but `monai`, which an estimate counts.
_MODULES = ("caps_med.routing.numba_backend", "nibabel", "scipy.ndimage")
#: A call that takes longer is ended.
PATIENCE_S = 300


def call(what: str, shape: tuple[int, ...]) -> ModelCall[Any]:
    """A call by name, on noise or on ids of this shape."""
    values = np.random.default_rng(0).integers(0, 2, (1, *shape)).astype(np.uint8)
    image = MedicalImage(values * 100)
    labels = MedicalImage(values, kind="labels")
    air = values.copy()
    air[..., 2:] = 0  # an empty slice takes the memory of any, and no time
    calls: dict[str, ModelCall[Any]] = {
        "segment": Segment(image, maps=PROBABILITIES),
        "labels": Segment(MedicalImage(air * 100), "none"),
        "refined": Segment(image, "em", maps=PROBABILITIES),
        "refined-labels": Segment(image, "em"),
        "entropy": Segment(MedicalImage(air * 100), maps=("entropy",)),
        "coarse": Segment(MedicalImage(air * 100, np.diag([0.7, 0.7, 1, 1]))),
        "floats": Segment(MedicalImage(air.astype(np.float64))),
        "disagree": Segment(MedicalImage(air * 100), disagreement=True, maps=PROBABILITIES),
        "averaged": Segment(image, tta=True),
        "synthesize": Synthesize(labels, 0, 3),
        "features": Apply(
            lambda model: model.features(labels if model.task == "synthesis" else image).arrays(),
            lambda model: costs.features(model, image),
        ),
        "manipulate": Apply(
            lambda model: model.manipulator(image)(0, 0, [-0.2, 0.0, 0.2]),
            lambda model: costs.manipulation(model, image, 3),
        ),
        "uncertainty": Apply(
            lambda model: model.uncertainty(image),
            lambda model: costs.uncertainty(model, image),
        ),
        "classify": Classify(image),
        "inspect": Apply(
            lambda model: model.inspect(image).arrays(),
            lambda model: costs.inspection(model, image),
        ),
        "draw": Apply(
            lambda model: model.draw(0, [[0.1] * model.layers[-1].atoms] * 256),
            lambda model: costs.drawing(model, 256),
        ),
        "interpolate": Apply(
            lambda model: (
                model.interpolate(labels, 0, 1, 3),
                model.interpolate_features(labels, 0, 1, 3),
            ),
            lambda model: costs.interpolation(model, labels, 3, True),
        ),
    }
    return calls[what]


def measured(model: Model, what: str, shape: tuple[int, ...]) -> tuple[int, Cost]:
    """Bytes that the call took beyond what was taken before, and its estimate."""
    small = (64, 64, 2)[: len(shape)]
    call(what, small).run(model)  # what is imported and allocated once is not its own
    asked = call(what, shape)
    cost = asked.cost(model)  # before it: what it imports counts
    before = _bytes("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak
    answer = asked.run(model)
    taken = _bytes("VmHWM") - before
    del answer
    return taken, cost


def _bytes(name: str) -> int:
    (kilobytes,) = re.findall(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(kilobytes) * 1024


def answer(models: Path, name: str, what: str, *sizes: str) -> None:
    """Measure a call, and print what it took and its estimate."""
    signal.alarm(PATIENCE_S)
    taken, cost = measured(caps_med.load_model(name, models), what, tuple(map(int, sizes)))
    print(taken, cost.held, cost.working, flush=True)


def main() -> None:
    """Answer each line of the input in a process of its own."""
    torch.set_num_threads(1)
    for name in _MODULES:
        import_module(name)
    for line in sys.stdin:
        models, *asked = line.split()
        if (child := os.fork()) == 0:
            answer(Path(models), *asked)
            os._exit(0)
        if status := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            print(f"failed, status {status}", flush=True)


if __name__ == "__main__":
    main()
