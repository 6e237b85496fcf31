"""``caps-med data labels``: writes new label maps like those of a data set, or from a model."""

from __future__ import annotations

import ctypes
import json
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import caps_med
from caps_med.drafts import filling
from caps_med.errors import InvalidInput
from caps_med.images import MedicalImage, write_image
from training.atomic import write_text
from training.data.layouts.naming import written_suffix
from training.labelmaps.deform import LabelMapSampler, Origin, Random, Spacing
from training.labelmaps.originals import Original, Originals
from training.labelmaps.phantoms import AxonGeometry, draw_axons, render_labels
from training.labelmaps.shapes import TOLERANCE, Labels
from training.labelmaps.symmetry import Symmetries
from training.pictures.sheet import Cell, label_pixels, most_labelled, sheet
from training.progress import tracked

#: New and original label maps on the sheet, and its columns.
_SHOWN, _SHOWN_ORIGINALS, _COLUMNS = 24, 8, 8
#: Seconds between two looks for Ctrl-C while label maps are drawn.
_LOOK_S = 0.5


class NewLabel(NamedTuple):
    """A label map without an image.

    Attributes:
        name: depends only on its number.
        suffix: file suffix as of the originals; see `written_suffix`.
        label: label ids ``[1, *S]``, with the geometry of an original.
        origin: how it was made.
    """

    name: str
    suffix: str
    label: MedicalImage
    origin: Origin


@dataclass(frozen=True)
class LabelMaker:
    """Draws new label maps by number.

    Attributes:
        seed: the same seed gives the same maps.
        originals: the label maps to resemble; None draws axons with the spline model.
        sampler: samples maps like the originals, in the voxel order of the first; None without
            them.
        axons: draw axons like the originals with the spline model.
        size: edge length in pixels without originals.
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
        """A maker of label maps with the shape statistics of `originals`.

        Args:
            originals: at least one label map.
            seed: the same seed gives the same maps.
            tolerance: see `training.labelmaps.shapes.Shapes.of`.
            symmetries: see `training.labelmaps.symmetry.plausible_mirrorings`.
            axons: draw with the spline model of the phantoms, which has one class.

        Raises:
            InvalidInput: `axons` with several classes or with volumes.
        """
        first, maps = originals.maps[0].label, dict[str, Labels]()
        spacings: dict[str, Spacing] = {}
        for name, label in ((one.case.name, one.label) for one in originals.maps):
            maps[name] = _turned(label.array[0], label, first)
            if label.spacing is not None:
                spacings[name] = _turned_spacing(label, first)
        found = LabelMapSampler(maps, seed, tolerance, symmetries, spacings)
        if axons and (len(found.shapes.ids) > 2 or originals.maps[0].label.spatial_dims > 2):
            raise InvalidInput(
                f"{originals.dataset.root}: the axons' spline model draws pictures of one class; "
                "leave out --kind to deform and recombine these label maps"
            )
        return cls(seed, originals, found, axons)

    def draw(self, number: int) -> NewLabel:
        """Draw the new label map with this number; it does not depend on the others.

        Raises:
            ImplausibleShapes: no draw resembled the originals.
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
        geometry = replace(like.label, origin=None)  # it belongs to no patient
        suffix = written_suffix(like.case.label.file)
        found = _turned(found, self.originals.maps[0].label, like.label)
        return NewLabel(name, suffix, geometry.with_array(found[None]), origin)

    def _like(self, label: Labels, origin: Origin) -> Original:
        """The original whose geometry and format a new map adopts."""
        assert self.originals is not None  # noqa: S101 - checked by the caller
        by_name = {one.case.name: one for one in self.originals.maps}
        if origin.originals:
            return by_name[origin.originals[0]]
        return next(o for o in by_name.values() if o.label.spatial_shape == label.shape)

    def _spline(self, rng: Random, _attempt: int) -> tuple[Labels, Origin]:
        """Axons of the spline model, with the size of an original and its label id."""
        assert self.originals is not None  # noqa: S101 - checked by the caller
        assert self.sampler is not None  # noqa: S101 - set with the originals
        maps = self.originals.maps
        label = _axons(rng, maps[rng.integers(len(maps))].label.spatial_shape)
        (foreground,) = self.sampler.shapes.foreground
        ids = label.astype(self.sampler.labels[0].dtype) * foreground
        return ids, Origin(how="spline model")

    def many(self, count: int, workers: int = 1) -> Iterator[NewLabel]:
        """The first `count` label maps in order, drawn by `workers` threads.

        Once no more are asked for, as after Ctrl-C, the threads end, too: a map of a large volume
        takes minutes.
        """
        if workers <= 1:  # Ctrl-C stops this thread at once; another would finish its map
            yield from map(self.draw, range(count))
            return
        drawn: list[Future[NewLabel]] = [Future() for _ in range(count)]
        waiting = deque(enumerate(drawn))
        drawing = [Thread(target=self._draw_waiting, args=[waiting]) for _ in range(workers)]
        try:
            for thread in drawing[:count]:
                thread.start()
            for one in drawn:
                while not one.done():  # Ctrl-C just before a wait does not end it
                    wait([one], _LOOK_S)
                yield one.result()
        except BaseException:
            waiting.clear()
            for thread in drawing:
                _end(thread)
            raise

    def _draw_waiting(self, waiting: deque[tuple[int, Future[NewLabel]]]) -> None:
        while waiting:
            with suppress(IndexError):  # another thread took the last one
                number, drawn = waiting.popleft()
                try:
                    drawn.set_result(self.draw(number))
                except BaseException as error:
                    drawn.set_exception(error)


