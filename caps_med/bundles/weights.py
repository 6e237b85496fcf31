"""Weights as safetensors: checked key by key, never unpickled."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from caps_med.bundles.shapes import mismatches
from caps_med.errors import InvalidBundle


def save_weights(network: nn.Module, path: Path, half: bool = False) -> str:
    """Write the network's state dict, as float16 when `half`; returns its sha256."""
    state = {k: v.detach().cpu().contiguous() for k, v in network.state_dict().items()}
    if half:
        state = {k: v.half() if v.is_floating_point() else v for k, v in state.items()}
    save_file(state, path, metadata={"format": "pt"})
    path.chmod(0o644)
    return sha256(path)


def load_weights(network: nn.Module, path: Path) -> None:
    """Fill the network from a safetensors file; float16 is widened.

    Raises:
        InvalidBundle: the file is missing or broken, or its tensors are not the network's; the
            message lists each missing, extra and misshapen tensor with both shapes.
    """
    try:
        state = load_file(path)
    except (OSError, SafetensorError) as error:
        raise InvalidBundle(f"the weights {path.name} cannot be read: {error}") from error
    wanted = network.state_dict()
    problems = mismatches(state, wanted)
    if problems:
        raise InvalidBundle(f"the weights do not fit {type(network).__name__}: {problems}")
    network.load_state_dict({k: v.to(wanted[k].dtype) for k, v in state.items()})
    if not all(torch.isfinite(v).all() for v in network.state_dict().values()):
        raise InvalidBundle("the weights hold values that are not finite")


def sha256(path: Path) -> str:
    """The file's SHA-256 in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()
