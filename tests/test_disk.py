"""A full disk is told as one, whichever library meets it."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from torch import nn

from caps_med.disk import reserve, writing
from training.engine.run_folder import RunFolder

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/dev/full and holes of Linux")


def test_a_full_disk_is_an_error_of_the_system(tmp_path: Path) -> None:
    file = tmp_path / "full.npy"
    file.symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left on device") as told, writing(file):
        np.save(file, np.zeros(10**6))
    assert (told.value.errno, told.value.filename) == (errno.ENOSPC, str(file))


@pytest.mark.parametrize(
    "error",
    [
        OSError("71208 requested and 45024 written"),  # NumPy's
        SafetensorError("I/O error: No space left on device (os error 28)"),
    ],
    ids=["NumPy", "safetensors"],
)
def test_errors_of_libraries_get_their_number(error: Exception) -> None:
    with pytest.raises(OSError, match=r"No space left on device: 'x'"), writing(Path("x")):
        raise error


def test_a_checkpoint_outlives_a_full_disk(tmp_path: Path) -> None:
    folder, network = RunFolder(tmp_path), nn.Linear(1000, 1000)
    file = tmp_path / "checkpoint.pt"
    folder.save(file, {"network": network})
    before = file.read_bytes()
    (tmp_path / "checkpoint.partial").symlink_to("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device.*checkpoint\.partial"):
        folder.save(file, {"network": network})
    assert file.read_bytes() == before
    assert not (tmp_path / "checkpoint.partial").is_symlink()
    with torch.no_grad():
        network.weight += 1
    folder.save(file, {"network": network})
    other = nn.Linear(1000, 1000)
    folder.load(file, {"network": other})
    assert torch.equal(other.weight, network.weight)


def test_other_errors_pass() -> None:
    with pytest.raises(ValueError, match=r"^mine$"), writing(Path("x")):
        raise ValueError("mine")
    with pytest.raises(FileNotFoundError), writing(Path("x")):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "y")


def test_a_mapped_file_has_its_place_on_the_disk(tmp_path: Path) -> None:
    """Without it, a full disk ended the process by SIGBUS."""
    file = tmp_path / "pictures.npy"
    np.lib.format.open_memmap(file, "w+", np.uint8, (10**6,))
    reserve(file)
    assert file.stat().st_blocks * 512 >= 10**6
    assert not np.load(file).any()
