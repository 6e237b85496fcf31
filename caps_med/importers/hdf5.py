"""Arrays of a Keras HDF5 file, read as the untrusted file it is."""

from __future__ import annotations

import math
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from caps_med.errors import InvalidInput, UnsupportedFormat
from caps_med.extras import require_extra

SIGNATURE = b"\x89HDF\r\n\x1a\n"
#: Where `model.save` keeps the layers; `model.save_weights` keeps them at the root.
_FULL_MODEL = "model_weights"
#: SegCaps has 32 datasets of 1.4 million values; this leaves room and bounds a hostile file.
_MAX_ITEMS = 8192  # groups and datasets
_DEEPEST = 32  # groups inside one another: the time to visit them grows with the square
_MAX_VALUES = 2**26  # of all datasets, and of a chunk, which is read whole


def read_keras_weights(path: Path) -> dict[str, Tensor]:
    """Every weight of the file by its path ``layer/layer/name:0``.

    Accepts files from both `model.save_weights` and `model.save`; the optimizer's state in the
    latter is left out. Links to other files, and data stored in other files or not in floating
    point, are rejected, and sizes are checked before anything is read.

    Raises:
        UnsupportedFormat: not an HDF5 file.
        InvalidInput: a truncated or corrupt file, or one that holds something else.
        MissingExtra: h5py is not installed.
    """
    if _start(path) != SIGNATURE:
        raise UnsupportedFormat(
            f"{path.name} is not an HDF5 file, which Keras writes as .h5 or .hdf5; for a PyTorch "
            "checkpoint use 'caps-med import capspix2pix'"
        )
    require_extra("import", "reading Keras weights")
    import h5py

    try:
        with h5py.File(path, "r") as file:
            datasets = _datasets(_layers(file, h5py), h5py)
            _check(datasets)
            arrays = {name: np.asarray(item[()], np.float64) for name, item in datasets.items()}
            return {name: torch.from_numpy(array) for name, array in arrays.items()}
    except (OSError, RuntimeError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"{path.name} is a broken or truncated HDF5 file: {error}") from error


def _start(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(len(SIGNATURE))


def _layers(file: Any, h5py: Any) -> Any:  # noqa: ANN401
    if _FULL_MODEL not in file:
        return file
    if not isinstance(file.get(_FULL_MODEL, getlink=True), h5py.HardLink):
        raise InvalidInput(f"{_FULL_MODEL!r} is a link to another place")
    group = file[_FULL_MODEL]
    if not isinstance(group, h5py.Group):
        raise InvalidInput(f"{_FULL_MODEL!r} is not a group of layers")
    return group


def _datasets(root: Any, h5py: Any) -> dict[str, Any]:  # noqa: ANN401
    """Datasets by path; `visititems` follows hard links only, each object once."""
    found: dict[str, Any] = {}
    numbers = count(1)

    def visit(name: str, item: object) -> None:
        if next(numbers) > _MAX_ITEMS:
            raise InvalidInput(f"the file holds over {_MAX_ITEMS} groups and datasets")
        if name.count("/") > _DEEPEST:
            raise InvalidInput(f"the file holds groups over {_DEEPEST} deep inside one another")
        if isinstance(item, h5py.Dataset):
            found[name] = item

    root.visititems(visit)
    return found


def _check(datasets: dict[str, Any]) -> None:
    for name, dataset in datasets.items():
        if dataset.external or dataset.is_virtual:
            raise InvalidInput(f"tensor {name} is stored in another file")
        if dataset.dtype.kind != "f" or dataset.shape is None:
            raise InvalidInput(f"tensor {name} is of {dataset.dtype}: floating point is needed")
        if (chunk := math.prod(dataset.chunks or ())) > _MAX_VALUES:
            raise InvalidInput(f"tensor {name} has chunks of {chunk} values: at most {_MAX_VALUES}")
    values = sum(dataset.size for dataset in datasets.values())
    if values > _MAX_VALUES:
        raise InvalidInput(f"the file holds {values} values: at most {_MAX_VALUES}")
