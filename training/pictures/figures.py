"""The figures of a report as SVG elements: training curves, scores of cases, histograms."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.text import Text

#: Replaced by the page's text color, which is dark on light pages and light on dark ones.
INK = "#010203"
#: Safe for the color-blind, readable on white and on black (after Okabe and Ito 2008).
LINES = ("#2b88c9", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9")
#: Width of a page in inches of a figure and in rem: narrower figures stand side by side, with
#: text of the same size.
PAGE_INCHES, _PAGE_REM = 9.2, 58


def curves(scores: Sequence[Mapping[str, float]], unkept: int = 0) -> str:
    """Loss and validation scores over the epochs, as an SVG element; empty without two epochs.

    Args:
        scores: lines of a run's ``scores.jsonl``: ``epoch``, ``score``, optionally ``loss`` and
            the scores of classes.
        unkept: the first epochs, of which none is the best.
    """
    if len(scores) < 2:
        return ""
    epochs = [line["epoch"] for line in scores]
    names = [name for name in scores[-1] if name not in ("epoch", "loss", "score")]
    has_loss = any("loss" in line for line in scores)
    figure = Figure((PAGE_INCHES, 3.0), layout="constrained")
    axes = figure.subplots(1, 2 if has_loss else 1, squeeze=False)[0]
    if has_loss:
        axes[0].plot(epochs, _column(scores, "loss"), color=LINES[0])
        axes[0].set(xlabel="epoch", title="training loss")
    last = axes[-1]
    if len(names) > 1:
        for number, name in enumerate(names):
            color = LINES[(number + 1) % len(LINES)]
            last.plot(epochs, _column(scores, name), color=color, lw=1, label=name)
    last.plot(epochs, _column(scores, "score"), color=INK, lw=2, label="score")
    last.set(xlabel="epoch", title="validation score")
    best = unkept + int(np.nanargmax(_column(scores[unkept:], "score")))
    last.plot(epochs[best], scores[best]["score"], "o", color=INK, label=f"best: {epochs[best]:g}")
    last.legend(frameon=False, fontsize=8)
    return svg(figure, "Training curves")


def _column(scores: Sequence[Mapping[str, float]], name: str) -> list[float]:
    return [line.get(name, float("nan")) for line in scores]


def strip_plot(values: Mapping[str, Mapping[str, Sequence[float]]], title: str) -> str:
    """Each case as a dot and the median of each class as a line, as an SVG element.

    Args:
        values: model -> class -> score of each case, 0 to 1.
        title: of the axis.
    """
    classes = list(next(iter(values.values())))
    figure = Figure((PAGE_INCHES, 0.9 + 0.32 * len(classes) * len(values)), layout="constrained")
    axes = figure.subplots()
    step = 0.8 / len(values)
    dots = {}
    for number, (model, by_class) in enumerate(values.items()):
        color = LINES[number % len(LINES)]
        for row, name in enumerate(classes):
            cases = np.asarray(by_class[name])
            y = row + (number - (len(values) - 1) / 2) * step
            jitter = np.random.default_rng(row).uniform(-0.25, 0.25, len(cases)) * step
            drawn = axes.plot(cases, y + jitter, "o", ms=4, alpha=0.8, color=color, mew=0)
            dots[model] = drawn[0]
            if len(cases):
                median = float(np.median(cases))
                axes.plot([median] * 2, [y - step * 0.42, y + step * 0.42], color=INK, lw=1.5)
    axes.set_yticks(range(len(classes)), classes)
    axes.set(xlabel=title, xlim=(-0.02, 1.02), ylim=(len(classes) - 0.5, -0.5))
    if len(values) > 1:  # of a label that begins with _ Matplotlib makes no entry by itself
        axes.legend([*dots.values()], [*dots], frameon=False, fontsize=8, loc="upper left")
    return svg(figure, title)


def histogram(values: Mapping[str, Sequence[float]], threshold: float, title: str) -> str:
    """Histograms of scores from 0 to 1 with a threshold, as an SVG element.

    Args:
        values: name -> scores; drawn as shares, so that sets of any size compare.
        threshold: marked by a vertical line.
        title: of the axis.
    """
    figure = Figure((PAGE_INCHES, 2.6), layout="constrained")
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
                color=LINES[number],
                alpha=0.6,
                label=label,
            )
    axes.axvline(threshold, color=INK, lw=1.5, ls="--", label=f"threshold {threshold:.3f}")
    axes.set(xlabel=title, ylabel="share", xlim=(0, 1))
    axes.yaxis.label.set(color=INK, fontsize=9)
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    return svg(figure, title)


def svg(figure: Figure, label: str, grid: bool = True) -> str:
    """The figure as an SVG element in the page's text color, its words searchable text.

    Names come from data: what stands between dollar signs is no formula.
    """
    for text in figure.findobj(Text):
        text.set_parse_math(False)
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color(INK)
        axes.tick_params(colors=INK, labelsize=9)
        if grid:
            axes.grid(color=INK, alpha=0.12, lw=0.6)
        axes.title.set(color=INK, fontsize=10)
        for text in (axes.xaxis.label, axes.yaxis.label):
            text.set(color=INK, fontsize=9)
        if (legend := axes.get_legend()) is not None:
            for text in legend.get_texts():
                text.set_color(INK)
        axes.patch.set_visible(False)
    stream = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": label}):
        FigureCanvasSVG(figure)  # type: ignore[no-untyped-call, unused-ignore]  # by Matplotlib's version
        with warnings.catch_warnings():  # the page's fonts draw the words, not Matplotlib's
            warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
            figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    drawn = stream.getvalue()
    drawn = drawn[drawn.index("<svg") :].replace(INK, "currentColor")
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn, flags=re.DOTALL)
    # ids are global to the page: two figures must not share them
    prefix = re.sub(r"\W+", "-", label.lower())
    drawn = re.sub(r'(id="|url\(#|href="#)', rf"\g<1>{prefix}-", drawn)
    width = f"max-width: {figure.get_figwidth() / PAGE_INCHES * _PAGE_REM:.1f}rem"
    return drawn.replace("<svg ", f'<svg role="img" aria-label="{label}" style="{width}" ', 1)
