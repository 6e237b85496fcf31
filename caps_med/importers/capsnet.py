"""CapsNet weights from CapsNet-Keras (XifengGuo), the most used code for Sabour et al. 2017."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from torch import Tensor

from caps_med.bundles.weights import sha256
from caps_med.errors import InvalidInput
from caps_med.importers.hdf5 import read_keras_weights
from caps_med.importers.imported import Imported
from caps_med.importers.matching import Slot, check_project, match
from caps_med.networks import CapsNet, build_network
from caps_med.networks.classification import LARGEST_EDGE, SMALLEST_EDGE

_PROJECT = "CapsNet-Keras"
_CONV, _PRIMARY, _CLASS, _DECODER = "conv1", "primarycap_conv2d", "digitcaps", "decoder"
#: The decoder's dense layers: position in ours -> position in the file.
_DENSE = {"0": "1", "2": "2", "4": "3"}


def read_capsnet(path: Path | str, iterations: int = 3) -> Imported:
    """A CapsNet from a weights file of CapsNet-Keras.

    Args:
        path: `.h5` or `.hdf5`, from `model.save_weights` or `model.save`.
        iterations: of routing, that code's `--routings`, which is not stored in the file.

    Returns:
        The network, for square images of the size that its decoder draws. It squashes with the
        exact length, whereas Keras adds 1e-7 under the root: equal except for capsules shorter than
        that.

    Raises:
        UnsupportedFormat: not an HDF5 file.
        InvalidInput: a corrupt file, tensors other than CapsNet-Keras', each listed, or images
            of a size other than 20 to 48 pixels.
        InvalidParameter: fewer than one iteration.
    """
    path = Path(path)
    tensors = _canonical(read_keras_weights(path))
    arguments = {**_sizes(tensors), "iterations": iterations}
    network = cast(CapsNet, build_network("CapsNet", arguments))
    slots = [_slot(key, tensor, network) for key, tensor in network.state_dict().items()]
    network.load_state_dict(match(_PROJECT, tensors, slots, optional={}).state)
    return Imported(network.eval(), "CapsNet", arguments, path.name, sha256(path))


def _canonical(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors by layer and parameter: versions of Keras differ in the folders between the two.

    Dense layers of the decoder are renumbered in order: Keras continues counting from earlier
    models in the same process.
    """
    dense = sorted({found for name in tensors if (found := _dense(name))}, key=_number)
    renamed = {}
    for name, tensor in tensors.items():
        layer, *_, parameter = name.split("/") if "/" in name else ("", name)
        if layer == _DECODER and (found := _dense(name)):
            layer = f"{_DECODER}/{dense.index(found) + 1}"
        known = layer.split("/")[0] in (_CONV, _PRIMARY, _CLASS, _DECODER)
        renamed[f"{layer}/{parameter}" if known else name] = tensor
    return renamed


def _dense(name: str) -> str | None:
    parts = [part for part in name.split("/") if re.fullmatch(r"dense(_\d+)?", part)]
    return parts[-1] if name.startswith(f"{_DECODER}/") and parts else None


def _number(dense: str) -> int:
    return int(dense.partition("_")[2] or 0)


def _sizes(tensors: Mapping[str, Tensor]) -> dict[str, object]:
    """The network's arguments, derived from the shapes."""
    needed = [f"{_CONV}/kernel:0", f"{_CLASS}/W:0", f"{_DECODER}/3/bias:0"]
    check_project(_PROJECT, tensors, needed)
    kernels = [tensors.get(name) for name in needed[:2]]
    if needed[2] not in tensors or any(kernel is None or kernel.ndim != 4 for kernel in kernels):
        return {}  # matching tells what is missing
    channels, classes = tensors[needed[0]].shape[2], tensors[needed[1]].shape[0]
    pixels = tensors[needed[2]].numel() / channels if channels else 0
    edge = math.isqrt(int(pixels))
    if edge < 1 or edge * edge != pixels:
        raise InvalidInput(
            f"the decoder draws {tensors[needed[2]].numel()} values: no square image with "
            f"{channels} channels has this number"
        )
    if not SMALLEST_EDGE <= edge <= LARGEST_EDGE:
        raise InvalidInput(
            f"a CapsNet for images of {edge} x {edge} pixels: only those for {SMALLEST_EDGE} to "
            f"{LARGEST_EDGE} pixels can be imported, because others begin with another layer here"
        )
    return {"in_channels": channels, "out_channels": classes, "image_size": (edge, edge)}


def _slot(key: str, tensor: Tensor, network: CapsNet) -> Slot:
    """Keras keeps channels last: ``[k, k, in, out]``; dense layers are ``[in, out]``."""
    layer, parameter = key.split(".")[0], key.split(".")[-1]
    if layer == "classcaps":
        return _class_slot(key, tensor, network)
    named = {"weight": "kernel:0", "bias": "bias:0"}[parameter]
    if layer == "decoder":
        return _decoder_slot(key, tensor, network, named)
    source = f"{_CONV if layer == 'conv1' else _PRIMARY}/{named}"
    if parameter == "bias":
        return Slot(key, source, tuple(tensor.shape))
    shape = tuple(tensor.permute(2, 3, 1, 0).shape)
    return Slot(key, source, shape, lambda values: values.permute(3, 2, 0, 1))


def _class_slot(key: str, tensor: Tensor, network: CapsNet) -> Slot:
    """``[J, I, A, A_in]`` with I position by position; ours is ``[I, J, A, A_in]`` type by type."""
    types = network.primarycaps.out_types
    inputs, classes, atoms, in_atoms = tensor.shape

    def convert(values: Tensor) -> Tensor:
        # [J, positions, types, A, A_in]
        by_position: Tensor = values.unflatten(1, (inputs // types, types))
        return by_position.permute(2, 1, 0, 3, 4).flatten(0, 1)

    return Slot(key, f"{_CLASS}/W:0", (classes, inputs, atoms, in_atoms), convert)


def _decoder_slot(key: str, tensor: Tensor, network: CapsNet, named: str) -> Slot:
    """Dense layers, the last of which draws ``[H, W, C]`` where ours draws ``[C, H, W]``."""
    position = key.split(".")[2]
    source, shape = f"{_DECODER}/{_DENSE[position]}/{named}", tuple(tensor.shape)[::-1]

    def convert(values: Tensor) -> Tensor:
        ours = values.t() if values.ndim > 1 else values
        if position != max(_DENSE):
            return ours
        pixels: Tensor = ours.unflatten(0, (*network.image_size, network.in_channels))
        return pixels.movedim(2, 0).flatten(0, 2)

    return Slot(key, source, shape, convert)
