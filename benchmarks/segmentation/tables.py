"""From the results of cells to one file, and from that to tables with intervals."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.segmentation.cells import Cell
from benchmarks.segmentation.shifts import FAMILIES
from training.atomic import write_text

RESULTS = Path(__file__).parents[1] / "results" / "segmentation-hippocampus.json"
DRAWS = 2000
#: Steps of the trainings on all data; shorter ones compare levels of augmentation.
ALL_STEPS = 1500
ABOUT = {
    "command": "python -m benchmarks.segmentation --data DIR --out FOLDER, with the options that "
    "each cell names; --collect FOLDER",
    "data": "Medical Segmentation Decathlon, Task04 hippocampus (Antonelli et al. 2022), "
    "CC BY-SA 4.0",
}

Result = Mapping[str, Any]
#: Case -> value.
Scores = Mapping[str, float]


def collect(folder: Path) -> None:
    """Add all cells below a folder to `RESULTS`.

    Of two of one name the first is kept, unless only the other has the out-of-domain tests.
    """
    names = [field.name for field in fields(Cell)]
    kept = json.loads(RESULTS.read_text())["cells"] if RESULTS.exists() else []
    found: dict[str, Result] = {Cell(**{n: cell[n] for n in names}).name: cell for cell in kept}
    for file in sorted(folder.rglob("*.json")):
        cell = json.loads(file.read_text())
        if file.stem not in found or cell["shifts"] > found[file.stem]["shifts"]:
            found[file.stem] = _compact(cell)
    text = ",\n".join(json.dumps(found[name]) for name in sorted(found))
    note = json.dumps(ABOUT)
    write_text(RESULTS, f'{{"about": {note}, "cells": [\n{text}\n]}}\n')


def _compact(result: dict[str, Any]) -> Result:
    """Dice of both parts of each case, and of each family of tests the mean of each case."""
    dice = result.pop("dice")
    families = {}
    for family, tests in FAMILIES.items():
        known = [name for name in tests if name in dice]
        if known and family != "as it is":
            families[family] = [
                round(
                    float(np.mean([d for name in known for d in dice[name][i] if d is not None])), 4
                )
                for i in range(len(result["cases"]))
            ]
    return {**result, "dice": dice["as it is"], "families": families}


def show() -> None:
    """Print all tables as Markdown."""
    cells = json.loads(RESULTS.read_text())["cells"]
    test = [cell for cell in cells if not cell["choosing"] and cell["capsule_weight"] is None]
    usual = [
        c for c in test
        if c["level"] == "usual" and (c["count"] is not None or c["steps"] == ALL_STEPS)
    ]  # fmt: skip
    _cross_validation([c for c in usual if c["count"] is None])
    _label_efficiency([c for c in usual if c["fold"] == 0])
    for steps, own in sorted(_by(test, "steps").items()):
        _out_of_domain([c for c in own if c["families"]], f"{steps} steps")
    _rates([cell for cell in cells if cell["choosing"]])


def _cross_validation(cells: Sequence[Result]) -> None:
    print("\n| network | cases | anterior | posterior | mean | minus U-Net | minus ablation "
          "| parameters | ms a step |\n|---|---|---|---|---|---|---|---|---|")  # fmt: skip
    for network, own in _by(cells, "network").items():
        parts = [f"{np.mean(list(_dice(own, [part]).values())):.3f}" for part in (0, 1)]
        scores = _dice(own)
        others = [
            difference(scores, _dice([c for c in cells if c["network"] == other]))
            for other in ("unet", f"{network}-plain")
        ]
        step = np.median([c["step_ms"] for c in own if c["device"] != "CPU"])
        row = [network, len(scores), *parts, f"{np.mean(list(scores.values())):.3f}", *others,
               f"{own[0]['parameters']:,}", f"{step:.0f}"]  # fmt: skip
        print("| " + " | ".join(map(str, row)) + " |")


def _label_efficiency(cells: Sequence[Result]) -> None:
    networks = list(_by(cells, "network"))
    print("\n| labelled cases | " + " | ".join(networks) + " |\n|---|" + "---|" * len(networks))
    counts = _by(cells, "count")
    for count in sorted(counts, key=lambda n: n or 10**6):
        scores = {n: _dice([c for c in counts[count] if c["network"] == n]) for n in networks}
        texts = []
        for network, own in scores.items():
            mean = f"{np.mean(list(own.values())):.3f}" if own else ""
            others = [
                difference(own, scores.get(other, {})) for other in ("unet", f"{network}-plain")
            ]
            compared = "; ".join(text for text in others if text and network != "unet")
            texts.append(f"{mean} ({compared})" if compared else mean)
        print(f"| {count or 'all'} | " + " | ".join(texts) + " |")


def _out_of_domain(cells: Sequence[Result], length: str) -> None:
    for level, own in _by(cells, "level").items():
        networks = list(_by(own, "network"))
        head = [f"{level}, {length}", *networks]
        print("\n| " + " | ".join(head) + " |\n" + "|---" * len(head) + "|")
        for family in FAMILIES:
            texts = []
            unet = _family([c for c in own if c["network"] == "unet"], family)
            for network in networks:
                scores = _family([c for c in own if c["network"] == network], family)
                mean = f"{np.mean(list(scores.values())):.3f}"
                more = "" if network == "unet" else f" ({difference(scores, unet)})"
                texts.append(mean + more)
            print(f"| {family} | " + " | ".join(texts) + " |")


def _rates(cells: Sequence[Result]) -> None:
    print("\n| network | steps | learning rate | Dice of 20 training cases set aside |")
    print("|---|---|---|---|")
    for cell in sorted(cells, key=lambda c: (c["network"], c["steps"], c["rate"] or 0)):
        score = np.mean(list(_dice([cell]).values()))
        print(f"| {cell['network']} | {cell['steps']} | {cell['rate']} | {score:.3f} |")


def _by(cells: Iterable[Result], key: str) -> dict[Any, list[Result]]:
    groups: dict[Any, list[Result]] = defaultdict(list)
    for cell in cells:
        groups[cell[key]].append(cell)
    return groups


def _dice(cells: Iterable[Result], parts: Sequence[int] = (0, 1)) -> Scores:
    """Case -> Dice, the mean of these parts and of all seeds."""
    return _means(
        (name, float(np.mean([both[part] for part in parts])))
        for cell in cells
        for name, both in zip(cell["cases"], cell["dice"], strict=True)
    )


def _family(cells: Iterable[Result], family: str) -> Scores:
    if family == "as it is":
        return _dice(cells)
    return _means(
        pair for cell in cells for pair in zip(cell["cases"], cell["families"][family], strict=True)
    )


def _means(pairs: Iterable[tuple[str, float]]) -> Scores:
    found: dict[str, list[float]] = defaultdict(list)
    for name, value in pairs:
        found[name].append(value)
    return {name: float(np.mean(values)) for name, values in found.items()}


def difference(own: Scores, other: Scores) -> str:
    """Mean paired difference in points; of several cases with the bootstrap's 95 % interval."""
    common = sorted(own.keys() & other.keys())
    if not common or own == other:
        return ""
    values: NDArray[np.float64] = 100 * np.array([own[name] - other[name] for name in common])
    if len(values) == 1:
        return f"{values.mean():+.1f}"
    drawn = np.random.default_rng(0).integers(len(values), size=(DRAWS, len(values)))
    low, high = np.percentile(values[drawn].mean(1), (2.5, 97.5))
    return f"{values.mean():+.1f}, {low:+.1f} to {high:+.1f}"
