"""Synthetic images of new label maps, kept where the judge finds the label map in them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from caps_med.errors import InvalidInput
from caps_med.images import MedicalImage, write_image
from caps_med.inference import Model
from training.atomic import write_text
from training.augment.config import AugmentFolder
from training.augment.intensity import Scale
from training.augment.split import Parts
from training.data.cases import Case
from training.data.layouts.naming import Entry, written_suffix
from training.data.layouts.pairing import paired
from training.evaluation.dice import mean_dice
from training.labelmaps.deform import Origin
from training.labelmaps.generator import LabelMaker, NewLabel

#: At most this many times the wanted images are drawn, and some more.
_TIMES, _MORE = 3, 10
#: Real images whose intensities are used, evenly spaced.
_REFERENCES = 100


class GeneratedImage(BaseModel):
    """A synthetic image and its judgement.

    Attributes:
        images: its files relative to the output; one per channel where the data are stored so.
        label: the file of its label map.
        seed: of its noise vector.
        origin: of its label map.
        intensities_of: the real image whose intensity range it was given.
        dice: between its label map and the judge's segmentation of the image.
        kept: whether the Dice reaches the threshold.
        warnings: of the generator, such as that the label map is unlike those of its training.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    images: tuple[str, ...]
    label: str
    seed: int
    origin: Origin
    intensities_of: str
    dice: float
    kept: bool
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class ImageGenerator:
    """Generates synthetic images by number; existing ones are not generated again.

    Attributes:
        maker: draws the label maps.
        threshold: lowest Dice of a kept image.
        scale: maps the generator's intensities to those of the real images.
        seed: of the run; an image's own seed follows from it and the image's number.
    """

    folder: AugmentFolder
    parts: Parts
    maker: LabelMaker
    generator: Model
    judge: Model
    threshold: float
    scale: Scale
    seed: int

    def draw(self, number: int) -> GeneratedImage:
        """The synthetic image of that number.

        Raises:
            ImplausibleShapes: no new label map could be drawn.
            InvalidInput: the models know other labels than the data.
        """
        file = self.folder.work / "drawn" / f"{number:05}.json"
        if file.exists():
            return GeneratedImage.model_validate_json(file.read_text(encoding="utf-8"))
        new = self.maker.draw(number)
        rng = np.random.default_rng([self.seed, number, 0, 3])
        seed, like = int(rng.integers(2**31)), int(rng.integers(len(self.scale.levels)))
        made = self.generator.synthesize(new.label, seed)
        image = self.scale.image(new.label, made.array, like)
        card = self.judge.bundle.card
        found = self.judge.segment(image)
        dice = mean_dice(found.array, card.match(new.label).array, list(card.labels)[1:])
        name = reference_cases(self.parts)[like].name
        drawn = self._write(new, image, found, seed, name, round(dice, 6), made.warnings)
        write_text(file, drawn.model_dump_json(indent=2) + "\n")
        return drawn

    def _write(
        self, new: NewLabel, image: MedicalImage, found: MedicalImage, seed: int, like: str,
        dice: float, warnings: tuple[str, ...],
    ) -> GeneratedImage:  # fmt: skip
        """Write image and label map into the result, or into the work folder if dropped."""
        kept = dice >= self.threshold
        root = self.folder.out if kept else self.folder.work / "dropped"
        suffix = written_suffix(self._case.images[0].path)
        files = [
            (f"images/{new.name}{channel}{suffix}", array)
            for channel, array in self._channels(image.array)
        ]
        label = f"labels/{new.name}{new.suffix}"
        for folder in ("images", "labels"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        for file, array in files:
            write_image(image.with_array(array), root / file)
        assert self.maker.originals is not None  # noqa: S101 - made by `LabelMaker.like`
        write_image(self.maker.originals.in_file_values(new.label), root / label)
        answers = self.folder.work / "answers"
        answers.mkdir(parents=True, exist_ok=True)
        write_image(found, answers / f"{new.name}{new.suffix}")
        return GeneratedImage(
            name=new.name,
            images=tuple(file for file, _ in files),
            label=label,
            seed=seed,
            origin=new.origin,
            intensities_of=like,
            dice=dice,
            kept=kept,
            warnings=warnings,
        )

    def _channels(self, array: NDArray[Any]) -> list[tuple[str, NDArray[Any]]]:
        """The suffix of each file's name, and the channels it holds."""
        count = len(self._case.images)
        if count == 1:
            return [("", array)]
        names = self.parts.dataset.channels
        if len(names) != count or not _found_again(names):
            names = tuple(f"{k:04}" for k in range(count))
        return [(f"_{name}", array[k : k + 1]) for k, name in enumerate(names)]

    @property
    def _case(self) -> Case:
        return self.parts.dataset.cases[0]

    def most(self, count: int) -> int:
        """How many images are drawn at most in order to keep `count`."""
        return _TIMES * count + _MORE


def _found_again(names: Sequence[str]) -> bool:
    """Whether files with these names of channels are found as such, and in this order."""
    images = [Entry(Path(name), f"new_{name}") for name in names]
    found = paired(images, [Entry(Path("new"), "new")]).channels
    return found == tuple(map(str.casefold, names)) and "/" not in "".join(names)


def reference_cases(parts: Parts) -> Sequence[Case]:
    """The real images whose intensity ranges synthetic images are given."""
    cases = parts.dataset.cases
    steps = np.linspace(0, len(cases) - 1, min(_REFERENCES, len(cases)))
    return [cases[i] for i in np.rint(steps).astype(int)]


def scale_of(parts: Parts, generator: Model) -> Scale:
    """How intensities of the real images map to those of the generator."""
    images = [parts.dataset.read(case)[0] for case in reference_cases(parts)]
    return Scale.of(images, generator.bundle.card.normalization)


def check_channels(parts: Parts, generator: Model) -> None:
    """Check that the generator makes images like the real ones.

    Raises:
        InvalidInput: they have another number of channels.
    """
    channels = len(parts.dataset.read(parts.dataset.cases[0])[0].array)
    generated = int(generator.network.image_channels)  # type: ignore[arg-type]  # of a generator
    if channels != generated:
        raise InvalidInput(
            f"{generator.bundle.reference} makes images of {generated} channels, but the data "
            f"have {channels}: choose another --model, or leave it out to train one"
        )


def manifest(
    drawn: Sequence[GeneratedImage],
    generator: Mapping[str, Any],
    judge: Mapping[str, Any],
    about: Mapping[str, Any],
) -> str:
    """The JSON text that records the origin of every image."""
    kept = sum(one.kept for one in drawn)
    record = {
        **about,
        "generator": {k: generator[k] for k in ("model", "weights_sha256")},
        "judge": {k: judge[k] for k in ("model", "weights_sha256", "threshold", "dice")},
        "kept": kept,
        "dropped": len(drawn) - kept,
        "images": [one.model_dump(mode="json") for one in drawn],
    }
    return json.dumps(record, indent=2) + "\n"


def files_of(root: Path, one: GeneratedImage) -> tuple[list[Path], Path]:
    """Image files and label map file of a synthetic image, kept or dropped."""
    folder = root if one.kept else root / ".work" / "dropped"
    return [folder / file for file in one.images], folder / one.label
