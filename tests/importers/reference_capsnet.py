"""CapsNet-Keras' network in float64 NumPy; shares no code with caps_med."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tests.importers.reference import Array, Weights, convolve, route, sigmoid, squash


class Outputs(NamedTuple):
    """Primary capsules in Keras' order, class capsules ``[J, 16]``, the image drawn."""

    primary: Array
    capsules: Array
    reconstruction: Array


def capsnet(weights: Weights, image: Array, iterations: int = 3) -> Outputs:
    """`image` is ``[H, W, C]`` in [0, 1]; the longest capsule is drawn."""
    values = {name: np.asarray(array, np.float64) for name, array in weights.items()}
    first = _conv(values, "conv1", image, 1)
    maps = _conv(values, "primarycap_conv2d", np.maximum(first, 0), 2)
    primary = squash(maps.reshape(-1, 8))
    votes = np.einsum("jiao,io->ija", values["digitcaps/digitcaps/W:0"], primary)
    routed = route(votes[:, None, None], np.zeros(votes.shape[1:]), iterations, 3)
    capsules: Array = routed[0, 0]
    longest = np.linalg.norm(capsules, axis=1).argmax()
    masked = np.zeros_like(capsules)
    masked[longest] = capsules[longest]
    hidden = masked.reshape(-1)
    for number in (1, 2, 3):
        layer = f"decoder/decoder/dense_{number}"
        hidden = hidden @ values[f"{layer}/kernel:0"] + values[f"{layer}/bias:0"]
        hidden = sigmoid(hidden) if number == 3 else np.maximum(hidden, 0)
    return Outputs(primary, capsules, hidden.reshape(image.shape))


def _conv(values: dict[str, Array], layer: str, maps: Array, stride: int) -> Array:
    kernel, bias = (values[f"{layer}/{layer}/{name}:0"] for name in ("kernel", "bias"))
    return convolve(maps, kernel, stride, (0, 0), (0, 0)) + bias
