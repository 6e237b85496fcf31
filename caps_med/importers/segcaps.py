"""SegCaps weights from the published Keras code (LaLonde & Bagci 2018)."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from caps_med.bundles.weights import sha256
from caps_med.importers.hdf5 import read_keras_weights
from caps_med.importers.imported import Imported
from caps_med.importers.matching import Slot, match
from caps_med.networks import build_network
from caps_med.networks.segcaps import Variant

#: The reconstruction head: position in ours -> layer upstream.
_HEAD = {"0": "recon_1", "2": "recon_2", "4": "out_recon"}


def read_segcaps(path: Path | str, variant: Variant = "r3") -> Imported:
    """The published SegCaps from a Keras weights file.

    Args:
        path: `.h5` or `.hdf5`, from `model.save_weights` or `model.save`.
        variant: ``"r3"`` or ``"r1"``; both have the same weights, so the file cannot tell.

    Returns:
        The network with TensorFlow's padding and these weights, binary and with one image channel
        like upstream's.

    Raises:
        UnsupportedFormat: not an HDF5 file.
        InvalidInput: a corrupt file, or tensors other than SegCaps', each listed.
        InvalidParameter: an unknown variant.
    """
    path = Path(path)
    arguments = {"in_channels": 1, "out_channels": 1, "variant": variant, "padding": "tensorflow"}
    network = build_network("SegCaps", arguments)
    slots = [_slot(key, tensor) for key, tensor in network.state_dict().items()]
    matched = match("SegCaps R3/R1 (Keras)", read_keras_weights(path), slots, optional={})
    network.load_state_dict(matched.state)
    return Imported(network.eval(), "SegCaps", arguments, path.name, sha256(path))


def _slot(key: str, tensor: Tensor) -> Slot:
    """Keras keeps channels last, ``[k, k, in, out]``, and transposed ``[k, k, out, in]``."""
    layer, parameter = key.split(".")[0], key.split(".")[-1]
    names = {"weight": "W", "bias": "b"}
    if layer in ("conv1", "reconstruction"):  # Keras' own convolutions
        names = {"weight": "kernel", "bias": "bias"}
    if layer == "reconstruction":
        layer = _HEAD[key.split(".")[1]]
    source = f"{layer}/{layer}/{names[parameter]}:0"
    if parameter == "weight":
        shape = tuple(tensor.permute(2, 3, 1, 0).shape)
    else:
        shape = (*((1, 1) if names[parameter] == "b" else ()), *tensor.shape)

    def convert(values: Tensor) -> Tensor:
        return values.permute(3, 2, 0, 1) if parameter == "weight" else values.view(tensor.shape)

    return Slot(key, source, shape, convert)
