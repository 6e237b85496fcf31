"""The model that a project starts with: trained on a few phantoms."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.annotation.data import Labelled
from caps_med.bundles import ModelRepository
from training.data import open_dataset
from training.data.interpretation import Interpretation
from training.tasks.pipeline import TrainRequest, train

#: A capsule network small enough for many trainings on one processor.
NETWORK: Mapping[str, Any] = {"network": "convcaps", "atoms": 4}


def write_start_model(
    models: Path, name: str, images: Sequence[Labelled], training: Mapping[str, Any], seed: int
) -> None:
    """Train and publish a model, unless it is there."""
    if ModelRepository(models).versions(name):
        return
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        for kind in ("images", "labels"):
            (data / kind).mkdir(parents=True)
        for one in images:
            (data / "images" / one.name).write_bytes(one.image)
            (data / "labels" / one.name).write_bytes(one.truth)
        dataset = open_dataset(data, interpretation=Interpretation.parse(None, ["1=axon"], ""))
        request = TrainRequest(
            task="segmentation",
            dataset=dataset,
            name=name,
            overrides={**NETWORK, **training, "seed": seed},
            models=models,
            runs=Path(folder) / "runs",
            command="python -m benchmarks.annotation",
        )
        train(request, Console(quiet=True))
