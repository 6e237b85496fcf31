"""Whether a DICOM file is valid, as dciodvfy of dicom3tools judges it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest


def check_valid(file: Path) -> None:
    """Fail on any error of `file`; skip where there is no validator, unless one is required."""
    if shutil.which("dciodvfy") is None:
        missing = "dciodvfy is not installed: apt-get install dicom3tools"
        if os.environ.get("CAPS_MED_NEED_DCIODVFY"):
            pytest.fail(missing)
        pytest.skip(missing)
    said = subprocess.run(["dciodvfy", str(file)], capture_output=True, text=True, check=False)
    assert "Error" not in said.stderr, said.stderr
