"""Tables and pictures of the cells that `python -m benchmarks.robustness` has written.

    python -m benchmarks.robustness.tables CELLS...

joins the JSON files below these folders in benchmarks/results/robustness.json, and writes the
tables of docs/results/robustness.md and its picture. Intervals are 95 % intervals of the mean over
seeds (Student's t).
"""

from __future__ import annotations

import base64
import io
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from scipy import stats

from benchmarks.options import benchmark_parser
from benchmarks.robustness import small_digits
from benchmarks.robustness.figure import draw
from benchmarks.tstr.results import write_page
from training.atomic import write_text
from training.evaluation.robustness.families import FAMILIES

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "robustness.json"
PAGE = ROOT / "docs" / "results" / "robustness.md"
SHEET = ROOT / "docs" / "images" / "overlapping-digits.png"
FIGURE = ROOT / "docs" / "images" / "robustness.png"
#: What stands between these lines of the page is replaced.
MARKS = "<!-- robustness -->", "<!-- end of robustness -->"
NAMES = {
    "efficient": "Efficient-CapsNet", "capsnet1": "CapsNet, 1 iteration",
    "capsnet3": "CapsNet, 3 iterations", "matrix": "matrix capsules", "cnn": "CNN",
    "full": "3 iterations, matrix pose, coordinates, spread loss",
    "iterations1": "1 iteration", "iterations2": "2 iterations", "iterations3": "3 iterations",
    "iterations5": "5 iterations",
    "vector-pose": "vector pose", "no-coordinates": "no coordinates", "margin": "margin loss",
    "cross-entropy": "cross-entropy",
}  # fmt: skip
#: The first of these names are networks, the others variants.
NETWORKS = 5
#: Scores of an epoch that are kept.
_KEPT = ("epoch", "loss", "clean", "affine", "familiar", "novel", "test")
_DIGITS = 5

Cell = dict[str, Any]


def main() -> None:
    """Join, print and write."""
    parser = benchmark_parser(__doc__)
    parser.add_argument("cells", nargs="*", type=Path, help="folders; none: what was joined before")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--sheet", type=Path, default=SHEET)
    parser.add_argument("--figure", type=Path, default=FIGURE)
    options = parser.parse_args()
    cells = joined(options.results, options.cells, options.sheet)
    text = "\n".join(_all_tables(cells))
    print(text)
    draw(options.figure, cells, dict(itertools.islice(NAMES.items(), NETWORKS)))
    pictures = {
        options.figure: "Accuracy on held-out conditions against accuracy on those of the training",
        options.sheet: "Pairs; below them one digit and its reconstruction, then the other",
    }
    there = {path: name for path, name in pictures.items() if path.exists()}
    write_page(options.page, MARKS, text, there)


def joined(file: Path, folders: Iterable[Path], sheet: Path) -> list[Cell]:
    """All cells in a file of results and in folders; the file is written anew.

    Raises:
        SystemExit: some were measured on smallNORB and others on rendered views.
    """
    known = json.loads(file.read_text()) if file.exists() else []
    cells = {_key(cell): cell for cell in known}
    of_norb = {cell.get("norb", False) for cell in known}
    for path in sorted(p for folder in folders for p in folder.rglob("*.json")):
        cell = json.loads(path.read_text())
        if not isinstance(cell, dict) or "experiment" not in cell or cell["quick"]:
            continue
        picture = cell.pop("sheet_png", None)
        if picture and cell["about"] == {"network": "capsnet3", "seed": 0}:
            drawn = Image.open(io.BytesIO(base64.b64decode(picture)))
            drawn.resize((2 * drawn.width, 2 * drawn.height)).save(sheet, optimize=True)
        cell["epochs"] = [
            {name: round(e[name], _DIGITS) for name in _KEPT if name in e}
            for e in cell.get("epochs", [])
        ]
        cells[_key(cell)] = cell
        of_norb.add(cell.get("norb", False))
    if len(of_norb) > 1:
        raise SystemExit(
            "cells of smallNORB and of rendered views are not joined: name the folder smallnorb/ "
            "alone, with --results, --page, --sheet and --figure of its own"
        )
    found = [cells[key] for key in sorted(cells)]
    lines = ",\n".join(json.dumps(cell) for cell in found)
    write_text(file, f"[\n{lines}\n]\n")
    return found


