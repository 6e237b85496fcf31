"""Whether an image resembles those on which a model was trained.

A few statistics of the network's input slices are compared with those of the training, which the
model's card holds. They are deliberately coarse: each is easy to explain, and a warning names the
one that differs most. A classifier with a decoder also compares the picture with the
reconstruction from its capsules, and a model that refines its answers checks their certainty. How
often they are right: ``python -m benchmarks.suitability``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from caps_med.bundles import ImageStatistics, ModelCard

FloatArray = NDArray[np.float64]

#: An image is told if a statistic lies further outside the range of the training than this many
#: widths of the range.
LIMIT = 1.0
#: Widths are at least this: few training images differ little. The darkest content changes most
#: with the resolution, by what lies half in the background. Roughness is in natural logarithms.
NARROWEST: Mapping[str, float] = {
    "background": 0.12, "dark": 0.25, "middle": 0.12, "bright": 0.12, "contrast": 0.12,
    "roughness": 0.5,
}  # fmt: skip
#: A picture is told if its reconstruction leaves more of it unexplained than that of this share of
#: the held-out pictures, times the factor.
RECONSTRUCTED, FACTOR = 0.99, 1.25
#: With fewer held-out pictures their largest share says too little about other ones.
ENOUGH = 30
#: Quantiles of the training slices that make the range.
RANGE = 0.05, 0.95
#: Slices of an image that are looked at, and the widest part of one, in pixels.
JUDGED, WINDOW = 64, 1024
#: Levels in which the most frequent intensity is looked for.
LEVELS = 64
#: Slices with less than this share of other intensities show too little to be judged.
CONTENT = 0.1
_EMPTY = "the image is empty: all of it has one intensity"
#: Statistic -> how it is told, with its value and range.
_TOLD: Mapping[str, str] = {
    "background": "{value} of it is of one intensity (in training {low} to {high})",
    "dark": "a tenth of its content is below {value} of the scale (in training {low} to {high})",
    "middle": "half of its content is below {value} of the scale (in training {low} to {high})",
    "bright": "a tenth of its content is above {value} of the scale (in training {low} to {high})",
    "contrast": "its content varies by {value} of the scale (in training {low} to {high})",
    "roughness": "neighbouring pixels differ by {value} of the contrast (in training {low} to "
    "{high})",
}


def slice_statistics(slices: Iterable[NDArray[np.floating]]) -> FloatArray:
    """Statistics ``[N, 6]`` of slices ``[H, W]`` of one image, in the order of `ImageStatistics`.

    Slices that show too little are left out, unless this applies to all; N = 0 if all are empty.

    Args:
        slices: normalized to 0..1.
    """
    found = [one for each in slices if (one := _statistics(each)) is not None]
    shown = [one for one in found if one[0] <= 1 - CONTENT]
    return np.array(shown or found).reshape(-1, len(_TOLD))


def _statistics(picture: NDArray[np.floating]) -> FloatArray | None:
    values = np.asarray(picture, dtype=np.float32).clip(0, 1)
    levels = _levels(values)
    counts = np.bincount(levels.ravel(), minlength=LEVELS)
    others = values[levels != counts.argmax()]
    if others.size == 0:
        return None
    steps = [np.abs(np.diff(values, axis=axis)) for axis in (0, 1)]
    roughness = np.mean([step.mean() for step in steps if step.size]) / values.std()
    quantiles = np.quantile(others, [0.1, 0.5, 0.9])
    return np.array([counts.max() / values.size, *quantiles, others.std(), roughness])


def _levels(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    return np.rint(values * (LEVELS - 1)).astype(np.uint8)


def _shows_something(picture: NDArray[np.floating]) -> bool:
    levels = _levels(np.asarray(picture, dtype=np.float32).clip(0, 1))
    return bool((levels != levels.flat[0]).any())


def training_statistics(slices: Iterable[NDArray[np.floating]]) -> ImageStatistics | None:
    """The ranges of the training slices ``[H, W]``; None if they show nothing."""
    found = slice_statistics(slices)
    if not len(found):
        return None
    low, high = np.quantile(found, RANGE, axis=0)
    pairs = zip(low.round(4).tolist(), high.round(4).tolist(), strict=True)
    return ImageStatistics.model_validate(dict(zip(_TOLD, pairs, strict=True)))


def own_slices(slices: Tensor, neighbours: int = 0) -> Iterator[NDArray[np.float32]]:
    """Slices ``[H, W]``: the mean of their own channels, without those of neighbours.

    At most `JUDGED` slices, evenly spaced; of large ones only the middle, `WINDOW` pixels wide.

    Args:
        slices: ``[D, (2 neighbours + 1) C, H, W]``.
    """
    depth, channels, *size = slices.shape
    channels //= 2 * neighbours + 1
    (top, rows), (left, columns) = (
        (max(0, edge - WINDOW) // 2, min(edge, WINDOW)) for edge in size
    )
    count = min(depth, JUDGED)
    for place in range(count):
        own = slices[(2 * place + 1) * depth // (2 * count)]
        own = own[neighbours * channels : (neighbours + 1) * channels]
        yield own[:, top : top + rows, left : left + columns].mean(0).numpy()


def unlike_training(card: ModelCard, slices: Tensor) -> tuple[str, ...]:
    """A warning if prepared slices ``[D, C, H, W]`` differ from the training's, else empty."""
    shown = own_slices(slices, card.neighbours)
    if card.statistics is None:  # nothing to compare with, so none of the image's are computed
        return () if any(map(_shows_something, shown)) else (_empty(card, slices),)
    found = slice_statistics(shown)
    if not len(found):
        return (_empty(card, slices),)
    distance, name, value = max(_distances(card.statistics, np.median(found, 0)))
    if distance <= LIMIT:
        return ()
    low, high = getattr(card.statistics, name)
    told = _TOLD[name].format(value=f"{value:.2f}", low=f"{low:.2f}", high=f"{high:.2f}")
    return (
        f"the image is unlike those that the model was trained on: {told}{what_it_takes(card)}",
    )