def _end(thread: Thread) -> None:
    """Raise SystemExit in a thread, as Ctrl-C raises KeyboardInterrupt: between two operations."""
    if thread.ident is not None and thread.is_alive():
        kind = ctypes.py_object(SystemExit)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), kind)


def _turned(array: Labels, stored: MedicalImage, like: MedicalImage) -> Labels:
    """The voxels ``[*S]`` of a volume in another's order: permuted and flipped, not resampled.

    Args:
        stored: in the order of its voxels, such as from left to right.
        like: in the order of its voxels they are given back.
    """
    if array.ndim == 2:
        return array
    from nibabel.orientations import apply_orientation

    return np.ascontiguousarray(apply_orientation(array, _turn(stored, like)))


def _turned_spacing(stored: MedicalImage, like: MedicalImage) -> Spacing:
    """The sizes of a volume's voxels along the axes of `_turned`."""
    assert stored.spacing is not None  # noqa: S101 - checked by the caller
    axes = _turn(stored, like)[:, 0]
    return [stored.spacing[k] for k in np.argsort(axes)]


def _turn(stored: MedicalImage, like: MedicalImage) -> NDArray[np.float64]:
    """From the order of a volume's voxels to that of another, as nibabel writes it ``[3, 2]``."""
    from nibabel.orientations import io_orientation, ornt_transform

    source, target = (io_orientation(each.affine) for each in (stored, like))
    return np.asarray(ornt_transform(source, target))


def _rng(seed: int, number: int) -> Random:
    """Ends in 2, unlike the seeds of phantoms; NumPy ignores trailing zeros in seeds."""
    return np.random.default_rng([seed, number, 0, 2])


def _axons(rng: Random, shape: tuple[int, ...]) -> Labels:
    """A label map of 0 and 1 with at least one axon pixel."""
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
) -> None:
    """Write ``labels/``, ``manifest.json`` (the origin of each) and ``sheet.png`` into `out`.

    After an error nothing of it is left in `out`.

    Raises:
        ImplausibleShapes: a map could not be drawn.
    """
    listed: list[dict[str, Any]] = []
    cells = [
        Cell(one.case.name, (_pixels(one.label),))
        for one in (maker.originals.maps[:_SHOWN_ORIGINALS] if maker.originals else ())
    ]
    cells += [Cell("", (np.zeros((1, 1, 3), np.uint8),))] * (-len(cells) % _COLUMNS)
    with filling(out):
        (out / "labels").mkdir(exist_ok=True)
        for new in tracked(maker.many(count, workers), "drawing", count):
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
