"""What both published networks are made of, in float64 NumPy; shares no code with caps_med.

Images are ``[H, W, channels]`` and capsules ``[H, W, types, atoms]``; batch size is one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Weights = dict[str, npt.NDArray[np.float32]]
Pads = tuple[int, int]


def convolve(maps: Array, kernel: Array, stride: int, rows: Pads, columns: Pads) -> Array:
    """Cross-correlation of ``[H, W, in]`` with ``[k, k, in, out]`` on zero-padded maps."""
    size = kernel.shape[0]
    padded = np.pad(maps, (rows, columns, (0, 0)))
    height = (padded.shape[0] - size) // stride + 1
    width = (padded.shape[1] - size) // stride + 1
    total = np.zeros((height, width, kernel.shape[3]))
    for y in range(size):
        for x in range(size):
            seen = padded[y : y + stride * height : stride, x : x + stride * width : stride]
            total += seen[:height, :width] @ kernel[y, x]
    return total


def double(maps: Array, kernel: Array) -> Array:
    """Transposed convolution of ``[H, W, in]`` with ``[4, 4, in, out]``: each pixel paints 4x4.

    Stride 2; one row and column are cropped on every side.
    """
    height, width = maps.shape[:2]
    total = np.zeros((2 * height + 2, 2 * width + 2, kernel.shape[3]))
    for y in range(4):
        for x in range(4):
            total[y : y + 2 * height : 2, x : x + 2 * width : 2] += maps @ kernel[y, x]
    return total[1:-1, 1:-1]


def route(votes: Array, bias: Array, iterations: int, axis: int) -> Array:
    """Routing by agreement of votes ``[I, H, W, J, A]``; `axis` 0: softmax over I, 3: over J."""
    logits = np.zeros(votes.shape[:-1])
    capsules = np.zeros(votes.shape[1:])
    for iteration in range(iterations):
        powers = np.exp(logits - logits.max(axis=axis, keepdims=True))
        coupling = powers / powers.sum(axis=axis, keepdims=True)
        capsules = squash((coupling[..., None] * votes).sum(axis=0) + bias)
        if iteration < iterations - 1:
            logits = logits + (votes * capsules).sum(axis=-1)
    return capsules


def squash(vectors: Array) -> Array:
    """``|s|² / (1 + |s|²) · s / |s|``; zero stays zero."""
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    direction = np.divide(vectors, length, out=np.zeros_like(vectors), where=length > 0)
    squashed: Array = direction * length**2 / (1 + length**2)
    return squashed


def sigmoid(values: Array) -> Array:
    """Logistic function."""
    result: Array = 1 / (1 + np.exp(-values))
    return result


def fill(shapes: dict[str, list[int]]) -> Weights:
    """A weight for every name, by a formula of the name: pseudo-random, the same everywhere."""
    return {name: _fill(name, tuple(shape)) for name, shape in shapes.items()}


def _fill(name: str, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
    phase = sum((position + 1) * ord(letter) for position, letter in enumerate(name))
    steps = np.arange(int(np.prod(shape))) + 1.0
    noise = np.modf(np.abs(np.sin(steps * 12.9898 + phase)) * 43758.5453)[0]
    scale = 0.1 if len(shape) < 2 or name.endswith("b:0") else 5 / np.sqrt(_inputs(shape))
    values = scale * (2 * noise - 1)
    return np.asarray(values.reshape(shape), dtype=np.float32)


def _inputs(shape: tuple[int, ...]) -> float:
    """About how many products a sum over this kernel has, whichever axis comes first."""
    taps = [edge for edge in shape if edge <= 5]
    channels = [edge for edge in shape if edge > 5]
    return float(np.prod(taps) * (min(channels) if channels else 1))
