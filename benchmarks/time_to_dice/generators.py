"""Generators over processor time: geometry kept, diversity, closeness to real images.

``python -m benchmarks.time_to_dice.generators`` trains generators on 32 axon phantoms of 64 x 64
pixels by the pipeline of ``caps-med train synthesis``, on one thread, and evaluates each as
``caps-med evaluate`` does: 4 images of each of 20 other label maps, of which there are 3 real
images each. Geometry is judged by a ConvCaps that is trained on the same 32 phantoms. Variants are
recipes: ``default`` is what is planned, and ``bfloat16`` the same in that precision; with ``--set
NAME=VALUE``, and ``--variant NAME``, any other.

Finished trainings are kept in ``--out`` and skipped; ``--show`` prints its table. ``--step`` trains
nothing: it prints the processor time of a step in bfloat16 over that in float32, both in turn.
"""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict
from rich.console import Console
from torch.utils.data import default_collate

from benchmarks.options import benchmark_parser
from benchmarks.time_to_dice.tables import ROOT
from benchmarks.time_to_dice.tasks import AXONS, EDGE
from caps_med.allocator import keep_freed_memory
from caps_med.inference import Model
from training.atomic import write_text
from training.data import Dataset, Source, open_dataset
from training.evaluation.synthesis import evaluate_synthesis
from training.labelmaps.phantoms import axon_phantoms, write_phantom
from training.tasks import pipeline
from training.tasks.overrides import read_overrides
from training.tasks.synthesis.recipe import SynthesisRecipe
from training.tasks.synthesis.train import drawn_crops, training_step

RESULTS = ROOT / "benchmarks" / "results" / "time-to-generator.json"
#: Variant -> recipe values that differ from those planned.
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "bfloat16": {"precision": "bfloat16"},
}
#: Label maps to evaluate on, real images of each, and synthetic ones.
MAPS, REPEATS, IMAGES = 20, 3, 4
#: Seeds of the phantoms to train on and to evaluate on.
_TRAINED, TESTED = 1, 2
_QUIET = Console(quiet=True)


class Result(BaseModel):
    """One training and the images of its generator; see `training.evaluation.summary`.

    Attributes:
        recipe: the values that differ from those that are planned.
        seconds: of processor, from the data to the last epoch.
        geometry: Dice between label map and segmentation of the images.
        diversity: by distance, over that of real images.
        sets: distances of the images to the real ones.
        real: the same between two halves of the real ones.
    """

    model_config = ConfigDict(frozen=True)

    network: str
    variant: str
    seed: int
    recipe: Mapping[str, Any]
    steps: int
    seconds: float
    geometry: float
    ssim: float
    diversity: Mapping[str, float]
    sets: Mapping[str, float]
    real: Mapping[str, float]

    @property
    def key(self) -> str:
        """What distinguishes it from others."""
        return f"{self.network}/{self.variant}/{self.seed}"


class Bench:
    """The phantoms, and the judge of geometry, which is trained when it is first needed."""

    def __init__(self, work: Path, tested: int = TESTED) -> None:
        self.work = work
        for name, phantom in axon_phantoms(AXONS[0], _TRAINED, EDGE):
            write_phantom(work / "trained", name, phantom)
        for name, phantom in axon_phantoms(MAPS, tested, EDGE, REPEATS):
            write_phantom(work / "tested", name, phantom)
        self._judge: Model | None = None

    def request(self, task: str, name: str, overrides: Mapping[str, Any]) -> pipeline.TrainRequest:
        """Of a training on the phantoms."""
        return pipeline.TrainRequest(
            task, open_dataset(self.work / "trained"), name, overrides,
            models=self.work / "models", runs=self.work / "runs",
        )  # fmt: skip

    def trained(self, variant: str, recipe: Mapping[str, Any]) -> Result:
        """Train a generator, and evaluate it."""
        began = time.process_time()
        name = f"{recipe['network']}-{variant}-{recipe['seed']}"
        request = self.request("synthesis", name, recipe)
        prepared = pipeline.prepare(request, _QUIET)
        network = pipeline.train_one(prepared, prepared.source, request.folder)
        seconds = time.process_time() - began
        trained = [(network, prepared.source)]
        bundle = pipeline.publish_trained(prepared, trained, _QUIET)
        found = evaluate_synthesis(
            self.tested, [Model(bundle)], images=IMAGES, segmenter=self.judge
        ).summary
        [scores] = found.scores
        assert scores.geometry and scores.ssim  # noqa: S101 - there is a judge
        return Result(
            network=recipe["network"], variant=variant, seed=recipe["seed"], recipe=recipe,
            steps=prepared.recipe.epochs * prepared.recipe.steps, seconds=round(seconds, 1),
            geometry=scores.geometry.mean, ssim=scores.ssim.mean,
            diversity={k: one.ratio for k, one in scores.diversity.items() if one.ratio},
            sets=scores.sets or {}, real=found.floor or {},
        )  # fmt: skip

    @property
    def tested(self) -> Dataset:
        """Label maps with several real images each."""
        dataset = open_dataset(self.work / "tested")
        assert isinstance(dataset, Dataset)  # noqa: S101 - labelled images
        return dataset

    @property
    def judge(self) -> Model:
        """A segmentation model of the phantoms."""
        if self._judge is None:
            overrides = {"seed": 0, "epochs": 8, "steps": 25, "small_crops": 0.0}
            bundle = pipeline.train(self.request("segmentation", "judge", overrides), _QUIET)
            assert bundle is not None  # noqa: S101 - of the only process
            self._judge = Model(bundle)
        return self._judge

    def step(self, recipe: Mapping[str, Any]) -> Callable[[], object]:
        """A training step on four phantoms."""
        request = self.request("synthesis", "stepped", {"seed": 0, **recipe})
        prepared = pipeline.prepare(request, _QUIET)
        source, made = prepared.source, prepared.recipe
        assert isinstance(source, Source)  # noqa: S101 - labelled images
        assert isinstance(made, SynthesisRecipe)  # noqa: S101 - of this task
        crops = drawn_crops(source, made)
        batch = default_collate([crops[1, i, i] for i in range(made.batch_size)])
        return partial(training_step(source, made, crops), None, batch)


