"""Synthetic images of new label maps, judged, and kept where the geometry survived."""

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
from training.augment.config import Workshop
from training.augment.intensity import Scale
from training.augment.split import Parts
from training.data.cases import Case
from training.data.layouts.naming import written_suffix
from training.evaluation.metrics.overlap import mean_dice
from training.labelmaps.deform import Origin
from training.labelmaps.generator import LabelMaker, NewLabel

#: Images are drawn until enough are kept, but at most this many times as many, and some.
_AT_MOST, _AND = 3, 10
#: Images whose intensities are looked at, evenly spaced.
_LOOKED_AT = 100


class Drawn(BaseModel):
    """One synthetic image and what became of it.

    Attributes:
        images: its files, one a channel where the data have them so, relative to the output.
        label: its label map's file.
        seed: of its noise vector.
        origin: of its label map.
        intensities_of: the real image whose scale of intensities it was given.
        dice: of the label map that the judge finds in it with the one that it was made from.
        kept: whether that is enough.
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


@dataclass(frozen=True)
class Studio:
    """Draws synthetic images by their numbers; what is drawn already is not drawn again.

    Attributes:
        threshold: Dice from which an image is kept.
        scale: of the real images' intensities.
        seed: of the run; those of the images follow from it and their numbers.
    """

    workshop: Workshop
    parts: Parts
    maker: LabelMaker
    generator: Model
    judge: Model
    threshold: float
    scale: Scale
    seed: int

    def draw(self, number: int) -> Drawn:
        """The synthetic image of that number: as it was kept, or by drawing it now.

        Raises:
            ImplausibleShapes: no new label map could be drawn.
            InvalidInput: the models know other labels than the data.
        """
        file = self.workshop.work / "drawn" / f"{number:05}.json"
        if file.exists():
            return Drawn.model_validate_json(file.read_text(encoding="utf-8"))
        new = self.maker.draw(number)
        rng = np.random.default_rng([self.seed, number, 0, 3])
        seed, like = int(rng.integers(2**31)), int(rng.integers(len(self.scale.levels)))
        pixels = self.generator.synthesize(new.label, seed).array
        image = new.label.with_array(self.scale.restore(pixels, like), kind="image")
        ids = list(self.generator.bundle.card.labels)[1:]
        found = self.judge.segment(image)
        dice = round(mean_dice(found.array, new.label.array, ids), 6)
        drawn = self._write(new, image, found, seed, looked_at(self.parts)[like].name, dice)
        write_text(file, drawn.model_dump_json(indent=2) + "\n")
        return drawn

    def _write(
        self, new: NewLabel, image: MedicalImage, found: MedicalImage, seed: int, like: str,
        dice: float,
    ) -> Drawn:  # fmt: skip
        """Images and label map into the result, or, dropped ones, into the work folder."""
        kept = dice >= self.threshold
        root = self.workshop.out if kept else self.workshop.work / "dropped"
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
        assert self.maker.originals is not None  # noqa: S101 - it was made like some
        write_image(self.maker.originals.in_file_values(new.label), root / label)
        answers = self.workshop.work / "answers"
        answers.mkdir(parents=True, exist_ok=True)
        write_image(found, answers / f"{new.name}{new.suffix}")
        return Drawn(
            name=new.name,
            images=tuple(file for file, _ in files),
            label=label,
            seed=seed,
            origin=new.origin,
            intensities_of=like,
            dice=dice,
            kept=kept,
        )

    def _channels(self, array: NDArray[Any]) -> list[tuple[str, NDArray[Any]]]:
        """The end of a file's name, and its channels."""
        count = len(self._case.images)
        if count == 1:
            return [("", array)]
        names = self.parts.dataset.channels
        if len(names) != count:
            names = tuple(f"{k:04}" for k in range(count))
        return [(f"_{name}", array[k : k + 1]) for k, name in enumerate(names)]

    @property
    def _case(self) -> Case:
        return self.parts.dataset.cases[0]

    def enough(self, count: int) -> int:
        """So many images are drawn at most."""
        return _AT_MOST * count + _AND


def looked_at(parts: Parts) -> Sequence[Case]:
    """The real images whose intensities synthetic ones are given."""
    cases = parts.dataset.cases
    steps = np.linspace(0, len(cases) - 1, min(_LOOKED_AT, len(cases)))
    return [cases[i] for i in np.rint(steps).astype(int)]


def scale_of(parts: Parts, generator: Model) -> Scale:
    """How the real images became what the generator makes."""
    images = [parts.dataset.read(case)[0] for case in looked_at(parts)]
    channels = images[0].array.shape[0]
    made = int(generator.network.image_channels)  # type: ignore[arg-type]
    if channels != made:
        raise InvalidInput(
            f"{generator.bundle.reference} makes images of {made} channels, the data have "
            f"{channels}: take another --model, or leave it out to train one"
        )
    return Scale.of(images, generator.bundle.card.normalization)


def check_labels(parts: Parts, models: Sequence[Model]) -> None:
    """That the models know the labels of the data.

    Raises:
        InvalidInput: one does not.
    """
    held = {0}.union(*(np.unique(o.label.array).tolist() for o in parts.originals.maps))
    for model in models:
        known = set(model.bundle.card.labels)
        if not held <= known:
            unknown = ", ".join(map(str, sorted(held - known)))
            raise InvalidInput(
                f"{model.bundle.reference} does not know the labels {unknown} of "
                f"{parts.dataset.root}: train one on these data (leave the option out)"
            )


def manifest(
    drawn: Sequence[Drawn],
    generator: Mapping[str, Any],
    judge: Mapping[str, Any],
    about: Mapping[str, Any],
) -> str:
    """The JSON text that tells where every image comes from."""
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


def files_of(root: Path, one: Drawn) -> tuple[list[Path], Path]:
    """Images and label map of a drawn image, kept or dropped."""
    folder = root if one.kept else root / ".work" / "dropped"
    return [folder / file for file in one.images], folder / one.label
