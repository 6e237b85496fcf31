"""A tour on a sample slice: segment, synthesize and explore capsules, as pictures and tables."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from rich.table import Table

from caps_med import samples
from caps_med.images import MedicalImage, SliceStack, read_image, to_uint8
from caps_med.inference import Segmentation, SyntheticImage, load_model
from caps_med.printing import Terminal, print_line

SEGMENTATION, SYNTHESIS = "brain-t1-tissue", "brain-t1-synthesis"
SEEDS = (1, 2, 3)
#: Opacity of the label colours over the image.
OPACITY = 0.55
#: Factor by which slices are enlarged.
ZOOM = 2

Pixels = NDArray[np.uint8]
T = TypeVar("T")


@dataclass(frozen=True)
class _Timed:
    """Measures the duration of one step."""

    what: str
    milliseconds: float


def run_demo(out: Path, models: Path | None = None) -> None:
    """Segment the sample slice, synthesize images from its labels, show its capsules.

    Writes ``t1.png``, ``tissue.png``, ``synthetic-seed*.png``, ``capsules.png`` and
    ``overview.png`` into `out`, and prints volumes, Dice against the template's labels, and times.

    Raises:
        ModelNotFound: the built-in models are missing.
    """
    out.mkdir(parents=True, exist_ok=True)
    image, truth = read_image(samples.T1), read_image(samples.TISSUE, kind="labels")
    segmenter, synthesizer = load_model(SEGMENTATION, models), load_model(SYNTHESIS, models)
    segmenter.segment(image)  # warm-up
    tissue, segmented = _timed("segment", lambda: segmenter.segment(image))
    generated, synthesized = _timed(
        f"synthesize {len(SEEDS)} images",
        lambda: [synthesizer.synthesize(tissue, seed) for seed in SEEDS],
    )
    features, explored = _timed("capsules of all layers", lambda: segmenter.features(image))

    shown = _grey(segmenter.bundle.card.normalization.apply(image.array)[0], image)
    overlay = _overlay(shown, tissue)
    panels = {"t1": shown, "tissue": overlay}
    panels |= {f"synthetic-seed{s}": _grey_of(one) for s, one in zip(SEEDS, generated, strict=True)}
    for name, pixels in panels.items():
        _save(pixels, out / f"{name}.png")
    features.contact_sheet().save(out / "capsules.png")
    _overview(panels).save(out / "overview.png")

    console = Terminal()
    console.print(_tissue_table(tissue, truth))
    console.print(_time_table((segmented, synthesized, explored)))
    print_line(console, f"Pictures in {out}: begin with {out / 'overview.png'}")


def _timed(what: str, call: Callable[[], T]) -> tuple[T, _Timed]:
    start = time.perf_counter()
    result = call()
    return result, _Timed(what, 1000 * (time.perf_counter() - start))


def _grey(plane: NDArray[np.float32], like: MedicalImage) -> Pixels:
    """Intensities in [0, 1] of the slice for display, `[H, W, 3]`."""
    stack = SliceStack.from_image(like.with_array(plane[None]))
    level = to_uint8(stack.array[0, 0])
    return np.repeat(level[..., None], 3, axis=-1)


def _grey_of(image: SyntheticImage) -> Pixels:
    return _grey(image.array[0], image)


def _overlay(shown: Pixels, tissue: Segmentation) -> Pixels:
    ids = SliceStack.from_image(tissue).array[0, 0]
    if tissue.palette is None:
        return shown
    colors = tissue.palette[ids]
    mixed = (1 - OPACITY) * shown + OPACITY * colors
    return np.where(ids[..., None] > 0, mixed, shown).astype(np.uint8)


def _save(pixels: Pixels, path: Path) -> None:
    _enlarged(pixels).save(path)


def _enlarged(pixels: Pixels) -> Image.Image:
    picture = Image.fromarray(pixels)
    size = (picture.width * ZOOM, picture.height * ZOOM)
    return picture.resize(size, Image.Resampling.BICUBIC)


def _overview(panels: dict[str, Pixels]) -> Image.Image:
    """All panels side by side with captions."""
    pictures = {name: _enlarged(pixels) for name, pixels in panels.items()}
    caption, gap, font = 30, 8, ImageFont.load_default(18)
    width = sum(p.width + gap for p in pictures.values()) + gap
    height = caption + gap + max(p.height for p in pictures.values())
    sheet = Image.new("RGB", (width, height), (18, 18, 24))
    draw, left = ImageDraw.Draw(sheet), gap
    for name, picture in pictures.items():
        draw.text((left + 4, 5), name.replace("-", " "), (232, 232, 236), font)
        sheet.paste(picture, (left, caption))
        left += picture.width + gap
    return sheet


def _tissue_table(tissue: Segmentation, truth: MedicalImage) -> Table:
    table = Table(title=f"{SEGMENTATION} on an MNI152 slice it never saw")
    for heading in ("tissue", f"volume ({tissue.volume_unit})", "template's own", "Dice"):
        table.add_column(heading, justify="left" if heading == "tissue" else "right")
    for label, name in list(tissue.names.items())[1:]:
        found, there = tissue.array == label, truth.array == label
        dice = 2 * float((found & there).sum()) / max(1, int(found.sum() + there.sum()))
        own = tissue.volumes[name] / max(1, int(found.sum())) * int(there.sum())
        table.add_row(name, f"{tissue.volumes[name]:.0f}", f"{own:.0f}", f"{dice:.3f}")
    return table


def _time_table(times: tuple[_Timed, ...]) -> Table:
    table = Table("work", "milliseconds")
    for timed in times:
        table.add_row(timed.what, f"{timed.milliseconds:.0f}")
    return table
