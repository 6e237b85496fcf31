"""Which images to correct first: a scripted annotator on axon phantoms.

``python -m benchmarks.annotation`` begins a project of the service for each seed and each strategy
(uncertainty, diversity, random), with the same start model, which has seen three images. In each
round the annotator takes the images that the project asks for, corrects the predictions with the
truth, and has the project learn. All of that is the service's own code: the store, the strategies,
the scores, the training jobs (in processes that are forked instead of started) and the comparison
on held-out images.

Reported: Dice on test images against the number of corrected images, and the share of pixels that
had to be changed in the predictions, by round. Every finished project is kept in
``benchmarks/results/annotation.json``, so that a stopped command continues; ``--show`` prints the
tables alone.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from api.engine import Engine
from api.jobs.service import Jobs
from api.metrics import Metrics
from api.projects.service import Projects
from api.projects.strategies import STRATEGIES, Strategy
from api.settings import Settings
from benchmarks.annotation import tables
from benchmarks.annotation.annotator import Annotator
from benchmarks.annotation.data import Labelled, phantoms
from benchmarks.annotation.forked import ForkedExecutor
from benchmarks.annotation.start import write_start_model
from benchmarks.options import benchmark_parser

#: Phantoms of a seed: those of the start model, those that come labelled, and the pool; tested on
#: others, the same for all seeds.
STARTED, LABELLED, POOL, TESTED = 3, 6, 32, 24
ROUNDS, CORRECTIONS = 4, 3
SEEDS, TEST_SEED = (0, 1, 2), 1000
#: Of the start model and of each round.
TRAINING: Mapping[str, Any] = {"epochs": 1, "steps": 40, "batch_size": 4, "crop": 64}


def main() -> None:
    """Run what has no result yet, and show all results."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--show", action="store_true", help="run nothing, print the tables")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if not options.show:
        asyncio.run(_run(options.seeds, options.rounds))
    tables.show()


async def _run(seeds: tuple[int, ...], rounds: int) -> None:
    results = tables.kept()
    todo = [
        (s, one)
        for s in seeds
        for one in STRATEGIES
        if len(results.get(tables.key(one, s), ())) <= rounds  # the first point is before any
    ]
    with tempfile.TemporaryDirectory() as folder:
        models = Path(folder) / "models"
        settings = Settings(models=models, preload=(), job_nice=0, job_check_memory_bytes=2**31)
        engine = Engine(settings, Metrics())
        jobs = Jobs(settings, engine.metrics, engine.model_published, ForkedExecutor)
        projects = Projects(engine, jobs)
        async with jobs.running(), projects.running():
            for seed, strategy in todo:
                began = time.perf_counter()
                results[tables.key(strategy, seed)] = await _cell(
                    projects, models, strategy, seed, rounds
                )
                tables.keep(results)
                last = results[tables.key(strategy, seed)][-1]
                seconds = time.perf_counter() - began
                print(f"{strategy} {seed}: Dice {last.mean:.4f}, {seconds:.0f} s", flush=True)
        engine.decoders.close()


async def _cell(
    projects: Projects, models: Path, strategy: Strategy, seed: int, rounds: int
) -> list[Any]:
    drawn = phantoms(STARTED + LABELLED + POOL, seed)
    start = f"start-{seed}"
    write_start_model(models, start, drawn[:STARTED], TRAINING, seed)
    truths = {one.name: one.truth for one in drawn}
    test: list[Labelled] = phantoms(TESTED, TEST_SEED)
    annotator = Annotator(projects, models, truths, test, TRAINING)
    labelled = drawn[STARTED : STARTED + LABELLED]
    pool = drawn[STARTED + LABELLED :]
    return await annotator.run(start, strategy, seed, labelled, pool, rounds, CORRECTIONS)


if __name__ == "__main__":
    main()