def _key(cell: Cell) -> str:
    return "-".join([cell["experiment"], *map(str, cell["about"].values())])


def spread(values: Sequence[float], digits: int = 1, share: bool = True) -> str:
    """Such as ``93.1 [92.0, 94.2]``; with an interval from three values on.

    Args:
        share: whether they are shares, which are shown in %.
    """
    if not values:
        return "–"
    found = np.asarray(values, float) * (100 if share else 1)
    text = f"{found.mean():.{digits}f}"
    if len(found) > 2:
        half = stats.t.ppf(0.975, len(found) - 1) * stats.sem(found)
        low, high = found.mean() - half, found.mean() + half
        if share:
            low, high = max(low, 0), min(high, 100)
        text += f" [{low:.{digits}f}, {high:.{digits}f}]"
    return text


def against_cnn(cells: Sequence[Cell], across: str, upwards: str) -> Iterator[str]:
    """Each network and the CNN, stopped at the highest level of `across` that all their runs reach.

    The difference, in percentage points, is that of runs with the same seed.
    """
    networks = _by_network(cells)
    cnn = networks.pop("cnn", [])
    yield from _heading(
        "network", f"stopped at {across}", f"its {upwards}", f"{upwards}, CNN", "difference"
    )
    for name, own in networks.items():
        seeds = {cell["about"]["seed"] for cell in own} & {cell["about"]["seed"] for cell in cnn}
        pair = [[c for c in part if c["about"]["seed"] in seeds] for part in (own, cnn)]
        if not seeds:
            continue
        level, stops = at_equal([*pair[0], *pair[1]], across)
        found = {
            kind: {c["about"]["seed"]: e[upwards] for c, e in stops if c in part}
            for kind, part in zip(("ours", "theirs"), pair, strict=True)
        }
        ours, theirs = ([found[kind][seed] for seed in sorted(seeds)] for kind in found)
        gains = [100 * (x - y) for x, y in zip(ours, theirs, strict=True)]
        difference = spread(gains, share=False)
        yield _row(NAMES[name], f"{100 * level:.1f}", spread(ours), spread(theirs), difference)


def at_equal(
    cells: Sequence[Cell], measure: str
) -> tuple[float, list[tuple[Cell, dict[str, Any]]]]:
    """The highest level of a measure that all runs reach, and each run's first epoch there."""
    level = min(max(e[measure] for e in cell["epochs"]) for cell in cells)
    stops = [(c, next(e for e in c["epochs"] if e[measure] >= level)) for c in cells]
    return level, stops


def _all_tables(cells: Sequence[Cell]) -> Iterator[str]:
    tables: Mapping[str, Callable[[Sequence[Cell]], Iterator[str]]] = {
        "affine": _affine,
        "viewpoints": _viewpoints,
        "overlap": _overlap,
        "few_labels": _few_labels,
        "families": _families,
        "ablation": _ablation,
        "transfer": _transfer,
        "ablation_digits": _ablation_digits,
        "transfer_digits": _transfer_digits,
    }
    devices = sorted({cell["device"] for cell in cells})
    hours = sum(cell["seconds"] for cell in cells) / 3600
    yield f"{len(cells)} runs on {', '.join(devices)}: {hours:.1f} hours, several at a time."
    yield ""
    for experiment, table in tables.items():
        chosen = [cell for cell in cells if cell["experiment"] == experiment]
        if chosen:
            yield from table(chosen)
            yield ""


def _by_network(cells: Sequence[Cell], column: str = "network") -> dict[str, list[Cell]]:
    found: dict[str, list[Cell]] = {}
    for name in NAMES:
        own = [cell for cell in cells if cell["about"].get(column) == name]
        if own:
            found[name] = own
    return found


def _row(*cells: object) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


def _heading(*cells: str) -> Iterator[str]:
    yield _row(*cells)
    yield "|---" * len(cells) + "|"


