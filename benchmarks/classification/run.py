"""One cell: trained as ``caps-med train classification`` trains, then asked about the test part."""

from __future__ import annotations

import json
import platform
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel
from rich.console import Console

from benchmarks.classification.data import folder_of
from benchmarks.classification.rows import Cell
from caps_med.bundles import Bundle
from caps_med.inference import Model
from training.atomic import write_text
from training.data.classified import ClassifiedDataset, open_classified
from training.engine import distributed
from training.evaluation.classification.evaluate import probabilities_of
from training.tasks.pipeline import TrainRequest, train

#: Of one cell.
COMMAND = "python -m benchmarks.classification --data DIR --out RESULTS --only"


class Measured(BaseModel):
    """What a cell leaves behind, beside its answers to the test images.

    Attributes:
        cell: its name.
        row, variant, seed: see `benchmarks.classification.rows`.
        recipe: the whole recipe.
        parameters: of the network without its decoder.
        validation: scores of the published weights on the images held out of the training part.
        epochs: loss and validation scores after each epoch.
        seconds: of training, validation and checkpoints together.
        device: on which was trained.
        brief: whether two steps were taken, as a check; nothing is concluded from it.
    """

    cell: str
    data: str
    row: str
    variant: str
    seed: int
    recipe: dict[str, Any]
    parameters: int
    validation: dict[str, float]
    epochs: list[dict[str, float]]
    seconds: float
    device: str
    torch: str
    brief: bool = False


def run(cell: Cell, data: Path, work: Path, out: Path, brief: bool) -> None:
    """Train a cell and write ``NAME.json`` and ``NAME.npz``, unless they are there.

    Args:
        data: see `benchmarks.classification.data`.
        work: of runs and models; a stopped run there is continued.
        out: where the results go.
        brief: whether to take two steps of one epoch, as a check.
    """
    done = out / f"{cell.name}.json"
    if done.exists():
        return
    out.mkdir(parents=True, exist_ok=True)
    recipe = {**cell.recipe, **({"epochs": 1, "steps": 2} if brief else {})}
    dataset = open_classified(folder_of(cell.row.data, data, work))
    bundle, seconds = _trained(cell.name, dataset, recipe, work)
    model = Model(bundle)
    _answer(model, dataset, out / f"{cell.name}.npz")
    card = bundle.card
    found = Measured(
        cell=cell.name,
        data=cell.row.data,
        row=cell.row.name,
        variant=cell.variant,
        seed=cell.seed,
        recipe=dict(card.provenance.recipe),
        parameters=sum(
            p.numel() for n, p in model.network.named_parameters() if not n.startswith("decoder.")
        ),
        validation={k: float(v) for k, v in card.scores.items()},
        epochs=_log(work, cell.name),
        seconds=round(seconds, 1),
        device=device_name(),
        torch=torch.__version__,
        brief=brief,
    )
    if cell.kept:
        shutil.copytree(bundle.path, out / "models" / cell.name, dirs_exist_ok=True)
    write_text(done, found.model_dump_json(indent=1) + "\n")
    validated = ", ".join(f"{name} {value:.4f}" for name, value in found.validation.items())
    print(f"{cell.name}: {validated}, {seconds:.0f} s", flush=True)


def device_name() -> str:
    """The GPU, or the processor's architecture."""
    if distributed.device().type == "cuda":
        return torch.cuda.get_device_name()
    return f"CPU, {platform.processor() or platform.machine()}"


def _trained(
    name: str, dataset: ClassifiedDataset, recipe: dict[str, Any], work: Path
) -> tuple[Bundle, float]:
    """The model, and the seconds of its training, those before a stop included."""
    clock, runs = work / f"{name}.seconds", work / "runs"
    before = float(clock.read_text()) if clock.exists() else 0.0
    request = TrainRequest(
        task="classification",
        dataset=dataset,
        name=name,
        overrides=recipe,
        models=work / "models",
        runs=runs,
        resume=(runs / name / "checkpoint.pt").exists(),
        command=f"{COMMAND} {name}",
    )
    started = time.perf_counter()
    try:
        bundle = train(request, Console(quiet=True))
    finally:
        seconds = before + time.perf_counter() - started
        clock.write_text(str(seconds))
    assert bundle is not None  # noqa: S101 - this is the only process
    return bundle, seconds


def _answer(model: Model, dataset: ClassifiedDataset, file: Path) -> None:
    """Keep the model's answer to each test image, and how probable; nothing is scored here."""
    test = dataset.of("test")
    (probabilities,) = probabilities_of(dataset, test, [model])
    np.savez_compressed(
        file,
        answer=probabilities.argmax(1).astype(np.uint8),
        probability=probabilities.max(1).astype(np.float16),
        target=dataset.targets(test).argmax(1).astype(np.uint8),
    )


def _log(work: Path, name: str) -> list[dict[str, float]]:
    lines = (work / "runs" / name / "scores.jsonl").read_text().splitlines()
    return [{k: round(v, 5) for k, v in json.loads(line).items()} for line in lines]
