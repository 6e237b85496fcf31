"""CapsPix2Pix generators of the published PyTorch code (Bass et al. 2019)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isqrt
from pathlib import Path
from typing import Any

from torch import Tensor

from caps_med.bundles.shapes import Shape
from caps_med.bundles.weights import sha256
from caps_med.errors import InvalidInput, InvalidParameter
from caps_med.importers.checkpoints import read_checkpoint
from caps_med.importers.imported import Imported
from caps_med.importers.matching import Slot, check_project, match
from caps_med.networks import build_network
from caps_med.networks.base import Output
from caps_med.networks.noise import NoiseName

_PROJECT = "the CapsPix2Pix generator (PyTorch)"
#: The layer that each noise source has and no other; `broadcast` has none.
_NOISE_LAYERS: Mapping[str, NoiseName] = {
    "fc": "input",
    "conv_noise": "broadcast_conv",
    "conv_latent": "broadcast_latent",
    "conv_dropout": "dropout",
}
#: The layer whose second axis is as long as z.
_SIZED = {"input": "fc", "broadcast_conv": "conv_noise", "broadcast_latent": "conv_latent.conv2d"}
#: First layers of upstream's discriminators, two of which also have an `fc`.
_DISCRIMINATOR = ("main.", "digit_capsules.", "primary_capsules.")
#: Built upstream and never used in the forward pass: name -> shape.
_UNUSED: Mapping[str, Shape] = {
    "convcaps7.conv2d.weight": (256, 32, 5, 5),
    "convcaps7.conv2d.bias": (256,),
    "recon1.weight": (64, 16, 1, 1),
    "recon1.bias": (64,),
    "recon2.weight": (128, 64, 1, 1),
    "recon2.bias": (128,),
    "recon3.weight": (1, 128, 1, 1),
    "recon3.bias": (1,),
}
#: Channels (input types times output types times atoms) of the batch norm beside each layer.
_NORMS = {
    "convcaps1": 1 * 2 * 16,
    "convcaps2": 2 * 4 * 16,
    "convcaps3": 4 * 4 * 32,
    "convcaps4": 4 * 8 * 32,
    "convcaps5": 8 * 8 * 64,
    "convcaps6": 8 * 8 * 32,
    "convcaps7": 16 * 8 * 32,
    "conv_latent": 8 * 8 * 32,
    "conv_dropout": 8 * 8 * 32,
    "deconvcaps1": 8 * 8 * 32,
    "convcaps8": 16 * 4 * 32,
    "deconvcaps2": 4 * 4 * 16,
    "convcaps9": 8 * 4 * 16,
    "deconvcaps3": 4 * 2 * 16,
    "convcaps10": 3 * 1 * 16,
}
_NORM_PARTS = ("weight", "bias", "running_mean", "running_var")


def read_capspix2pix(
    path: Path | str,
    noise_source: NoiseName | None = None,
    noise_size: int | None = None,
    image_size: Sequence[int] | None = None,
    output: Output = "sigmoid",
) -> Imported:
    """The published CapsPix2Pix generator from its state dict.

    Agreement is per sample here; upstream averages it over the batch, which is the same for a batch
    of one. The layers that upstream's forward pass never uses are accepted and reported.

    Args:
        path: `.pt`, `.pth` (read with ``weights_only=True``) or `.safetensors`.
        noise_source: where the noise enters; None reads it from the file's layers.
        noise_size: length of z; None reads it from the file, except for ``"broadcast"``, which
            leaves no trace there.
        image_size: (H, W) of ``"input"``; None assumes a square image for the file's dense layer.
        output: ``"sigmoid"`` or ``"tanh"``, upstream's `gan_last_nonlinearity`, which is not stored
            in the file.

    Raises:
        UnsupportedFormat: neither a checkpoint nor safetensors.
        InputTooLarge: a file over a gigabyte.
        InvalidInput: a corrupt file, a pickled object, a discriminator, or tensors other than the
            generator's, each listed.
        InvalidParameter: a noise source or size that does not match the file, or one that is
            missing.
    """
    path = Path(path)
    tensors = read_checkpoint(path)
    _refuse_discriminator(tensors)
    check_project(_PROJECT, tensors, [f"{layer}.conv2d.weight" for layer in _NORMS])
    arguments: dict[str, Any] = {"label_channels": 1, "image_channels": 1, "output": output}
    arguments |= _noise_arguments(tensors, noise_source, noise_size, image_size)
    network = build_network("CapsPix2Pix", arguments)
    slots = [_slot(key, tensor) for key, tensor in network.state_dict().items()]
    matched = match(_PROJECT, tensors, slots, _optional())
    network.load_state_dict(matched.state)
    return Imported(
        network.eval(),
        "CapsPix2Pix",
        arguments,
        path.name,
        sha256(path),
        matched.unused,
        _warnings(tensors),
    )


def _slot(key: str, tensor: Tensor) -> Slot:
    source = key.removeprefix("noise.")
    kind = "deconv2d" if source.startswith("deconv") else "conv2d"
    return Slot(key, source.replace(".conv.", f".{kind}."), tuple(tensor.shape))


def _optional() -> dict[str, Shape]:
    """Upstream's additional tensors: unused layers, and a batch norm per layer."""
    norms = {f"{name}.bn.{part}": (n,) for name, n in _NORMS.items() for part in _NORM_PARTS}
    counters: dict[str, Shape] = {f"{name}.bn.num_batches_tracked": () for name in _NORMS}
    return {**_UNUSED, **norms, **counters}


