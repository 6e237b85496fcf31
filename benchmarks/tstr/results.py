"""Measured results, on disk and as tables."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from pydantic import BaseModel

from benchmarks.tstr.arms import ARMS, PLAIN, Sizes
from benchmarks.tstr.generators import Cost
from benchmarks.tstr.locks import locked
from benchmarks.tstr.quality import Quality
from training.atomic import write_text
from training.evaluation.statistics import Spread, spread_of

#: What stands between these lines of a page is replaced.
MARKS = "<!-- tstr -->", "<!-- end of tstr -->"
#: What the tables call things, and how many digits they show.
NAMES = {"real": "real images", "capspix2pix": "CapsPix2Pix", "capspix2pix-plain": PLAIN,
          "pix2pix": "pix2pix", "spade": "SPADE"}  # fmt: skip
_DIVERSITY = {"l1": "absolute difference", "structure": "1 - SSIM"}
_MEASURES = {
    "geometry": ("geometry kept, Dice", 3),
    "frechet": ("Fréchet distance", 2),
    "mmd": ("MMD", 3),
    "spectrum": ("power spectrum, decades", 3),
    "histogram": ("intensities", 4),
}
#: Digits of a Dice that are kept.
_DIGITS = 4


class Results(BaseModel):
    """Everything measured so far; a run goes on where it stopped.

    Attributes:
        settings: of the whole benchmark; other ones need another file.
        dice: arm -> seed -> Dice of each tested image.
        quality: generator -> its images; ``real`` -> real ones in the same place.
        costs: generator -> its training.
    """

    settings: dict[str, str]
    dice: dict[str, dict[int, list[float]]] = {}
    quality: dict[str, Quality] = {}
    costs: dict[str, Cost] = {}

    def keep(self, arm: str, seed: int, dice: list[float]) -> None:
        """Take in what one network scored."""
        self.dice.setdefault(arm, {})[seed] = [round(value, _DIGITS) for value in dice]

    def save(self, file: Path) -> None:
        """Write it, whole or not at all, with what others have put there meanwhile."""
        with locked(file):
            if file.exists():
                self._join(Results.model_validate_json(file.read_text()))
            write_text(file, self.model_dump_json(indent=1) + "\n")

    def _join(self, other: Results) -> None:
        """Take in what only the other has."""
        for arm, by_seed in other.dice.items():
            self.dice[arm] = {**by_seed, **self.dice.get(arm, {})}
        self.quality = {**other.quality, **self.quality}
        self.costs = {**other.costs, **self.costs}


def opened(file: Path, settings: Mapping[str, str], generators: Sequence[str] = ()) -> Results:
    """The results in a file, or new ones.

    The setting of one of the `generators` that the file does not know, for it came later, is added.

    Raises:
        SystemExit: it holds results of other settings.
    """
    if not file.exists():
        return Results(settings=dict(settings))
    found = Results.model_validate_json(file.read_text())
    known = {name: settings[name] for name in generators} | found.settings
    other = {k: (known.get(k), v) for k, v in settings.items() if known.get(k) != v}
    if other:
        raise SystemExit(f"{file} was measured with other settings {other}: name another --out")
    return found.model_copy(update={"settings": known})


def summary(results: Results, arm: str) -> tuple[Spread, list[float]] | None:
    """Dice over images and seeds, its interval over images; and each seed's mean."""
    by_seed = results.dice.get(arm)
    if not by_seed:
        return None
    by_seed = dict(sorted(by_seed.items()))
    values = [value for dice in by_seed.values() for value in dice]
    images = [str(i) for dice in by_seed.values() for i in range(len(dice))]
    found = spread_of(values, images)
    assert found is not None  # noqa: S101 - there are values
    return found, [float(np.mean(dice)) for dice in by_seed.values()]


def gain(results: Results, arm: str, over: str) -> Spread | None:
    """Dice of one arm minus another's, paired by image and seed."""
    pairs = [
        (a - b, str(i))
        for seed, dice in results.dice.get(arm, {}).items()
        for i, (a, b) in enumerate(
            zip(dice, results.dice.get(over, {}).get(seed, []), strict=False)
        )
    ]
    return spread_of([d for d, _ in pairs], [i for _, i in pairs])


def table(results: Results, sizes: Sizes) -> str:
    """Two Markdown tables: the arms, and the generators."""
    return "\n".join([*_arms(results, sizes), "", *_generators(results)])


def write_page(file: Path, marks: tuple[str, str], text: str, drawn: Mapping[Path, str]) -> None:
    """Put a text and pictures between the marks of a Markdown file; a new file is all of it."""
    begin, end = marks
    links = [f"![{name}]({os.path.relpath(path, file.parent)})" for path, name in drawn.items()]
    found = "\n\n".join([begin, text, *links, end])
    if not file.exists():
        file.write_text(found + "\n", encoding="utf-8")
        return
    before, mark, rest = file.read_text(encoding="utf-8").partition(begin)
    _, closing, after = rest.partition(end)
    if not mark or not closing:
        raise SystemExit(f"{file}: the marks {begin} and {end} are missing")
    file.write_text(before + found + after, encoding="utf-8")


def _arms(results: Results, sizes: Sizes) -> Iterator[str]:
    tested = f"Dice on {sizes.tested} real images [95 %]"
    yield f"| trained on | {tested} | each seed | minus real only |"
    yield "|---|---|---|---|"
    for name, arm in ARMS.items():
        found = summary(results, name)
        if found is None:
            continue
        spread, means = found
        difference = gain(results, name, "real") if name != "real" else None
        yield (
            f"| {arm.title} | {_shown(spread)} | {', '.join(f'{m:.3f}' for m in means)} | "
            f"{_shown(difference, sign='+') if difference else ''} |"
        )


def _generators(results: Results) -> Iterator[str]:
    found = {name: results.quality[name] for name in NAMES if name in results.quality}
    if not found:
        return
    yield "| | " + " | ".join(NAMES[name] for name in found) + " |"
    yield "|---|" + "---|" * len(found)
    costs = [results.costs.get(name) for name in found]
    rows = {
        "parameters": [
            f"{q.parameters / 1e6:.2f} M" if q.parameters else "" for q in found.values()
        ],
        "training, minutes": [f"{c.minutes:.0f}" if c else "" for c in costs],
        "peak memory, MB": [f"{c.peak_mb:.0f}" if c else "" for c in costs],
    }
    for distance, name in _DIVERSITY.items():
        rows[f"diversity, {name}"] = [f"{q.diversity[distance]:.2f}" for q in found.values()]
    for measure, (name, digits) in _MEASURES.items():
        rows[name] = [f"{getattr(q, measure):.{digits}f}" for q in found.values()]
    for row, cells in rows.items():
        yield f"| {row} | " + " | ".join(cells) + " |"


def _shown(spread: Spread, sign: str = "") -> str:
    text = f"{spread.mean:{sign}.3f}"
    if spread.interval is not None:
        text += f" [{spread.interval[0]:{sign}.3f}, {spread.interval[1]:{sign}.3f}]"
    return text
