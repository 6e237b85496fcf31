"""``python -m benchmarks.tstr --data DIR``: synthetic volumes beside few real ones.

DIR holds labelled volumes, such as the hippocampus of the Medical Segmentation Decathlon. Of its
cases 60 are tested on. For each number of labelled volumes and each seed (which draws the volumes),
CapsPix2Pix, pix2pix and SPADE are trained on the slices of these volumes alone, and synthesize 32
volumes from deformed label maps; as many are drawn from the same label maps by domain
randomization; then one small 3-D U-Net is trained for each arm
(`benchmarks.tstr.volumes.cells.ARMS`), always with the same number of steps and batches.

Every cell is a JSON file in ``--out``; what exists is not computed again, so that an interrupted
command continues and several may share the work. It ends with the table.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from benchmarks.options import benchmark_parser
from benchmarks.tstr.volumes.cells import ARMS, Cell, Settings, run_cells
from benchmarks.tstr.volumes.data import Pool
from training.evaluation.statistics import Spread, spread_of


def main() -> None:
    """Compute what is missing, print the table."""
    options = _options()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(options.threads)
    if not options.only_show:
        _compute(options)
    files = sorted(options.out.glob("n*-seed*-*.json"))
    cells = [Cell.model_validate_json(file.read_text()) for file in files]
    if options.gather:
        rows = ",\n".join(cell.model_dump_json() for cell in cells)
        options.gather.write_text(f"[{rows}]\n")
    print("\n".join(table(cells)))


def _compute(options: argparse.Namespace) -> None:
    settings = Settings(
        steps=options.steps,
        generator_steps=options.generator_steps,
        added=options.added,
        work=options.work,
        out=options.out,
        device=torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu")),
    )
    pool = Pool(options.data, options.limit)
    for count, seed in itertools.product(options.volumes, options.seeds):
        run_cells(pool, count, seed, options.arms, settings)


def table(cells: Sequence[Cell]) -> Iterator[str]:
    """Markdown: mean Dice by arm and number of volumes, and its difference to augmented real."""
    counts = sorted({cell.volumes for cell in cells})
    yield "| trained on | " + " | ".join(f"n = {count}" for count in counts) + " |"
    yield "|---|" + "---|" * len(counts)
    for name, arm in ARMS.items():
        of = [[c for c in cells if c.arm == name and c.volumes == count] for count in counts]
        base = [[c for c in cells if c.arm == "augmented" and c.volumes == n] for n in counts]
        if any(of):
            shown = (_shown(a, b, name) for a, b in zip(of, base, strict=True))
            yield f"| {arm.title} | " + " | ".join(shown) + " |"


def _shown(cells: Sequence[Cell], base: Sequence[Cell], name: str) -> str:
    """Mean, the seeds' means, and the gain with its interval over tested volumes."""
    if not cells:
        return ""
    text = f"{np.mean([c.mean for c in cells]):.3f}"
    text += f" ({', '.join(f'{c.mean:.3f}' for c in sorted(cells, key=lambda c: c.seed))})"
    found = gain(cells, base)
    if name != "augmented" and found is not None and found.interval is not None:
        low, high = found.interval
        text += f"; {found.mean:+.3f} [{low:+.3f}, {high:+.3f}]"
    return text


def gain(cells: Sequence[Cell], base: Sequence[Cell]) -> Spread | None:
    """Dice minus that of the base, paired by seed and tested volume."""
    of_seed = {cell.seed: cell for cell in base}
    pairs = [
        (float(np.mean(a) - np.mean(b)), str(i))
        for cell in cells
        if cell.seed in of_seed
        for i, (a, b) in enumerate(zip(cell.dice, of_seed[cell.seed].dice, strict=True))
    ]
    return spread_of([d for d, _ in pairs], [i for _, i in pairs])


def _options() -> argparse.Namespace:
    parser = benchmark_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="labelled volumes")
    parser.add_argument("--out", type=Path, default=Path("runs/tstr-volumes/cells"))
    parser.add_argument("--work", type=Path, default=Path("runs/tstr-volumes"), help="generators")
    parser.add_argument("--volumes", type=int, nargs="+", default=[4, 8, 16])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=list(ARMS))
    parser.add_argument("--steps", type=int, default=600, help="of each U-Net")
    parser.add_argument("--generator-steps", type=int, default=800)
    parser.add_argument("--added", type=int, default=32, help="volumes that an arm adds")
    parser.add_argument("--limit", type=int, help="read so many cases only, as a check")
    parser.add_argument("--device", help="default: a GPU where there is one")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--gather", type=Path, help="one JSON file for all cells")
    parser.add_argument("--only-show", action="store_true", help="train nothing")
    return parser.parse_args()
