"""The pictures of a report: cases with contours, curves, the spread of scores."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from caps_med.images import (
    MedicalImage,
    Normalization,
    Plane,
    SliceStack,
    label_palette,
    to_uint8,
)

RGB = NDArray[np.uint8]
#: Longest edge of a picture, and of one that is smaller than this, enlarged.
LARGEST, SMALLEST = 512, 384
#: Room around the labels of a picture: this part of their extent, and so many pixels at least.
MARGIN, MARGIN_PIXELS = 0.25, 16
#: Of the label under its contour.
OPACITY = 0.28
#: The colour that stands for the page's own text in a drawing: light pages have dark ink.
_INK = "#010203"
#: Told apart by the colour-blind, and readable on white and on black (after Okabe and Ito 2008).
_LINES = ("#2b88c9", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9")


def data_url(pixels: RGB) -> str:
    """``[H, W, 3]`` as a PNG inside the page."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "png", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()


def as_pixels(image: MedicalImage) -> RGB:
    """An RGB picture ``[3, H, W]`` as ``[H, W, 3]``."""
    return np.moveaxis(image.array, 0, -1).astype(np.uint8)


def case_pictures(
    image: MedicalImage,
    labels: Sequence[MedicalImage],
    plane: Plane,
    normalization: Normalization,
    palette: RGB | None = None,
) -> tuple[list[RGB], int | None]:
    """One case as it is, and with each of some label maps drawn over it.

    Args:
        image: ``[C, *S]``.
        labels: label maps ``[1, *S]`` of the same voxels, the true one first.
        plane: in which a volume is cut.
        normalization: for the grey levels.
        palette: ``[256, 3]`` colours of the ids.

    Returns:
        Pictures ``[H, W, 3]``, square in millimetres, and the slice of a volume that they show:
        the one with most of the true label (of the answer, where there is none). Far from all
        labels they are cut off, so that small ones can be seen.
    """
    stack = SliceStack.from_image(image, plane)
    maps = [SliceStack.from_image(label, plane).array[:, 0] for label in labels]
    counted = next((m for m in maps if m.any()), maps[0])
    z = int((counted > 0).sum((1, 2)).argmax())
    box = _box_around([m[z] for m in maps])
    channels = normalization.apply(stack.array)[z][:, box[0], box[1]]
    shown = as_picture(channels, stack.spacing)
    size = (shown.shape[0], shown.shape[1])
    colours = label_palette() if palette is None else palette
    drawn = [_drawn_over(shown, _resized_ids(m[z][box], size), colours) for m in maps]
    return [shown, *drawn], None if image.spatial_dims == 2 else z


def as_picture(channels: NDArray[np.float32], spacing: tuple[float, float] | None = None) -> RGB:
    """An image ``[C, H, W]`` in [0, 1] as ``[H, W, 3]``, of a size that is fit to be looked at."""
    grey = np.moveaxis(channels if len(channels) == 3 else channels[:1].repeat(3, 0), 0, -1)
    pixels = to_uint8(grey)
    return _resized(pixels, _size(grey.shape[:2], spacing), Image.Resampling.BICUBIC)


def as_colours(
    ids: NDArray[Any], spacing: tuple[float, float] | None = None, palette: RGB | None = None
) -> RGB:
    """Label ids ``[H, W]`` in their colours, of the same size as `as_picture` gives."""
    colours = label_palette() if palette is None else palette
    return np.asarray(colours[_resized_ids(ids, _size(ids.shape, spacing)) % 256], np.uint8)


def _box_around(maps: Sequence[NDArray[Any]]) -> tuple[slice, slice]:
    """Rows and columns that hold the labels of all maps ``[H, W]``, with some room around them."""
    union = np.logical_or.reduce([m > 0 for m in maps])
    if not union.any():
        return slice(None), slice(None)
    rows, columns = (np.flatnonzero(union.any(axis)) for axis in (1, 0))
    room = max(MARGIN_PIXELS, round(MARGIN * max(np.ptp(rows), np.ptp(columns))))
    ends = [slice(max(0, i[0] - room), i[-1] + 1 + room) for i in (rows, columns)]
    return ends[0], ends[1]


def _size(shape: Sequence[int], spacing: tuple[float, float] | None) -> tuple[int, int]:
    """(height, width) in which pixels are square and both edges are fit to be looked at."""
    extent = np.array(shape) * np.array(spacing or (1.0, 1.0))
    extent = extent / min(spacing or (1.0,))
    factor = np.clip(extent.max(), SMALLEST, LARGEST) / extent.max()
    height, width = np.maximum(1, np.rint(extent * factor)).astype(int)
    return int(height), int(width)


def _resized(pixels: RGB, size: tuple[int, int], how: Image.Resampling) -> RGB:
    return np.asarray(Image.fromarray(pixels).resize(size[::-1], how))


def _resized_ids(ids: NDArray[Any], size: tuple[int, int]) -> NDArray[np.int32]:
    image = Image.fromarray(ids.astype(np.int32))
    return np.asarray(image.resize(size[::-1], Image.Resampling.NEAREST))


def _drawn_over(pixels: RGB, ids: NDArray[np.int32], palette: RGB) -> RGB:
    """Labels as a veil, and their borders as lines of full colour."""
    colours = palette[ids % 256].astype(np.float64)
    veiled = (1 - OPACITY) * pixels + OPACITY * colours
    result = np.where(ids[..., None] > 0, veiled, pixels)
    padded = np.pad(ids, 1, mode="edge")
    neighbours = (padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:])
    border = (ids > 0) & np.logical_or.reduce([ids != other for other in neighbours])
    return np.where(border[..., None], colours, result).astype(np.uint8)