def kept(file: Path) -> dict[str, Result]:
    """Key -> result, of the finished trainings."""
    found = map(Result.model_validate, json.loads(file.read_text()) if file.exists() else [])
    return {one.key: one for one in found}


def keep(file: Path, results: Mapping[str, Result]) -> None:
    """Write the results, one a line."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_text(file, "[\n" + ",\n".join(r.model_dump_json() for r in results.values()) + "\n]\n")


def show(results: Mapping[str, Result]) -> None:
    """Print the table."""
    print("| network | recipe | seed | steps | seconds | geometry | diversity | Fréchet | SSIM |")
    print("|---|---|---|---|---|---|---|---|---|")
    for one in results.values():
        diversity = " / ".join(f"{value:.2f}" for value in one.diversity.values())
        cells = (one.network, one.variant, one.seed, one.steps, f"{one.seconds:.0f}",
                 f"{one.geometry:.3f}", diversity, f"{one.sets['frechet']:.2f}",
                 f"{one.ssim:.3f}")  # fmt: skip
        print("| " + " | ".join(map(str, cells)) + " |")


def step_ratio(former: Callable[[], object], other: Callable[[], object], rounds: int) -> float:
    """The median ratio of processor time, other over former, after one of each to warm up."""
    ratios = []
    for _ in range(rounds + 1):
        times = []
        for work in (former, other):
            began = time.process_time()
            work()
            times.append(time.process_time() - began)
        ratios.append(times[1] / times[0])
    return statistics.median(ratios[1:])


def main() -> None:
    """Train and evaluate what has no result yet; print the table."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--networks", nargs="+", default=["capspix2pix"])
    parser.add_argument("--variant", default="default", help="name of the recipe")
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="NAME=VALUE")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--test-seed", type=int, default=TESTED, help="of the phantoms to judge on")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--show", action="store_true", help="train nothing, print the table")
    parser.add_argument("--step", action="store_true", help="compare the time of steps")
    parser.add_argument("--rounds", type=int, default=7, help="of --step")
    options = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    with tempfile.TemporaryDirectory() as folder:
        if options.step:
            _compare_steps(options, Bench(Path(folder)))
            return
        if not options.show:
            _train_missing(options, partial(Bench, Path(folder), options.test_seed))
    show(kept(options.out))


def _compare_steps(options: Namespace, bench: Bench) -> None:
    values = read_overrides(None, options.settings)
    for network in options.networks:
        former, other = (
            bench.step({**values, "network": network, "precision": precision})
            for precision in ("float32", "bfloat16")
        )
        ratio = step_ratio(former, other, options.rounds)
        print(f"{network}: a step in bfloat16 takes {ratio:.2f} of the time in float32")


def _train_missing(options: Namespace, bench: Callable[[], Bench]) -> None:
    values = {**VARIANTS.get(options.variant, {}), **read_overrides(None, options.settings)}
    made: Bench | None = None
    for network, seed in itertools.product(options.networks, options.seeds):
        if f"{network}/{options.variant}/{seed}" in kept(options.out):
            continue
        made = made or bench()
        result = made.trained(options.variant, {**values, "network": network, "seed": seed})
        keep(options.out, {**kept(options.out), result.key: result})


if __name__ == "__main__":
    main()