def _affine(cells: Sequence[Cell]) -> Iterator[str]:
    yield "### Affine maps"
    yield ""
    yield "Accuracy in % after the last epoch, mean over seeds."
    yield ""
    yield from _heading(
        "network", "parameters", "seeds", "clean", "affine", "turned by 30°", "60°", "90°", "180°"
    )
    for name, own in _by_network(cells).items():
        last = [cell["epochs"][-1] for cell in own]
        found = [spread([epoch[m] for epoch in last]) for m in ("clean", "affine")]
        turned = [spread([c["rotations"][a] for c in own]) for a in ("30", "60", "90", "180")]
        yield _row(NAMES[name], f"{own[0]['parameters']:,}", len(own), *found, *turned)
    yield ""
    yield "Accuracy in % on affine maps when training stops at equal accuracy on clean digits:"
    yield ""
    yield from against_cnn(cells, "clean", "affine")
    yield ""
    yield from _adversarial(cells)


def _adversarial(cells: Sequence[Cell]) -> Iterator[str]:
    epsilons = cells[0]["attacks"]["epsilons"]
    yield "### Attacks"
    yield ""
    yield "Success rate in % of the correctly classified digits, mean over seeds, by the largest"
    yield "change ε of a pixel."
    yield ""
    yield from _heading("network", "attack", *(f"ε = {e:g}" for e in epsilons))
    for name, own in _by_network(cells).items():
        for attack in own[0]["attacks"]["rates"]:
            rates = np.array([cell["attacks"]["rates"][attack] for cell in own])
            yield _row(NAMES[name], attack, *(spread(column.tolist()) for column in rates.T))
    yield ""
    yield from _heading("network", "zero gradients, %", "size of gradients")
    for name, own in _by_network(cells).items():
        zero = spread([cell["attacks"]["zero_gradients"] for cell in own])
        size = [cell["attacks"]["median_gradient"] for cell in own]
        yield _row(NAMES[name], zero, ", ".join(f"{s:.1e}" for s in size))


def _viewpoints(cells: Sequence[Cell]) -> Iterator[str]:
    yield "### Novel viewpoints"
    for protocol in ("azimuth", "elevation"):
        chosen = [cell for cell in cells if cell["about"]["protocol"] == protocol]
        if not chosen:
            continue
        yield ""
        yield f"Two thirds of the {protocol}s held out: accuracy in % after the last epoch."
        yield ""
        yield from _heading("network", "parameters", "seeds", "familiar", "novel")
        for name, own in _by_network(chosen).items():
            last = [cell["epochs"][-1] for cell in own]
            found = [spread([epoch[m] for epoch in last]) for m in ("familiar", "novel")]
            yield _row(NAMES[name], f"{own[0]['parameters']:,}", len(own), *found)
        yield ""
        yield "The same when training stops at equal accuracy on familiar viewpoints:"
        yield ""
        yield from against_cnn(chosen, "familiar", "novel")


def _overlap(cells: Sequence[Cell]) -> Iterator[str]:
    yield "### Overlapping digits"
    yield ""
    yield "Pairs with both digits recognized, in %; mean squared error of the reconstruction of one"
    yield "digit."
    yield ""
    yield from _heading("network", "parameters", "seeds", "both right", "reconstruction error")
    for name, own in _by_network(cells).items():
        errors = [c["reconstruction_mse"] for c in own if "reconstruction_mse" in c]
        drawn = spread(errors, 4, share=False)
        right = spread([c["accuracy"] for c in own])
        yield _row(NAMES[name], f"{own[0]['parameters']:,}", len(own), right, drawn)


def _few_labels(cells: Sequence[Cell]) -> Iterator[str]:
    counts = sorted({cell["about"]["per_class"] for cell in cells})
    yield "### Few labels"
    yield ""
    yield "Accuracy in % after the last step, mean over seeds, by training digits per class."
    yield ""
    yield from _heading("network", *map(str, counts))
    for name, own in _by_network(cells).items():
        columns = []
        for count in counts:
            last = [c["epochs"][-1]["test"] for c in own if c["about"]["per_class"] == count]
            columns.append(spread(last))
        yield _row(NAMES[name], *columns)


def _families(cells: Sequence[Cell]) -> Iterator[str]:
    networks = _by_network(cells)
    for family in cells[0]["families"]:
        known = FAMILIES[family]
        yield f"### {family.capitalize()}"
        yield ""
        yield f"Accuracy in % after the last epoch, mean over seeds, by strength ({known.unit}):"
        yield ""
        yield from _heading("network", "seeds", "clean", *(f"{s:g}" for s in known.strengths))
        for name, own in networks.items():
            clean = spread([cell["epochs"][-1]["clean"] for cell in own])
            rates = np.array([cell["families"][family] for cell in own])
            found = [spread(column.tolist()) for column in rates.T]
            yield _row(NAMES[name], len(own), clean, *found)
        for name in [name for name in networks if name != "cnn"]:
            yield from _ahead(name, networks[name], networks.get("cnn", []), family)
        yield ""


