"""Evaluations of classification capsules that need trainings of their own, cell by cell.

    python -m benchmarks.robustness affine few_labels --mnist mnist10k.npz --out cells

``python -m benchmarks.classification.digits`` makes ``mnist10k.npz``. Finished cells are not
repeated, an interrupted training goes on from its last epoch.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from fnmatch import fnmatch
from importlib import import_module
from pathlib import Path
from types import FrameType

import torch

from benchmarks.robustness.cells import Setting

EXPERIMENTS = (
    "affine", "viewpoints", "overlap", "few_labels", "families", "ablation", "transfer",
    "ablation_digits", "transfer_digits",
)  # fmt: skip

_MNIST = "made by python -m benchmarks.classification.digits"


def main() -> None:
    """Run the cells of some experiments, in order, until the time is up."""
    options = _options()
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGALRM, _stop)
    signal.alarm(int(options.minutes * 60))
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    setting = setting_of(options, device)
    for experiment in options.experiments:
        module = import_module(f"benchmarks.robustness.experiments.{experiment}")
        for cell in module.cells(options.networks, options.seeds):
            if not fnmatch(cell.name, options.only):
                continue
            started = time.monotonic()
            if cell.run(setting):
                print(f"{cell.name}: {time.monotonic() - started:.0f} s", flush=True)


def setting_of(options: argparse.Namespace, device: torch.device) -> Setting:
    """What the cells share; those of smallNORB and of quick runs are kept apart."""
    below = Path("smallnorb" if options.norb else "", "quick" if options.quick else "")
    out, work = options.out / below, options.work / below
    return Setting(options.mnist, out, work, options.quick, device, options.norb)


def _stop(number: int, frame: FrameType | None) -> None:
    """What is finished is on disk; a training goes on from its last epoch."""
    sys.exit(0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiments", nargs="+", choices=EXPERIMENTS)
    parser.add_argument("--mnist", type=Path, default=Path("mnist10k.npz"), help=_MNIST)
    parser.add_argument(
        "--norb", type=Path, help="folder of smallNORB, for viewpoints and ablation; their cells "
        "and checkpoints are then in smallnorb/ below --out and --work",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, default=Path("runs/robustness/cells"))
    parser.add_argument("--work", type=Path, default=Path("runs/robustness/work"))
    parser.add_argument("--networks", nargs="+", default=[], help="default: all of an experiment")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--minutes", type=float, default=24 * 60, help="then stop")
    parser.add_argument("--only", default="*", help="names of cells: few_labels-100-*")
    parser.add_argument(
        "--quick", action="store_true", help="hardly any data or steps; into quick/ below both"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
