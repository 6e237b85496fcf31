"""caps_med beside nnU-Net: Dice on images that neither has seen, and processor time.

``python -m benchmarks.nnunet --nnunet DIR --data DIR`` trains both by their own commands with their
own defaults, on the same images and one thread. ``--nnunet`` is an environment of its own that has
nnU-Net (``python -m venv DIR; DIR/bin/pip install nnunetv2``), ``--data`` as for
``benchmarks.time_to_dice``, whose tasks these are (of hippocampus with 50 volumes to test).

- caps_med: ``caps-med train segmentation`` with ConvCaps, and for comparison with the same network
  without capsules and with MONAI's BasicUNet at a learning rate of 2e-3; ``--networks`` also takes
  former recipes: shorter, of volumes as slices, and for comparison in float32 without small crops;
- nnU-Net: planned from the data, fold 0 (a fifth is held out, as in caps_med), trained for as many
  of its epochs of 250 steps as its variants ``nnUNetTrainer_1epoch``, ``_5epochs`` and so on have,
  whose learning rates decay over them. Its default are 1,000 epochs, on a GPU.

Label maps of both are scored alike, by the mean Dice of the labels of each case. Rows with *TTA*
are of answers averaged over mirror images, as nnU-Net's are by default, and those of ``caps-med
segment --tta``. nnU-Net's trainings are not seeded: repeats differ.

Finished runs are kept in ``benchmarks/results/nnunet.json`` and skipped; ``--show`` prints the
tables.
"""

from __future__ import annotations

import itertools
from argparse import ArgumentParser
from pathlib import Path

from benchmarks.nnunet import tables
from benchmarks.nnunet.methods import Method, NnUNet, Ours
from benchmarks.nnunet.runs import run
from benchmarks.nnunet.task import CONFIGURATIONS, Task
from benchmarks.options import benchmark_parser

_PLAIN = ("--network", "convcaps-plain")
_UNET = ("--network", "unet", "--learning-rate", "0.002")
_FORMER = ("--set", "precision=float32", "--set", "small_crops=0")
#: Name in the tables -> options of ``caps-med train segmentation``.
NETWORKS = {
    "ConvCaps": (),
    "without capsules": _PLAIN,
    "without capsules float32": (*_PLAIN, *_FORMER),
    "BasicUNet": _UNET,
    "BasicUNet 1e-3": ("--network", "unet", "--learning-rate", "0.001"),
    "BasicUNet 4e-3": ("--network", "unet", "--learning-rate", "0.004"),
    "BasicUNet 8e-3": ("--network", "unet", "--learning-rate", "0.008"),
    "BasicUNet float32": (*_UNET, *_FORMER),
    "ConvCaps 625 steps": ("--epochs", "25", "--steps", "25"),
    "ConvCaps slices 625 steps": ("--dims", "2.5d", "--epochs", "25", "--steps", "25"),
}
DEFAULT = ["ConvCaps", "without capsules", "BasicUNet"]


def main() -> None:
    """Run what has no result yet, then print the tables."""
    parser = _parser()
    options = parser.parse_args()
    if options.lengths and options.nnunet is None and not options.show:
        parser.error("--nnunet DIR is needed, or --lengths without any, to train caps_med alone")
    for name in options.tasks if not options.show else ():
        task = Task.written(name, options.data, options.work)
        methods: list[Method] = [Ours(title, NETWORKS[title]) for title in options.networks]
        methods += [NnUNet(options.nnunet, length) for length in options.lengths]
        for repeat, method in itertools.product(options.repeats, methods):
            run(task, method, repeat)
    tables.show(tables.kept())


def _parser() -> ArgumentParser:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--nnunet", type=Path, metavar="DIR", help="environment that has nnU-Net")
    parser.add_argument("--data", type=Path, help="folder with hippocampus/ and nuclei/")
    parser.add_argument("--work", type=Path, default=Path("runs/nnunet"), help="for what is made")
    parser.add_argument(
        "--tasks", nargs="+", default=list(CONFIGURATIONS), choices=list(CONFIGURATIONS)
    )
    parser.add_argument("--networks", nargs="*", default=DEFAULT, choices=list(NETWORKS))
    parser.add_argument("--lengths", nargs="*", default=["1epoch", "5epochs"], metavar="LENGTH")
    parser.add_argument("--repeats", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--show", action="store_true", help="train nothing, print the tables")
    return parser


if __name__ == "__main__":
    main()