def _ahead(name: str, own: Sequence[Cell], cnn: Sequence[Cell], family: str) -> Iterator[str]:
    """How far a network is ahead of the CNN, in percentage points, paired by seed."""
    theirs = {cell["about"]["seed"]: cell for cell in cnn}
    pairs = [(c, theirs[c["about"]["seed"]]) for c in own if c["about"]["seed"] in theirs]
    if pairs:
        clean = [100 * (a["epochs"][-1]["clean"] - b["epochs"][-1]["clean"]) for a, b in pairs]
        gains = 100 * np.array(
            [np.subtract(a["families"][family], b["families"][family]) for a, b in pairs]
        )
        columns = [spread(column.tolist(), share=False) for column in gains.T]
        title = f"{NAMES[name]} minus CNN"
        yield _row(title, len(pairs), spread(clean, share=False), *columns)


def _ablation(cells: Sequence[Cell]) -> Iterator[str]:
    yield "### Which parts of matrix capsules matter"
    yield ""
    yield "Error in % on held-out objects after the last epoch, mean over seeds."
    yield ""
    yield from _variants(cells)


def _ablation_digits(cells: Sequence[Cell]) -> Iterator[str]:
    count = len(small_digits.split()[1])
    yield "### Which parts of matrix capsules matter, on digits of 8 x 8 pixels"
    yield ""
    yield "Tiny matrix capsules (types 4, 8, 8) on scikit-learn's digits, 15 epochs. Each row"
    yield "differs in one respect from two iterations, matrix poses, coordinates and the spread"
    yield f"loss (published: from three iterations). Error in % on the {count} test digits after"
    yield "the last epoch, mean over seeds; the intervals (Wilson, 95 %) cover the sampling of"
    yield "digits, not the variation between seeds."
    yield ""
    yield from _variants(cells, lambda errors: among(errors, count))


def _variants(
    cells: Sequence[Cell], shown: Callable[[Sequence[float]], str] = spread
) -> Iterator[str]:
    yield from _heading("variant", "parameters", "seeds", "error", "published, smallNORB")
    published = {
        "full": "1.8", "iterations1": "9.7", "iterations2": "2.2", "iterations3": "1.8",
        "iterations5": "3.9", "vector-pose": "2.9", "no-coordinates": "2.6", "margin": "3.2",
        "cross-entropy": "5.8",
    }  # fmt: skip
    for name, own in _by_network(cells, "variant").items():
        error = shown([1 - cell["epochs"][-1]["test"] for cell in own])
        yield _row(NAMES[name], f"{own[0]['parameters']:,}", len(own), error, published[name])


def among(errors: Sequence[float], count: int) -> str:
    """The mean of shares in %, with the interval of one among so many."""
    mean = float(np.mean(errors))
    low, high = stats.binomtest(round(mean * count), count).proportion_ci(method="wilson")
    return f"{100 * mean:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


def _transfer(cells: Sequence[Cell]) -> Iterator[str]:
    yield "### Black box"
    yield ""
    yield from _between(cells)


def _transfer_digits(cells: Sequence[Cell]) -> Iterator[str]:
    yield "### Black box, on digits of 8 x 8 pixels"
    yield ""
    yield from _between(cells)


def _between(cells: Sequence[Cell]) -> Iterator[str]:
    yield "Success rate in % of PGD for one network (rows) on another (columns), mean over seeds."
    yield ""
    names = list(cells[0]["rates"])
    for number, epsilon in enumerate(cells[0]["epsilons"]):
        yield from _heading(f"ε = {epsilon:g}, made for", *(NAMES[name] for name in names))
        for source in names:
            columns = []
            for target in names:
                rates = [cell["rates"][source][target][number] for cell in cells]
                columns.append(spread([rate for rate in rates if rate is not None]))
            yield _row(NAMES[source], *columns)
        yield ""


if __name__ == "__main__":
    main()
