"""Time to a good segmentation: held-out Dice over processor time.

``python -m benchmarks.time_to_dice --data DIR`` trains networks by the pipeline of ``caps-med train
segmentation``, on one thread, and after each epoch scores images that the training never sees; the
time that this takes counts nowhere, and that of validation is kept apart. Tasks:

- **axons**: 32 axon phantoms of 64 x 64 pixels; tested on 60 others;
- **hippocampus**: 24 volumes of the Medical Segmentation Decathlon's Task04, of which ``DIR`` has
  ``hippocampus/imagesTr`` and ``hippocampus/labelsTr``; tested on 100 slices of 10 others;
- **nuclei**: the left half of stardist's fluorescence image in tiles of 64 x 64 pixels,
  ``nuclei/img2d.tif`` and ``nuclei/mask2d.tif`` in ``DIR`` (from the Python package stardist,
  ``stardist/data/images``); tested on the right half.

Variants are recipes: ``default`` is what is planned from the data, ``before`` what was planned
before the training was made faster (now with faster transforms, of the same values), and ``--set
NAME=VALUE``, with ``--variant NAME``, any other. To be reached are 98 % of the Dice that ConvCaps
publishes with the recipe ``before``. Published weights are those of the best epoch on the samples
that the training holds out, epochs of small crops left out.

Finished trainings are kept in ``--out`` and skipped; ``--show`` prints its table, ``--draw`` also
draws its curves into ``docs/images/time-to-dice.png``.
"""

from __future__ import annotations

import itertools
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.options import benchmark_parser
from benchmarks.time_to_dice import tables
from benchmarks.time_to_dice.curves import Curve, train
from benchmarks.time_to_dice.tasks import TASKS, written
from caps_med.allocator import keep_freed_memory
from training.tasks.overrides import read_overrides

#: Variant -> recipe values that differ from those planned.
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "before": {
        "crop": 64,
        "precision": "float32",
        "whole_batches": False,
        "validated": 100,
        "small_crops": 0.0,
        "crops": "inside",
    },
}


def main() -> None:
    """Train what has no curve yet; then show and draw, if asked to."""
    options = _parser().parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()
    if not options.show and not options.draw:
        _train_missing(options)
    curves = list(tables.kept(options.out).values())
    tables.show(curves)
    if options.draw:
        tables.draw(curves, ("default", "before", "bfloat16"), tables.PICTURE)


def _parser() -> ArgumentParser:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--data", type=Path, help="folder with hippocampus/ and nuclei/")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--networks", nargs="+", default=["convcaps", "unet"])
    parser.add_argument("--variant", default="default", help="name of the recipe")
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="NAME=VALUE")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--out", type=Path, default=tables.RESULTS)
    parser.add_argument("--show", action="store_true", help="train nothing, print the table")
    parser.add_argument("--draw", action="store_true", help="train nothing, draw the curves too")
    return parser


def _train_missing(options: Namespace) -> None:
    values = {**VARIANTS.get(options.variant, {}), **read_overrides(None, options.settings)}
    if options.variant not in VARIANTS and not options.settings:
        raise SystemExit(f"--variant {options.variant}: give its recipe by --set NAME=VALUE")
    for task, network, seed in itertools.product(options.tasks, options.networks, options.seeds):
        with tempfile.TemporaryDirectory() as folder:
            _train(options, task, {**values, "network": network, "seed": seed}, Path(folder))


def _train(options: Namespace, task: str, recipe: Mapping[str, Any], work: Path) -> None:
    """Train one, unless it has a curve, and keep its curve."""
    curve = Curve(
        task=task, network=recipe["network"], variant=options.variant, seed=recipe["seed"],
        recipe=recipe, steps=0, points=(),
    )  # fmt: skip
    if curve.key in tables.kept(options.out):
        return
    steps, unkept, points = train(written(task, options.data, work), recipe, work)
    curve = curve.model_copy(update={"steps": steps, "points": points, "unkept": unkept})
    tables.keep(options.out, {**tables.kept(options.out), curve.key: curve})
    last = points[-1]
    print(f"{curve.key}: Dice {curve.kept.test:.3f} (held out {curve.kept.validation:.3f}), "
          f"{last.seconds:.0f} s, validating {last.validating:.0f} s", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
