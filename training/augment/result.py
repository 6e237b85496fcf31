"""The result of a run: notes, ``report.html`` and ``sheet.png``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caps_med.images import MedicalImage, label_palette, read_image
from caps_med.wording import counted
from training.atomic import write_text
from training.augment.benefit import Benefit
from training.augment.config import AugmentConfig, AugmentFolder
from training.augment.generate import GeneratedImage, files_of
from training.augment.models import POOR
from training.augment.split import Parts
from training.data.layouts.naming import name_of
from training.data.stacks import LIMITS
from training.labelmaps.originals import Original
from training.pictures.figures import histogram, strip_plot
from training.pictures.pixels import RGB, as_pixels, data_url
from training.pictures.sheet import Cell, image_pixels, label_pixels, most_labelled, sheet
from training.reports.page import rendered

#: Rows of kept and of dropped images on the sheets.
_ROWS, _DROPPED = 8, 4
#: A larger share of dropped images is reported.
_MANY = 0.3
#: Synthetic images count as easier than real ones from this difference in Dice.
_EASIER = 0.03


@dataclass(frozen=True)
class Result:
    """The result of a run.

    Attributes:
        drawn: the synthetic images in order, kept and dropped.
        generator, judge: the results of these stages.
        benefit: None unless it was measured.
    """

    config: AugmentConfig
    parts: Parts
    drawn: Sequence[GeneratedImage]
    generator: Mapping[str, Any]
    judge: Mapping[str, Any]
    benefit: Benefit | None

    @property
    def kept(self) -> list[GeneratedImage]:
        """The images that were kept."""
        return [one for one in self.drawn if one.kept]

    @property
    def dropped(self) -> list[GeneratedImage]:
        """The images that were dropped."""
        return [one for one in self.drawn if not one.kept]

    def notes(self) -> Iterator[str]:
        """What a reader should know before using the images."""
        kept, dice = len(self.kept), list(self.judge["dice"].values())
        if kept < self.config.count:
            yield (
                f"only {kept} of the requested {counted(self.config.count, 'image')}: the geometry "
                f"of the other {len(self.dropped)} did not survive. Train the generator longer, or "
                "give it more labelled images."
            )
        elif len(self.dropped) > _MANY * len(self.drawn):
            yield (
                f"{len(self.dropped)} of {counted(len(self.drawn), 'image')} dropped: the "
                "generator often loses the geometry. A longer training may help."
            )
        if _mean(dice) < POOR:
            yield (
                f"the judge finds the labels of real images with a Dice of only {_mean(dice):.2f}: "
                "its judgement of synthetic images is worth little."
            )
        elif self.kept and _mean(one.dice for one in self.kept) > _mean(dice) + _EASIER:
            yield (
                f"the judge finds the labels of the kept images with a mean Dice of "
                f"{_mean(one.dice for one in self.kept):.2f}, those of real ones with "
                f"{_mean(dice):.2f}: the synthetic images are easier than real ones, perhaps "
                "cleaner, and may teach less."
            )
        if self.judge["seen"]:
            yield (
                f"the judge {self.judge['model']} may have been trained on these very images; its "
                "Dice on them is then higher than on new ones, and the threshold too strict."
            )
        yield from self._doubts()

    def _doubts(self) -> Iterator[str]:
        """What the generator warned of, each kind once, by its first example."""
        kinds: dict[str, list[str]] = {}
        for one in self.drawn:
            for warning in one.warnings:
                kinds.setdefault(warning.partition(":")[0], []).append(warning)
        for told in kinds.values():
            yield (
                f"about {len(told)} of {counted(len(self.drawn), 'new label map')}, the generator "
                f"{self.generator['model']} says: {told[0]}. manifest.json contains its warnings "
                "about each."
            )

    def judged(self) -> str:
        """How images were judged, in a paragraph."""
        dice = list(self.judge["dice"].values())
        threshold = self.judge["threshold"]
        if self.judge["seen"]:
            how = f"{self.judge['model']} finds"
        else:
            how = "a segmenter trained on the real images, cross-validated, finds"
        why = (
            "as requested"
            if self.judge["given"]
            else "two standard deviations below the mean of what it finds in real images"
            + ("" if self.judge["seen"] else " that it has not seen")
            + f" ({_mean(dice):.3f} over {len(dice)}), at least a tenth below"
        )
        return (
            f"An image is kept if {how} its label map with a Dice of {threshold:.3f} or more: "
            f"{why}. {len(self.kept)} of {counted(len(self.drawn), 'image')} kept."
        )


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def write_pages(result: Result, folder: AugmentFolder) -> None:
    """Write ``sheet.png`` and ``report.html``."""
    pictures = image_sheet(result, folder)
    pictures.save(folder.out / "sheet.png")
    config, found = result.config, result.benefit
    synthetic = [one.dice for one in result.drawn]
    html = rendered(
        "augment.html.jinja",
        title=f"{len(result.kept)} synthetic images like {result.parts.dataset.name}",
        real=len(result.parts.dataset.cases),
        notes=list(result.notes()),
        benefit=found,
        seeds=config.segmenter_seeds,
        means=_means(found) if found else {},
        cases=_cases(found) if found else "",
        sheet=data_url(as_pixels(pictures)),
        judged=result.judged(),
        histogram=histogram(
            {"real": list(result.judge["dice"].values()), "synthetic": synthetic},
            result.judge["threshold"],
            "Dice of the labels that the judge finds",
        ),
        dropped=_dropped(result, folder),
        facts=_facts(result),
    )
    write_text(folder.out / "report.html", html)


def image_sheet(result: Result, folder: AugmentFolder) -> MedicalImage:
    """Rows of a real image, its labels, new labels, their image, and the judge's segmentation."""
    kept = _evenly(result.kept, _ROWS)
    originals = {one.case.name: one for one in result.parts.originals.maps}
    shown = _evenly(list(originals.values()), len(kept))
    cells = []
    for number, one in enumerate(kept):
        cells += _real(shown[number % len(shown)], result.parts)
        cells += _synthetic(one, folder, result.parts)
    return sheet(cells, 5)