def less_certain(card: ModelCard, entropy: float) -> tuple[str, ...]:
    """A warning if a refined answer is less certain than for suitable images; else empty.

    Args:
        card: of the model.
        entropy: mean over the foreground of the answer, 0 to 1.
    """
    limit = card.refined_entropy
    if limit is None or entropy <= limit:
        return ()
    return (
        "the model is unsure of what it labels, so that the image may be unlike those that it was "
        f"trained on: mean entropy {entropy:.2f} (of images that suit it at most {limit:.2f})"
        f"{what_it_takes(card)}",
    )


def what_it_takes(card: ModelCard) -> str:
    """The end of a warning: the model's intended input, if its card says so."""
    return f"; it takes {card.input_description}" if card.input_description else ""


def _empty(card: ModelCard, slices: Tensor) -> str:
    """The warning that an image is empty, or empty on the fixed scale of the model."""
    spec = card.classification
    window = (spec.pictures if spec else card).normalization.window
    if window is None or slices.max() == slices.min():
        return _EMPTY
    low, high = window
    return (
        f"{_EMPTY} on the model's scale, {low:g} to {high:g}; an image of another scale has to be "
        "brought to it"
    )


def unexplained(pictures: Tensor, reconstructions: Tensor) -> Tensor:
    """The fraction ``[B]`` of each picture's variation that its reconstruction does not explain.

    The summed squared error divided by that of the picture's own mean: 0 for a perfect
    reconstruction, 1 for one no better than a single grey. Both are ``[B, C, *S]``.
    """
    wanted, found = pictures.flatten(1).float(), reconstructions.flatten(1).float()
    own = (wanted - wanted.mean(1, keepdim=True)).square().sum(1)
    return (wanted - found).square().sum(1) / own.clamp_min(1e-6)


def reconstruction_limit(errors: Tensor) -> float | None:
    """The limit for `unexplained` from held-out pictures, for the card; None for too few."""
    if len(errors) < ENOUGH:
        return None
    return round(float(errors.quantile(RECONSTRUCTED)), 4) or None


def unlike_reconstruction(card: ModelCard, error: float) -> tuple[str, ...]:
    """A warning if the capsules explain too little of a picture; else empty.

    Args:
        error: see `unexplained`.
    """
    usual = card.classification.reconstruction_error if card.classification else None
    if usual is None or error <= FACTOR * usual:
        return ()
    return (
        "the image is unlike those that the model was trained on: the error of its reconstruction "
        f"is {error:.2f} times its variation (of held-out images {RECONSTRUCTED:.0%} below "
        f"{usual:.2f})",
    )


def _distances(known: ImageStatistics, values: FloatArray) -> Iterable[tuple[float, str, float]]:
    """How far each statistic is outside its range, in widths of the range; its name and value."""
    for name, value in zip(_TOLD, values.tolist(), strict=True):
        usual, rough = getattr(known, name), name == "roughness"
        yield widths_outside(value, usual, NARROWEST[name], logarithmic=rough), name, value


def widths_outside(
    value: float, usual: tuple[float, float], narrowest: float, *, logarithmic: bool = False
) -> float:
    """How far a value lies outside a range, in widths of the range.

    Args:
        usual: the range.
        narrowest: the minimum width; a narrower range counts as this wide.
        logarithmic: whether to measure natural logarithms.
    """
    low, high = usual
    if logarithmic:
        low, high, value = (float(np.log(max(x, 1e-4))) for x in (low, high, value))
    return max(low - value, value - high, 0.0) / max(high - low, narrowest)
