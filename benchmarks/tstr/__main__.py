"""Train on synthetic images, test on real ones: ``python -m benchmarks.tstr``.

Four generators, CapsPix2Pix, its ablation without capsules, pix2pix and SPADE, are trained on 8
real labelled axon phantoms of 128 x 128 pixels with the project's own training; then one small
U-Net for each arm (`benchmarks.tstr.arms`) and seed, always with the same steps, crops and
augmentation, and tested on 64 other real phantoms. Of the generators, diversity relative to real
repeats, geometry kept, distances to real images, parameters, training time and memory are measured.

Finished parts are kept, in ``--work`` (generators, judge) and ``--out`` (scores), so that an
interrupted command continues. It ends with the tables, which it prints and writes into
``docs/results/train-on-synthetic.md``, and ``docs/images/tstr-*.png``. ``--quick`` does
everything with a few steps into ``WORK/quick`` alone, as a check. Several runs may share ``--work``
and ``--out``, each with other ``--seeds`` or ``--arms``. With ``--data DIR`` the same question is
asked of real volumes, see `benchmarks.tstr.volumes.command`.

Recipes of the generators, in addition to 64 x 64 crops and, as published, whole images one at a
time for pix2pix: ``--caps epochs=40 --caps noise_size=32 --pix2pix epochs=40`` (as ``caps-med train
synthesis --set``). An existing model in ``WORK/models`` with the name ``capspix2pix``,
``capspix2pix-plain``, ``pix2pix`` or ``spade`` is used as it is.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from pathlib import Path

import torch

from benchmarks.options import benchmark_parser
from benchmarks.tstr import data, pictures
from benchmarks.tstr.arms import ARMS, ModelOf, Sizes, samples_of
from benchmarks.tstr.generators import cost_of, trained
from benchmarks.tstr.quality import quality_of, quality_of_real
from benchmarks.tstr.results import MARKS, Results, opened, table, write_page
from benchmarks.tstr.segmenter import (
    JUDGE_IMAGES,
    JUDGE_STEPS,
    STEPS,
    dice_of_each,
    judge,
    train,
)
from caps_med.bundles import ModelRepository
from caps_med.inference import Model

ROOT = Path(__file__).parent.parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "tstr.json"
GENERATORS = ("capspix2pix", "capspix2pix-plain", "pix2pix", "spade")
#: What ``--quick`` sets.
QUICK = {"real": 2, "synthetic": 4, "tested": 4, "steps": 3, "seeds": [0],
         "judge_steps": 3, "judge_images": 4}  # fmt: skip
QUICK_RECIPE = ("epochs=1", "steps=2", "batch_size=2", "crop=64", "atoms=4")


def main() -> None:
    """Do what is missing, then print and draw all there is; ``--data`` is another benchmark."""
    if any(argument.split("=")[0] == "--data" for argument in sys.argv[1:]):
        from benchmarks.tstr.volumes import command  # needs what phantoms do not

        command.main()
        return
    options = _options()
    torch.set_num_threads(options.threads)
    sizes = Sizes(options.real, options.synthetic, options.tested)
    settings = {"real": options.real, "synthetic": options.synthetic, "tested": options.tested,
                "steps": options.steps, "judge_steps": options.judge_steps,
                "capspix2pix": options.caps, "capspix2pix-plain": options.plain,
                "pix2pix": options.pix2pix, "spade": options.spade}  # fmt: skip
    results = opened(options.out, {k: json.dumps(v) for k, v in settings.items()}, GENERATORS)
    recipes = {"capspix2pix": options.caps,
               "capspix2pix-plain": ["network=capspix2pix-plain", *options.plain],
               "pix2pix": ["network=pix2pix", *options.pix2pix],
               "spade": ["network=spade", *options.spade]}  # fmt: skip

    def model_of(name: str) -> Model:
        return trained(name, options.work, sizes.real, recipes[name], options.threads)

    if not options.only_show:
        run_arms(options, sizes, results, model_of)
        judge_images(options, sizes, results, model_of)
    known = ModelRepository(options.work / "models").names()
    made = [name for name in GENERATORS if name in results.quality and name in known]
    shown = {name: model_of(name) for name in made}
    drawn = pictures.write(options.pictures, shown) if shown else {}
    print(table(results, sizes))
    write_page(options.docs, MARKS, table(results, sizes), drawn)


def run_arms(
    options: argparse.Namespace, sizes: Sizes, results: Results, model_of: ModelOf
) -> None:
    """Every arm and seed that has no Dice yet."""
    test = data.real_samples(data.TEST, sizes.tested)
    for seed, name in itertools.product(options.seeds, options.arms):
        if seed in results.dice.get(name, {}):
            continue
        samples = samples_of(ARMS[name], sizes, seed, model_of)
        results.keep(name, seed, dice_of_each(train(samples, seed, options.steps), test))
        results.save(options.out)
        dice = results.dice[name][seed]
        print(f"{name}, seed {seed}: Dice {sum(dice) / len(dice):.4f}", flush=True)


def judge_images(
    options: argparse.Namespace, sizes: Sizes, results: Results, model_of: ModelOf
) -> None:
    """The measures of each generator that an arm needed."""
    needed = {arm.generator for name, arm in ARMS.items() if name in options.arms}
    segmenter = judge(options.work / "judge.safetensors", options.judge_steps, options.judge_images)
    if needed != {None} and "real" not in results.quality:
        results.quality["real"] = quality_of_real(segmenter, sizes.tested)
    for name in GENERATORS:
        if name in needed and name not in results.quality:
            results.quality[name] = quality_of(model_of(name), segmenter, sizes.tested)
            if (cost := cost_of(name, options.work)) is not None:
                results.costs[name] = cost
    results.save(options.out)


def _options() -> argparse.Namespace:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--work", type=Path, default=Path("runs/tstr"), help="generators, judge")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the scores")
    parser.add_argument("--pictures", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument(
        "--docs", type=Path, default=ROOT / "docs" / "results" / "train-on-synthetic.md"
    )
    parser.add_argument("--steps", type=int, default=STEPS, help="of each U-Net")
    parser.add_argument("--judge-steps", type=int, default=JUDGE_STEPS)
    parser.add_argument("--judge-images", type=int, default=JUDGE_IMAGES)
    parser.add_argument("--real", type=int, default=8, help="labelled images to learn from")
    parser.add_argument("--synthetic", type=int, default=100, help="of each kind of labels")
    parser.add_argument("--tested", type=int, default=64)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--caps", action="append", default=["crop=64"], metavar="NAME=VALUE")
    parser.add_argument("--plain", action="append", default=["crop=64"], metavar="NAME=VALUE")
    parser.add_argument(
        "--pix2pix", action="append", default=["epochs=20", "batch_size=1"], metavar="NAME=VALUE"
    )
    parser.add_argument("--spade", action="append", default=["crop=64"], metavar="NAME=VALUE")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only-show", action="store_true", help="train nothing")
    parser.add_argument("--quick", action="store_true", help="a few steps, into WORK/quick alone")
    options = parser.parse_args()
    if options.quick:
        work = options.work / "quick"  # else the real run would take its generators
        vars(options).update(
            QUICK, work=work, out=work / "tstr.json", pictures=work, docs=work / "tstr.md"
        )
        options.caps, options.pix2pix = [*QUICK_RECIPE, *options.caps], list(QUICK_RECIPE[:4])
        options.spade = list(QUICK_RECIPE[:4])
        options.plain = [*QUICK_RECIPE, *options.plain]
    return options


if __name__ == "__main__":
    main()
