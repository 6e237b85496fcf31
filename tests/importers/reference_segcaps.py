"""SegCaps as published (LaLonde & Bagci 2018) on Keras weights, in float64 NumPy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tests.importers.reference import (
    Array,
    Pads,
    Weights,
    convolve,
    double,
    route,
    sigmoid,
)

ROUTED_IN_R1 = (
    "conv_cap_2_2",
    "conv_cap_3_2",
    "deconv_cap_1_1",
    "deconv_cap_2_1",
    "deconv_cap_3_1",
)


class Outputs(NamedTuple):
    """Capsules ``[H, W, 1, 16]``, lengths ``[H, W]``, reconstruction ``[H, W]``, every layer."""

    capsules: Array
    lengths: Array
    reconstruction: Array
    layers: dict[str, Array]


def segcaps(weights: Weights, image: Array, variant: str) -> Outputs:
    """The network on an image ``[H, W]`` whose sides are multiples of 8."""
    c: dict[str, Array] = {}
    maps = same(image[..., None], tensor(weights, "conv1/conv1/kernel:0"), stride=1)
    c["conv1"] = np.maximum(maps + tensor(weights, "conv1/conv1/bias:0"), 0)[:, :, None]

    def down(name: str, below: Array, stride: int = 1) -> None:
        kernel = tensor(weights, f"{name}/{name}/W:0")
        maps = [same(below[:, :, i], kernel, stride) for i in range(below.shape[2])]
        c[name] = capsules_of(name, np.stack(maps))

    def up(name: str, below: Array) -> None:
        kernel = tensor(weights, f"{name}/{name}/W:0").transpose(0, 1, 3, 2)
        maps = [double(below[:, :, i], kernel) for i in range(below.shape[2])]
        c[name] = capsules_of(name, np.stack(maps))

    def capsules_of(name: str, maps: Array) -> Array:
        bias = tensor(weights, f"{name}/{name}/b:0")
        routed = name != "primarycaps" and (variant == "r3" or name in ROUTED_IN_R1)
        votes = maps.reshape(*maps.shape[:3], *bias.shape[2:])
        return route(votes, bias, iterations=3 if routed else 1, axis=3)

    down("primarycaps", c["conv1"], stride=2)
    down("conv_cap_2_1", c["primarycaps"])
    down("conv_cap_2_2", c["conv_cap_2_1"], stride=2)
    down("conv_cap_3_1", c["conv_cap_2_2"])
    down("conv_cap_3_2", c["conv_cap_3_1"], stride=2)
    down("conv_cap_4_1", c["conv_cap_3_2"])
    up("deconv_cap_1_1", c["conv_cap_4_1"])
    down("deconv_cap_1_2", np.concatenate((c["deconv_cap_1_1"], c["conv_cap_3_1"]), axis=2))
    up("deconv_cap_2_1", c["deconv_cap_1_2"])
    down("deconv_cap_2_2", np.concatenate((c["deconv_cap_2_1"], c["conv_cap_2_1"]), axis=2))
    up("deconv_cap_3_1", c["deconv_cap_2_2"])
    down("seg_caps", np.concatenate((c["deconv_cap_3_1"], c["conv1"]), axis=2))
    lengths = np.linalg.norm(c["seg_caps"][:, :, 0], axis=-1)
    return Outputs(c["seg_caps"], lengths, _reconstruction(weights, c["seg_caps"]), c)


def same(maps: Array, kernel: Array, stride: int) -> Array:
    """Convolution with TensorFlow's *same* padding: the odd zero goes below and to the right."""
    rows, columns = (_same_pads(size, kernel.shape[0], stride) for size in maps.shape[:2])
    return convolve(maps, kernel, stride, rows, columns)


def _same_pads(size: int, kernel: int, stride: int) -> Pads:
    rest = size % stride
    total = max(kernel - (rest or stride), 0)
    return total // 2, total - total // 2


def _reconstruction(weights: Weights, capsules: Array) -> Array:
    maps = capsules[:, :, 0]
    for name in ("recon_1", "recon_2", "out_recon"):
        kernel = tensor(weights, f"{name}/{name}/kernel:0")[0, 0]
        maps = maps @ kernel + tensor(weights, f"{name}/{name}/bias:0")
        maps = sigmoid(maps) if name == "out_recon" else np.maximum(maps, 0)
    return maps[..., 0]


def tensor(weights: Weights, name: str) -> Array:
    """One tensor of the file in float64."""
    return weights[name].astype(np.float64)
