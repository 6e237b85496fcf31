"""Tensors of a PyTorch checkpoint or a safetensors file, read as the untrusted file it is."""

from __future__ import annotations

import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from caps_med.errors import InputTooLarge, InvalidInput, UnsupportedFormat
from caps_med.importers.hdf5 import SIGNATURE as HDF5

#: A generator for 256x256 has 33 MB; one of 1024x1024 with dense noise 430 MB.
MAX_BYTES = 2**30
#: `torch.save` before PyTorch 1.6 (2020), which CapsPix2Pix was written with: bare pickles.
_LEGACY = b"\x80"
_ZIP = b"PK\x03\x04"
_PREFIX = "module."


def read_checkpoint(path: Path) -> dict[str, Tensor]:
    """Every tensor of a state dict by name, without the ``module.`` that DataParallel adds.

    `.pt` and `.pth` go through PyTorch's restricted unpickler (``weights_only=True``), which
    builds only tensors. Call this only for a file that a person names on the command line, never
    for an upload.

    Raises:
        UnsupportedFormat: neither a PyTorch checkpoint nor safetensors.
        InputTooLarge: over `MAX_BYTES`, packed or unpacked.
        InvalidInput: truncated or corrupt, a pickled object, or not a dict of dense tensors.
    """
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise InputTooLarge(f"{path.name} has {size} bytes: at most {MAX_BYTES}")
    with path.open("rb") as file:
        start = file.read(16)
    if path.suffix == ".safetensors":
        content: object = _read_safetensors(path)
    elif start.startswith((_LEGACY, _ZIP)):
        content = _read_pickled(path, zipped=start.startswith(_ZIP))
    elif start.startswith(HDF5):
        raise UnsupportedFormat(
            f"{path.name} is an HDF5 file: for Keras weights use 'caps-med import segcaps'"
        )
    else:
        raise UnsupportedFormat(
            f"{path.name} is neither a PyTorch checkpoint (.pt, .pth) nor a .safetensors file"
        )
    return _without_prefix(_state_dict(path, content))


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, ValueError, KeyError) as error:
        raise InvalidInput(
            f"{path.name} is a broken or truncated safetensors file: {error}"
        ) from error


def _read_pickled(path: Path, zipped: bool) -> object:
    import pickle

    try:
        if zipped:
            _check_unpacked(path)
        with warnings.catch_warnings():  # about a pickle protocol that is refused anyway
            warnings.simplefilter("ignore", UserWarning)
            return torch.load(path, map_location="cpu", weights_only=True)
    except InputTooLarge:
        raise
    except pickle.UnpicklingError as error:
        raise InvalidInput(
            f"{path.name} holds a pickled object, which is not read because it can run code: "
            "save the weights alone, torch.save(net.state_dict(), path)"
        ) from error
    except Exception as error:  # hostile bytes can make the unpickler raise anything
        raise InvalidInput(
            f"{path.name} is a broken or truncated PyTorch checkpoint: {error}"
        ) from error


def _check_unpacked(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
    if unpacked > MAX_BYTES:
        raise InputTooLarge(f"{path.name} unpacks to {unpacked} bytes: at most {MAX_BYTES}")


def _state_dict(path: Path, content: object) -> dict[str, Tensor]:
    if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
        content = content["state_dict"]
    if not isinstance(content, Mapping) or not content:
        raise InvalidInput(
            f"{path.name} holds {type(content).__name__}, not a state dict: names with tensors"
        )
    for name, value in content.items():
        if not (isinstance(name, str) and isinstance(value, Tensor)):
            raise InvalidInput(
                f"{path.name}: entry {name!r} is {type(value).__name__}, not a tensor; save "
                "net.state_dict() alone"
            )
        if value.layout != torch.strided or value.device.type != "cpu":
            raise InvalidInput(f"{path.name}: tensor {name} is not a dense tensor with values")
    return dict(content)


def _without_prefix(state: dict[str, Tensor]) -> dict[str, Tensor]:
    if not all(name.startswith(_PREFIX) for name in state):
        return state
    return {name.removeprefix(_PREFIX): tensor for name, tensor in state.items()}