def _real(original: Original, parts: Parts) -> list[Cell]:
    z = most_labelled(original.label)
    image, _ = parts.dataset.read(original.case)
    name = original.case.name
    pixels = image_pixels(image, z), _colored(original.label, z, parts)
    return [Cell(f"real {name}", (pixels[0],)), Cell("its labels", (pixels[1],))]


def _colored(label: MedicalImage, slice: int, parts: Parts) -> RGB:
    """A slice of labels in the colors of the first original, whichever file they come from."""
    palette = label_palette(parts.originals.maps[0].label.palette)
    return label_pixels(label, slice, values=parts.dataset.label_values, palette=palette)


def _synthetic(one: GeneratedImage, folder: AugmentFolder, parts: Parts) -> list[Cell]:
    images, labels = files_of(folder.out, one)
    label = read_image(labels, kind="labels", limits=LIMITS)
    answers = folder.work / "answers" / labels.name
    found = read_image(answers, kind="labels", limits=LIMITS)
    z = most_labelled(label)
    image = read_image(images[0], limits=LIMITS)
    return [
        Cell(f"{one.name}, {one.origin.how}", (_colored(label, z, parts),)),
        Cell(f"synthetic, seed {one.seed}", (image_pixels(image, z),)),
        Cell(f"found in it, Dice {one.dice:.3f}", (_colored(found, z, parts),)),
    ]


def _dropped(result: Result, folder: AugmentFolder) -> str:
    """The worst dropped images as a data URL; empty without any."""
    worst = sorted(result.dropped, key=lambda one: one.dice)[:_DROPPED]
    cells = [cell for one in worst for cell in _synthetic(one, folder, result.parts)]
    return data_url(as_pixels(sheet(cells, 6))) if cells else ""


def _evenly(items: Sequence[Any], count: int) -> list[Any]:
    count = min(count, len(items))
    return [items[i * len(items) // count] for i in range(count)]


def _means(found: Benefit) -> dict[str, list[float]]:
    return {
        way: [sum(seed.values()) / len(seed) for seed in seeds] for way, seeds in found.dice.items()
    }


def _cases(found: Benefit) -> str:
    """A plot of the mean Dice over the seeds of every test image."""
    dots: dict[str, dict[str, list[float]]] = {}
    for way, seeds in found.dice.items():
        means = [sum(seed[case] for seed in seeds) / len(seeds) for case in seeds[0]]
        dots[way] = {"Dice": means}
    return strip_plot(dots, "Dice of each test image, line at the median")


def _facts(result: Result) -> dict[str, str]:
    config = result.config
    hows = Counter(one.origin.how for one in result.kept)
    data, images = name_of(Path(config.data)), len(result.parts.dataset.cases)
    facts = {
        "data": f"{images} labelled images of {data}",
        "set aside": ""
        if result.benefit is None
        else f"{result.benefit.test}; none of the above was trained on them",
        "new label maps": ", ".join(f"{n} {how}" for how, n in sorted(hows.items())),
        "generator": f"{result.generator['model']}, weights {result.generator['weights_sha256']}",
        "judge": f"{result.judge['model']}, weights {result.judge['weights_sha256']}",
        "seed": str(config.seed),
        "command": config.command,
    }
    return {name: value for name, value in facts.items() if value}
