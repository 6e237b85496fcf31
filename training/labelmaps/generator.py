"""``caps-med data labels``: new label maps on disk, like those of a data set or from a model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import caps_med
from caps_med.errors import InvalidInput
from caps_med.images import MedicalImage, write_image
from training.atomic import write_text
from training.data.layouts.naming import written_suffix
from training.labelmaps.deform import LabelMapSampler, Origin, Random
from training.labelmaps.originals import Original, Originals
from training.labelmaps.phantoms import AxonGeometry, draw_axons, render_labels
from training.labelmaps.shapes import TOLERANCE, Labels
from training.labelmaps.symmetry import Symmetries
from training.pictures.sheet import Cell, label_pixels, most_labelled, sheet

#: Of new and of original label maps on the sheet.
_SHOWN, _SHOWN_ORIGINALS, _COLUMNS = 24, 8, 8


class NewLabel(NamedTuple):
    """A label map without an image.

    Attributes:
        name: follows from its number alone.
        suffix: of its file, that of the originals; NIfTI where those are DICOM.
        label: of ids, with the geometry of an original.
    """

    name: str
    suffix: str
    label: MedicalImage
    origin: Origin


@dataclass(frozen=True)
class LabelMaker:
    """Draws new label maps by number.

    Attributes:
        originals: the label maps to resemble; None draws axons of `size` by the spline model.
        sampler: of the originals; None without them.
        axons: draw axons by the spline model.
    """

    seed: int
    originals: Originals | None
    sampler: LabelMapSampler | None
    axons: bool = False
    size: int = 128

    @classmethod
    def like(
        cls,
        originals: Originals,
        seed: int = 0,
        tolerance: float = TOLERANCE,
        symmetries: Symmetries = "auto",
        axons: bool = False,
    ) -> LabelMaker:
        """New label maps that have the shape statistics of `originals`.

        Args:
            originals: at least one.
            seed: same seed, same maps.
            tolerance: see `training.labelmaps.shapes.Shapes.of`.
            symmetries: see `training.labelmaps.symmetry.plausible_mirrorings`.
            axons: draw them by the phantoms' spline model, which knows one class.

        Raises:
            InvalidInput: axons of several classes, or volumes of them.
        """
        maps = {one.case.name: one.label.array[0] for one in originals.maps}
        found = LabelMapSampler(maps, seed, tolerance, symmetries)
        if axons and (len(found.shapes.ids) > 2 or originals.maps[0].label.spatial_dims > 2):
            raise InvalidInput(
                f"{originals.dataset.root}: the axons' spline model draws pictures of one class; "
                "leave out --kind to deform and recombine these label maps"
            )
        return cls(seed, originals, found, axons)

    def draw(self, number: int) -> NewLabel:
        """The new label map of that number: the same however many are drawn.

        Raises:
            ImplausibleShapes: no draw was like the originals.
        """
        name = f"new-{number:05}"
        if self.originals is None or self.sampler is None:
            label = _axons(_rng(self.seed, number), (self.size,) * 2)
            image = MedicalImage(label[None], format="png", kind="labels")
            return NewLabel(name, ".png", image, Origin(how="spline model"))
        if self.axons:
            found, origin = self.sampler.first_plausible(number, self._spline)
        else:
            found, origin = self.sampler.draw(number)
        like = self._like(found, origin)
        geometry = replace(like.label, origin=None)  # it is of no patient
        suffix = written_suffix(like.case.label.path)
        return NewLabel(name, suffix, geometry.with_array(found[None]), origin)

    def _like(self, label: Labels, origin: Origin) -> Original:
        """The original whose geometry and format a new map takes over."""
        assert self.originals is not None  # noqa: S101 - checked by the caller
        by_name = {one.case.name: one for one in self.originals.maps}
        if origin.originals:
            return by_name[origin.originals[0]]
        return next(o for o in by_name.values() if o.label.spatial_shape == label.shape)

    def _spline(self, rng: Random, _attempt: int) -> tuple[Labels, Origin]:
        """Axons of the spline model in the size and the id of one of the originals."""
        assert self.originals is not None  # noqa: S101 - checked by the caller
        assert self.sampler is not None  # noqa: S101
        maps = self.originals.maps
        label = _axons(rng, maps[rng.integers(len(maps))].label.spatial_shape)
        (foreground,) = self.sampler.shapes.foreground
        return label * np.uint8(foreground), Origin(how="spline model")

    def many(self, count: int, workers: int = 1) -> Iterator[NewLabel]:
        """The first `count` of them in order, `workers` drawn at once."""
        with ThreadPoolExecutor(max(1, workers)) as pool:
            yield from pool.map(self.draw, range(count))


def _rng(seed: int, number: int) -> Random:
    """Differs from the phantoms' generators, whose seeds have no 2; NumPy ignores trailing 0s."""
    return np.random.default_rng([seed, number, 0, 2])


def _axons(rng: Random, shape: tuple[int, ...]) -> Labels:
    """A label map of 0 and 1 in which there is an axon."""
    edge = max(shape)
    while True:
        found = render_labels(draw_axons(rng, edge, AxonGeometry()), edge)[
            0, : shape[0], : shape[1]
        ]
        if found.any():
            return found


def write_labels(
    maker: LabelMaker,
    count: int,
    out: Path,
    command: str = "",
    workers: int = 1,
    track: Callable[[Iterable[NewLabel]], Iterable[NewLabel]] = iter,
) -> None:
    """Write ``labels/``, ``manifest.json`` (the origin of each) and ``sheet.png`` into `out`.

    Raises:
        ImplausibleShapes: a map could not be drawn; what was drawn before stays.
    """
    (out / "labels").mkdir(parents=True, exist_ok=True)
    listed: list[dict[str, Any]] = []
    cells = [
        Cell(one.case.name, (_pixels(one.label),))
        for one in (maker.originals.maps[:_SHOWN_ORIGINALS] if maker.originals else ())
    ]
    cells += [Cell("", (np.zeros((1, 1, 3), np.uint8),))] * (-len(cells) % _COLUMNS)
    for new in track(maker.many(count, workers)):
        file = f"labels/{new.name}{new.suffix}"
        encoded = maker.originals.in_file_values(new.label) if maker.originals else new.label
        write_image(encoded, out / file)
        listed.append({"file": file, **new.origin.model_dump(mode="json")})
        if len(listed) <= _SHOWN:
            cells.append(Cell(f"{new.name} {new.origin.how}", (_pixels(new.label),)))
    manifest = {
        "caps_med": caps_med.__version__,
        "command": command,
        "seed": maker.seed,
        "like": maker.originals.dataset.name if maker.originals else None,
        "ranges": dict(maker.sampler.shapes.ranges) if maker.sampler else None,
        "mirrorings": [str(m) for m in maker.sampler.mirrorings] if maker.sampler else None,
        "label_maps": listed,
    }
    write_text(out / "manifest.json", json.dumps(manifest, indent=2) + "\n")
    sheet(cells, _COLUMNS).save(out / "sheet.png")


def _pixels(label: MedicalImage) -> Any:  # noqa: ANN401 - an array
    return label_pixels(label, most_labelled(label))
