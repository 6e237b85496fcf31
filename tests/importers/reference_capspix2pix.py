"""The CapsPix2Pix generator as published (Bass et al. 2019) on its PyTorch weights, in NumPy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tests.importers.reference import Array, Weights, convolve, double, route, sigmoid


class Outputs(NamedTuple):
    """Image ``[H, W]``, the features ``[H, W, 16]`` it is made of, and every layer's capsules."""

    image: Array
    features: Array
    layers: dict[str, Array]


def capspix2pix(weights: Weights, label: Array, z: Array, source: str) -> Outputs:
    """The generator on a label map ``[H, W]`` and noise ``[Z]``."""
    noise = noise_channels(weights, label.shape, z, source)
    c: dict[str, Array] = {}
    maps = _convolution(weights, "conv1", np.concatenate((label[..., None], noise), axis=2))
    c["conv1"] = leaky(maps)[:, :, None]

    def down(name: str, below: Array, types: int, stride: int = 1) -> None:
        layer = f"{name}.conv2d"
        maps = [_convolution(weights, layer, below[:, :, i], stride) for i in range(below.shape[2])]
        c[name] = capsules_of(np.stack(maps), types)

    def up(name: str, below: Array, types: int) -> None:
        kernel = weights[f"{name}.deconv2d.weight"].astype(np.float64).transpose(2, 3, 0, 1)
        bias = weights[f"{name}.deconv2d.bias"].astype(np.float64)
        maps = [double(below[:, :, i], kernel) + bias for i in range(below.shape[2])]
        c[name] = capsules_of(np.stack(maps), types)

    def capsules_of(maps: Array, types: int) -> Array:
        votes = maps.reshape(*maps.shape[:3], types, -1)
        return route(votes, np.zeros(1), iterations=3, axis=0)

    down("convcaps1", c["conv1"], types=2, stride=2)
    down("convcaps2", c["convcaps1"], types=4)
    down("convcaps3", c["convcaps2"], types=4, stride=2)
    down("convcaps4", c["convcaps3"], types=8)
    down("convcaps5", c["convcaps4"], types=8, stride=2)
    down("convcaps6", c["convcaps5"], types=8)
    latent = c["convcaps6"]
    if source == "broadcast_latent":
        repeated = np.broadcast_to(z.reshape(8, -1), (*latent.shape[:3], z.size // 8))
        down("conv_latent", np.concatenate((latent, repeated), axis=3), types=8)
        latent = c["conv_latent"]
    if source == "dropout":
        down("conv_dropout", latent, types=8)
        latent = c["conv_dropout"] * np.where(z < 0, 0.0, 2.0)[:, None]
    up("deconvcaps1", latent, types=8)
    down("convcaps8", np.concatenate((c["deconvcaps1"], c["convcaps4"]), axis=2), types=4)
    up("deconvcaps2", c["convcaps8"], types=4)
    down("convcaps9", np.concatenate((c["deconvcaps2"], c["convcaps2"]), axis=2), types=4)
    up("deconvcaps3", c["convcaps9"], types=2)
    down("convcaps10", np.concatenate((c["deconvcaps3"], c["conv1"]), axis=2), types=1)
    features = c["convcaps10"][:, :, 0]
    return Outputs(sigmoid(_convolution(weights, "conv2", features))[..., 0], features, c)


def noise_channels(weights: Weights, size: tuple[int, ...], z: Array, source: str) -> Array:
    """The extra input channels ``[H, W, 0 or 1]``."""
    if source == "input":
        dense = weights["fc.weight"].astype(np.float64) @ z + weights["fc.bias"]
        return dense.reshape(*size, 1)
    if source == "broadcast":
        rows = np.tile(z, size[0] // z.size)
        return np.repeat(rows[:, None, None], size[1], axis=1)
    if source == "broadcast_conv":
        everywhere = np.broadcast_to(z, (*size, z.size))
        return leaky(_convolution(weights, "conv_noise", everywhere))
    return np.zeros((*size, 0))


def leaky(values: Array) -> Array:
    """Leaky ReLU with slope 0.01 below zero."""
    return np.where(values < 0, 0.01 * values, values)


def _convolution(weights: Weights, name: str, maps: Array, stride: int = 1) -> Array:
    """Convolution with bias; as many zeros on every side as half the kernel."""
    kernel = weights[f"{name}.weight"].astype(np.float64).transpose(2, 3, 1, 0)
    pads = (kernel.shape[0] // 2,) * 2
    return convolve(maps, kernel, stride, pads, pads) + weights[f"{name}.bias"]
