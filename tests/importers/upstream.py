"""Files as the published projects write them, filled by `reference.fill`."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import h5py
import torch

from tests.importers.reference import Weights

LAYOUTS = Path(__file__).parent / "layouts"
Shapes = dict[str, list[int]]


def segcaps_shapes() -> Shapes:
    return layout("segcaps_keras_weights")


def generator_shapes(source: str, noise_size: int = 100, pixels: int = 64 * 64) -> Shapes:
    """The generator's layout with the layers of another noise source or size."""
    shapes = layout("capspix2pix_generator_keys")
    del shapes["fc.weight"], shapes["fc.bias"]
    if source == "input":
        shapes |= {"fc.weight": [pixels, noise_size], "fc.bias": [pixels]}
    if source == "broadcast_conv":
        shapes |= {"conv_noise.weight": [1, noise_size, 5, 5], "conv_noise.bias": [1]}
    if source == "broadcast_latent":
        shapes |= _capsule_layer("conv_latent", 32 + noise_size // 8)
    if source == "dropout":
        shapes |= _capsule_layer("conv_dropout", 32)
    if source in ("broadcast_latent", "dropout"):
        shapes["conv1.weight"] = [16, 1, 5, 5]
    return shapes


def capsnet_shapes(edge: int = 28, channels: int = 1, classes: int = 10) -> Shapes:
    """CapsNet-Keras' `trained_model.h5`."""
    positions = ((edge - 8 - 9) // 2 + 1) ** 2
    widths = (classes * 16, 512, 1024, edge * edge * channels)
    shapes: Shapes = {
        "conv1/conv1/kernel:0": [9, 9, channels, 256],
        "conv1/conv1/bias:0": [256],
        "primarycap_conv2d/primarycap_conv2d/kernel:0": [9, 9, 256, 256],
        "primarycap_conv2d/primarycap_conv2d/bias:0": [256],
        "digitcaps/digitcaps/W:0": [classes, 32 * positions, 16, 8],
    }
    for number, (before, after) in enumerate(itertools.pairwise(widths), start=1):
        shapes[f"decoder/decoder/dense_{number}/kernel:0"] = [before, after]
        shapes[f"decoder/decoder/dense_{number}/bias:0"] = [after]
    return shapes


def layout(name: str) -> Shapes:
    shapes: Shapes = json.loads((LAYOUTS / f"{name}.json").read_text())
    return shapes


def write_keras(path: Path, weights: Weights, full_model: bool = False) -> Path:
    """`model.save_weights(path)`, or `model.save(path)`, of Keras 2 with h5py."""
    with h5py.File(path, "w") as file:
        root = file.create_group("model_weights") if full_model else file
        layers = list(dict.fromkeys(name.split("/")[0] for name in weights))
        root.attrs["layer_names"] = [name.encode() for name in [*layers, "out_seg"]]
        root.attrs["backend"], root.attrs["keras_version"] = b"tensorflow", b"2.2.4"
        root.create_group("out_seg").attrs["weight_names"] = []
        for layer in layers:
            names = [name for name in weights if name.startswith(f"{layer}/")]
            group = root.create_group(layer)
            group.attrs["weight_names"] = [
                name.removeprefix(f"{layer}/").encode() for name in names
            ]
        for name, values in weights.items():
            root[name] = values
        if full_model:
            file.attrs["model_config"] = b"{}"
            file["optimizer_weights/training/Adam/iterations:0"] = 7
    return path


def write_torch(
    path: Path, weights: Weights, prefix: str = "", legacy: bool = False, batches: int = 0
) -> Path:
    """`torch.save(netG.state_dict(), path)`; `legacy` as PyTorch 1.0 did it."""
    state = {f"{prefix}{name}": torch.from_numpy(values) for name, values in weights.items()}
    counters = [name for name in state if name.endswith("num_batches_tracked")]
    state |= {name: torch.tensor(batches) for name in counters}
    torch.save(state, path, _use_new_zipfile_serialization=not legacy)
    return path


def _capsule_layer(name: str, atoms: int) -> Shapes:
    norms: Shapes = {
        f"{name}.bn.{part}": [2048] for part in ("weight", "bias", "running_mean", "running_var")
    }
    return {
        **norms,
        f"{name}.bn.num_batches_tracked": [],
        f"{name}.conv2d.weight": [256, atoms, 5, 5],
        f"{name}.conv2d.bias": [256],
    }
