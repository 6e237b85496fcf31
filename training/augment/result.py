"""What came of it, on one page and one sheet of pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caps_med.images import MedicalImage, read_image
from training.atomic import write_text
from training.augment.benefit import Usefulness
from training.augment.config import AugmentOrder, Workshop
from training.augment.generate import Drawn, files_of
from training.augment.models import POOR
from training.augment.split import Parts
from training.data.stacks import LIMITS
from training.labelmaps.originals import Original
from training.pictures.figures import histogram, strip_plot
from training.pictures.pixels import as_pixels, data_url
from training.pictures.sheet import Cell, image_pixels, label_pixels, most_labelled, sheet
from training.reports.page import rendered

#: Rows of pictures, and of dropped ones.
_ROWS, _DROPPED = 8, 4
#: A share of dropped images that a reader should know of.
_MANY = 0.3
#: So much more Dice on synthetic images than on real ones says that they are too easy.
_EASIER = 0.03


@dataclass(frozen=True)
class Result:
    """All that a run found.

    Attributes:
        drawn: in order, kept and dropped.
        generator, judge: what the stages of that name left.
        usefulness: None unless it was asked for.
    """

    order: AugmentOrder
    parts: Parts
    drawn: Sequence[Drawn]
    generator: Mapping[str, Any]
    judge: Mapping[str, Any]
    usefulness: Usefulness | None

    @property
    def kept(self) -> list[Drawn]:
        """The images that were kept."""
        return [one for one in self.drawn if one.kept]

    @property
    def dropped(self) -> list[Drawn]:
        """The images that were not."""
        return [one for one in self.drawn if not one.kept]

    def notes(self) -> Iterator[str]:
        """What a reader should know before using the images."""
        kept, dice = len(self.kept), list(self.judge["dice"].values())
        if kept < self.order.count:
            yield (
                f"{kept} of the {self.order.count} images that were asked for: the geometry of the "
                f"other {len(self.dropped)} that were drawn did not survive. Train the generator "
                "longer, or give it more labelled images."
            )
        elif len(self.dropped) > _MANY * len(self.drawn):
            yield (
                f"{len(self.dropped)} of {len(self.drawn)} images were dropped: the generator "
                "often loses the geometry. A longer training may help."
            )
        if _mean(dice) < POOR:
            yield (
                f"the judge finds the labels of real images with a Dice of only {_mean(dice):.2f}: "
                "what it says of synthetic ones is worth little."
            )
        elif self.kept and _mean(one.dice for one in self.kept) > _mean(dice) + _EASIER:
            yield (
                f"the judge finds the labels of the kept images with a mean Dice of "
                f"{_mean(one.dice for one in self.kept):.2f}, those of real ones with "
                f"{_mean(dice):.2f}: the synthetic images are easier than real ones, cleaner "
                "perhaps, and may teach less."
            )
        if self.judge["seen"]:
            yield (
                f"the judge {self.judge['model']} may have been trained on these very images; its "
                "Dice on them is then higher than on new ones, and the threshold too strict."
            )

    def judged(self) -> str:
        """How images were judged, in words."""
        dice = list(self.judge["dice"].values())
        threshold = self.judge["threshold"]
        if self.judge["seen"]:
            how = f"{self.judge['model']} finds"
        else:
            how = "a segmenter trained on the real images, cross-validated, finds"
        why = (
            "as asked for"
            if self.judge["given"]
            else "two standard deviations below the mean of what it finds in real images"
            + ("" if self.judge["seen"] else " that it has not seen")
            + f" ({_mean(dice):.3f} over {len(dice)}), at least a tenth below"
        )
        return (
            f"An image is kept where {how} its label map with a Dice of {threshold:.3f} or more: "
            f"{why}. {len(self.kept)} of {len(self.drawn)} images were kept."
        )


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def write_pages(result: Result, workshop: Workshop) -> None:
    """``sheet.png`` and ``report.html``, each whole or not at all."""
    pictures = image_sheet(result, workshop)
    pictures.save(workshop.out / "sheet.png")
    order, found = result.order, result.usefulness
    synthetic = [one.dice for one in result.drawn]
    html = rendered(
        "augment.html.jinja",
        title=f"{len(result.kept)} synthetic images like {result.parts.dataset.name}",
        real=len(result.parts.dataset.cases),
        notes=list(result.notes()),
        usefulness=found,
        seeds=order.segmenter_seeds,
        means=_means(found) if found else {},
        cases=_cases(found) if found else "",
        sheet=data_url(as_pixels(pictures)),
        judged=result.judged(),
        histogram=histogram(
            {"real": list(result.judge["dice"].values()), "synthetic": synthetic},
            result.judge["threshold"],
            "Dice of what the judge finds",
        ),
        dropped=_dropped(result, workshop),
        facts=_facts(result),
    )
    write_text(workshop.out / "report.html", html)


def image_sheet(result: Result, workshop: Workshop) -> MedicalImage:
    """Rows of: real image, its labels, new labels, the image made of them, what is found in it."""
    kept = _evenly(result.kept, _ROWS)
    originals = {one.case.name: one for one in result.parts.originals.maps}
    shown = _evenly(list(originals.values()), len(kept))
    cells = []
    for number, one in enumerate(kept):
        cells += _real(shown[number % len(shown)], result.parts)
        cells += _synthetic(one, workshop)
    return sheet(cells, 5)


def _real(original: Original, parts: Parts) -> list[Cell]:
    z = most_labelled(original.label)
    image, _ = parts.dataset.read(original.case)
    name = original.case.name
    pixels = image_pixels(image, z), label_pixels(original.label, z)
    return [Cell(f"real {name}", (pixels[0],)), Cell("its labels", (pixels[1],))]


def _synthetic(one: Drawn, workshop: Workshop) -> list[Cell]:
    images, labels = files_of(workshop.out, one)
    label = read_image(labels, kind="labels", limits=LIMITS)
    answers = workshop.work / "answers" / labels.name
    found = read_image(answers, kind="labels", limits=LIMITS)
    z = most_labelled(label)
    image = read_image(images[0], limits=LIMITS)
    return [
        Cell(f"{one.name}, {one.origin.how}", (label_pixels(label, z),)),
        Cell(f"synthetic, seed {one.seed}", (image_pixels(image, z),)),
        Cell(f"found in it, Dice {one.dice:.3f}", (label_pixels(found, z),)),
    ]


def _dropped(result: Result, workshop: Workshop) -> str:
    """The worst ones, as a picture inside the page; nothing without any."""
    worst = sorted(result.dropped, key=lambda one: one.dice)[:_DROPPED]
    cells = [cell for one in worst for cell in _synthetic(one, workshop)]
    return data_url(as_pixels(sheet(cells, 6))) if cells else ""


def _evenly(items: Sequence[Any], count: int) -> list[Any]:
    count = min(count, len(items))
    return [items[i * len(items) // count] for i in range(count)]


def _means(found: Usefulness) -> dict[str, list[float]]:
    return {
        way: [sum(seed.values()) / len(seed) for seed in seeds] for way, seeds in found.dice.items()
    }


def _cases(found: Usefulness) -> str:
    """Every test image as a dot, its mean over the seeds."""
    dots: dict[str, dict[str, list[float]]] = {}
    for way, seeds in found.dice.items():
        means = [sum(seed[case] for seed in seeds) / len(seeds) for case in seeds[0]]
        dots[way] = {"Dice": means}
    return strip_plot(dots, "Dice of each test image, line at the median")


def _facts(result: Result) -> dict[str, str]:
    order = result.order
    hows = Counter(one.origin.how for one in result.kept)
    facts = {
        "data": f"{len(result.parts.dataset.cases)} labelled images of {Path(order.data).name}",
        "set aside": ""
        if result.usefulness is None
        else f"{result.usefulness.test}; nothing above was learned from them",
        "new label maps": ", ".join(f"{n} {how}" for how, n in sorted(hows.items())),
        "generator": f"{result.generator['model']}, weights {result.generator['weights_sha256']}",
        "judge": f"{result.judge['model']}, weights {result.judge['weights_sha256']}",
        "seed": str(order.seed),
        "command": order.command,
    }
    return {name: value for name, value in facts.items() if value}