def _refuse_discriminator(tensors: Mapping[str, Tensor]) -> None:
    if any(name.startswith(_DISCRIMINATOR) for name in tensors):
        raise InvalidInput(
            "these are the weights of a CapsPix2Pix discriminator, which only training uses; "
            "import the generator's file (upstream names it ModelG_*.pt)"
        )


def _noise_arguments(
    tensors: Mapping[str, Tensor],
    source: NoiseName | None,
    size: int | None,
    image_size: Sequence[int] | None,
) -> dict[str, Any]:
    """The network's arguments that determine where and how the noise enters."""
    shown = _shown_source(tensors)
    if source not in (None, shown):
        raise InvalidParameter(
            f"noise_source={source!r}: the file's layers are those of {shown!r}; leave it out"
        )
    shown_size = _shown_size(tensors, shown)
    if shown == "broadcast" and size is None:
        raise InvalidParameter(
            "noise_source='broadcast' leaves no trace of its noise size in the file: "
            "pass --noise-size (upstream's noise_size)"
        )
    if None not in (size, shown_size) and size != shown_size:
        raise InvalidParameter(f"noise_size={size}: the file's layers are for {shown_size}")
    arguments: dict[str, Any] = {"noise_source": shown}
    if shown != "dropout":
        arguments["noise_size"] = shown_size or size
    if shown == "input":
        arguments["image_size"] = _image_size(tensors["fc.weight"], image_size)
    elif image_size is not None:
        raise InvalidParameter(f"image_size: noise_source={shown!r} takes any size; leave it out")
    return arguments


def _shown_source(tensors: Mapping[str, Tensor]) -> NoiseName:
    names = {name.split(".")[0] for name in tensors}
    shown = [source for layer, source in _NOISE_LAYERS.items() if layer in names]
    if len(shown) > 1:
        raise InvalidInput(f"the file holds the layers of several noise sources: {shown}")
    return shown[0] if shown else "broadcast"


def _shown_size(tensors: Mapping[str, Tensor], source: NoiseName) -> int | None:
    """The noise size given by the source's layer; None if it has none."""
    if source not in _SIZED:
        return None
    name = f"{_SIZED[source]}.weight"
    weight = tensors.get(name)
    if weight is None or weight.ndim < 2:
        found = "none" if weight is None else list(weight.shape)
        raise InvalidInput(f"{name}: needed two axes or more, the file has {found}")
    channels = weight.shape[1]
    return 8 * (channels - 32) if source == "broadcast_latent" else channels


def _image_size(dense: Tensor, image_size: Sequence[int] | None) -> tuple[int, ...]:
    pixels = dense.shape[0]
    size = tuple(image_size) if image_size else (isqrt(pixels),) * 2
    if len(size) != 2 or size[0] * size[1] != pixels or any(edge % 8 for edge in size):
        raise InvalidParameter(
            f"image_size={'x'.join(map(str, size))}: the noise layer fc.weight {list(dense.shape)} "
            f"is for {pixels} pixels; pass --image-size HxW, multiples of 8 of that product"
        )
    return size


def _warnings(tensors: Mapping[str, Tensor]) -> tuple[str, ...]:
    counters = [tensor for name, tensor in tensors.items() if name.endswith("num_batches_tracked")]
    if any(counter.numel() == 1 and counter.item() > 0 for counter in counters):
        return (
            "the batch norm layers have seen training batches: if upstream's batch_norm was on, "
            "its outputs differ from these, which leave batch norm out",
        )
    return ()
