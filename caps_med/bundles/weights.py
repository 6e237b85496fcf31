"""Weights as safetensors: checked key by key, never unpickled, never mapped into memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save_file
from torch import Tensor, nn

from caps_med.bundles.shapes import mismatches
from caps_med.disk import writing
from caps_med.errors import InvalidBundle

#: Bytes of the widest number, and of the longest header.
_WIDEST, _HEADER = 8, 2**24


def save_weights(network: nn.Module, path: Path, half: bool = False) -> str:
    """Write the network's state dict, as float16 when `half`; returns its sha256."""
    state = {k: v.detach().cpu().contiguous() for k, v in network.state_dict().items()}
    if half:
        state = {k: v.half() if v.is_floating_point() else v for k, v in state.items()}
    with writing(path):
        save_file(state, path, metadata={"format": "pt"})
    path.chmod(0o644)
    return sha256(path)


def load_weights(network: nn.Module, path: Path) -> None:
    """Fill the network from a safetensors file; float16 is widened.

    Raises:
        InvalidBundle: see `read_weights`, `parse_weights` and `fill`.
    """
    needed = network.state_dict()
    fill(network, parse_weights(read_weights(path, needed), path.name, needed))


def read_weights(path: Path, needed: Mapping[str, Tensor]) -> bytes:
    """The file's content, read once, so that the checked bytes are the ones used.

    Args:
        needed: the network's state dict, on any device; a file that is much larger is not read.

    Raises:
        InvalidBundle: the file cannot be read, or is too large.
    """
    most = _HEADER + _WIDEST * sum(tensor.numel() for tensor in needed.values())
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > most:
                raise InvalidBundle(f"the weights {path.name} are larger than the network can be")
            return file.read(size)  # as much memory is taken as is asked for
    except OSError as error:
        raise InvalidBundle(f"the weights {path.name} cannot be read: {error.strerror}") from error


def parse_weights(content: bytes, name: str, needed: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a safetensors file.

    Args:
        name: of the file, for messages.
        needed: the network's state dict, on any device.

    Raises:
        InvalidBundle: the file is corrupt, or its tensors are not the network's; the message lists
            each missing, extra and misshapen tensor with both shapes.
    """
    try:
        state = load(content)
    except (SafetensorError, KeyError, ValueError, RuntimeError) as error:
        raise InvalidBundle(f"the weights {name} cannot be read: {error}") from error
    if problems := mismatches(state, needed):
        raise InvalidBundle(f"the weights do not fit the network: {problems}")
    return state


def fill(network: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Put weights with the right names and shapes into the network; float16 is widened.

    Raises:
        InvalidBundle: a value is not finite.
    """
    wanted = network.state_dict()
    network.load_state_dict({k: v.to(wanted[k].dtype) for k, v in state.items()})
    if not all(torch.isfinite(v).all() for v in network.state_dict().values()):
        raise InvalidBundle("the weights contain values that are not finite (NaN or infinity)")


def sha256(path: Path) -> str:
    """The file's SHA-256 in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
