"""Segmentation networks on real data: 200 hippocampi of the Medical Segmentation Decathlon.

``python -m benchmarks.segmentation --data DIR`` trains what its options name and writes one JSON
file a cell into ``--out``; cells that have one are skipped, unless it lacks the ``--shifts``.
``DIR`` holds ``imagesTr`` and ``labelsTr`` (Task04). ``--collect FOLDER`` adds such files to
``benchmarks/results/segmentation-hippocampus.json``, ``--show`` prints its tables.

All networks are trained alike: Dice and cross-entropy, Adam, warm-up over 5 % of the steps and
cosine decay, batches of four crops of 32 x 48 x 32 voxels, half of them around a label, the same
augmentation, in bfloat16 (SegCaps and UCaps in TF32). The weights after the last step are scored;
nothing is selected on test cases. The loop is the benchmark's own, because the images stay in the
GPU's memory; recipe, network, loss, schedule and the restart of collapsed networks are those of
``caps-med train``.

- Cross-validation: four folds, all 150 cases of the others train.
- Learning rates: chosen with ``--choosing``, on 20 of the training cases of fold 0.
- Label efficiency: ``--counts``, drawn by the seed from the training cases of fold 0.
- Out of domain (written down before any was run): rotations by 15 to 180 degrees about an axis
  drawn for each case; inverted contrast; gamma 0.5 to 2; 2 mm voxels, 3 mm slices; noise of 0.05 to
  0.2 of the intensity range; either half of the field of view. With ``--levels``: crops without
  augmentation (``none``), the training's default (``usual``), and one that covers all of these
  tests (``wide``: any rotation, inversion, coarse voxels, noise).

Intervals: bootstrap over the test cases, of paired differences.
"""

from __future__ import annotations

import itertools
from argparse import ArgumentParser, Namespace
from pathlib import Path

import torch

from benchmarks.options import benchmark_parser
from benchmarks.segmentation import hippocampus, tables
from benchmarks.segmentation.cells import LEVELS, Cell, finished, run, write


def main() -> None:
    """Run the cells that have no result yet; or collect, or show."""
    parser = _parser()
    options = parser.parse_args()
    if not (options.data or options.collect or options.show):
        parser.error("--data DIR, --collect FOLDER or --show is needed")
    if options.collect:
        tables.collect(options.collect)
    if options.show:
        tables.show()
    if options.data:
        _run(options)


def _parser() -> ArgumentParser:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/segmentation"))
    parser.add_argument("--collect", type=Path, metavar="FOLDER")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--networks", nargs="+", default=["unet", "convcaps", "convcaps-plain"])
    parser.add_argument("--folds", type=int, nargs="+", default=[0])
    parser.add_argument("--counts", nargs="+", default=["all"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--levels", nargs="+", default=["usual"], choices=list(LEVELS))
    parser.add_argument("--rates", type=float, nargs="+", default=[None])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--capsule-weight", type=float, help="of the class capsules' margin loss")
    parser.add_argument("--choosing", action="store_true", help="score training cases set aside")
    parser.add_argument("--shifts", action="store_true", help="out-of-domain tests as well")
    parser.add_argument("--weights", action="store_true", help="keep them, in half precision")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser


def _run(options: Namespace) -> None:
    options.out.mkdir(parents=True, exist_ok=True)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    data = hippocampus.read(options.data)
    cells = [
        Cell(
            network, fold, None if count == "all" else int(count), seed, level, options.steps,
            options.batch, rate, options.capsule_weight, options.choosing, options.shifts,
        )
        for seed, count, fold, level, network, rate in itertools.product(
            options.seeds, options.counts, options.folds, options.levels, options.networks,
            options.rates,
        )
    ]  # fmt: skip
    for cell in cells:
        file = options.out / f"{cell.name}.json"
        if not finished(cell, file):
            result, network = run(cell, data, torch.device(options.device))
            if options.weights:
                from safetensors.torch import save_file

                halves = {k: v.half().contiguous() for k, v in network.state_dict().items()}
                save_file(halves, file.with_suffix(".safetensors"))
            write(file, result)
            print(cell.name, result["seconds"], "s", result["step_ms"], "ms", flush=True)


if __name__ == "__main__":
    main()