def curves(scores: Sequence[Mapping[str, float]]) -> str:
    """Loss and validation scores over the epochs, as an SVG element; empty without two epochs.

    Args:
        scores: lines of a run's ``scores.jsonl``: ``epoch``, ``score``, perhaps ``loss``, and
            scores of classes.
    """
    if len(scores) < 2:
        return ""
    epochs = [line["epoch"] for line in scores]
    names = [name for name in scores[-1] if name not in ("epoch", "loss", "score")]
    has_loss = any("loss" in line for line in scores)
    figure = Figure((9.2, 3.0), layout="constrained")
    axes = figure.subplots(1, 2 if has_loss else 1, squeeze=False)[0]
    if has_loss:
        axes[0].plot(epochs, _column(scores, "loss"), color=_LINES[0])
        axes[0].set(xlabel="epoch", title="training loss")
    last = axes[-1]
    if len(names) > 1:
        for number, name in enumerate(names):
            color = _LINES[(number + 1) % len(_LINES)]
            last.plot(epochs, _column(scores, name), color=color, lw=1, label=name)
    last.plot(epochs, _column(scores, "score"), color=_INK, lw=2, label="score")
    last.set(xlabel="epoch", title="validation score")
    best = int(np.nanargmax(_column(scores, "score")))
    last.plot(epochs[best], scores[best]["score"], "o", color=_INK, label=f"best: {epochs[best]:g}")
    last.legend(frameon=False, fontsize=8)
    return _svg(figure, "Training curves")


def _column(scores: Sequence[Mapping[str, float]], name: str) -> list[float]:
    return [line.get(name, float("nan")) for line in scores]


def spread(values: Mapping[str, Mapping[str, Sequence[float]]], title: str) -> str:
    """Every case as a dot, its class's median as a line, as an SVG element.

    Args:
        values: model -> class -> a score of each case, 0 to 1.
        title: what is shown.
    """
    classes = list(next(iter(values.values())))
    figure = Figure((9.2, 0.9 + 0.32 * len(classes) * len(values)), layout="constrained")
    axes = figure.subplots()
    step = 0.8 / len(values)
    for number, (model, by_class) in enumerate(values.items()):
        color = _LINES[number % len(_LINES)]
        for row, name in enumerate(classes):
            cases = np.asarray(by_class[name])
            y = row + (number - (len(values) - 1) / 2) * step
            jitter = np.random.default_rng(row).uniform(-0.25, 0.25, len(cases)) * step
            axes.plot(cases, y + jitter, "o", ms=4, alpha=0.8, color=color, mew=0,
                      label=model if row == 0 else None)  # fmt: skip
            if len(cases):
                median = float(np.median(cases))
                axes.plot([median] * 2, [y - step * 0.42, y + step * 0.42], color=_INK, lw=1.5)
    axes.set_yticks(range(len(classes)), classes)
    axes.set(xlabel=title, xlim=(-0.02, 1.02), ylim=(len(classes) - 0.5, -0.5))
    if len(values) > 1:
        axes.legend(frameon=False, fontsize=8, loc="upper left")
    return _svg(figure, title)


def histogram(values: Mapping[str, Sequence[float]], threshold: float, title: str) -> str:
    """How often scores of 0 to 1 fall where, and the threshold, as an SVG element.

    Args:
        values: what they are of -> scores; drawn as shares, so that sets of any size compare.
        threshold: below which something is dropped.
        title: of the scores.
    """
    figure = Figure((9.2, 2.6), layout="constrained")
    axes = figure.subplots()
    edges = np.linspace(0, 1, 41)
    for number, (name, scores) in enumerate(values.items()):
        if scores:
            weights = np.full(len(scores), 1 / len(scores))
            label = f"{name} ({len(scores)})"
            axes.hist(
                scores,
                edges.tolist(),
                weights=weights,
                color=_LINES[number],
                alpha=0.6,
                label=label,
            )
    axes.axvline(threshold, color=_INK, lw=1.5, ls="--", label=f"threshold {threshold:.3f}")
    axes.set(xlabel=title, ylabel="share", xlim=(0, 1))
    axes.yaxis.label.set(color=_INK, fontsize=9)
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    return _svg(figure, title)


def _svg(figure: Figure, label: str) -> str:
    """The figure as an SVG element whose ink is the page's text colour, whose words are text."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(_INK)
        axes.tick_params(colors=_INK, labelsize=9)
        axes.grid(color=_INK, alpha=0.12, lw=0.6)
        axes.title.set(color=_INK, fontsize=10)
        for text in (axes.xaxis.label, axes.yaxis.label):
            text.set(color=_INK, fontsize=9)
        if (legend := axes.get_legend()) is not None:
            for text in legend.get_texts():
                text.set_color(_INK)
        axes.patch.set_visible(False)
    stream = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": label}):
        FigureCanvasSVG(figure)  # type: ignore[no-untyped-call, unused-ignore]
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    drawn = stream.getvalue()
    drawn = drawn[drawn.index("<svg") :].replace(_INK, "currentColor")
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn, flags=re.DOTALL)
    # ids are the page's: two drawings must not share them
    prefix = re.sub(r"\W+", "-", label.lower())
    drawn = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{prefix}-", drawn)
    return drawn.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)
