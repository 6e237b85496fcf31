"""One process of a training that has several."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from caps_med.errors import InvalidParameter
from training.cluster.processes import _command


def test_an_option_that_the_command_does_not_take_ends_all_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a training of one process: it would end the same way again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", sys.argv)
    arguments = ["train", "segmentation", "--data", "x", "--name", "x", "--epochs=many"]
    config = {"arguments": arguments, "checkpoint": "checkpoint.pt", "home": str(tmp_path)}
    with pytest.raises(InvalidParameter, match="Invalid value for '--epochs'"):
        _command(config)
    assert json.loads((tmp_path / "refused.json").read_text())["reason"] == "invalid_parameter"
    _command(config)  # another attempt
