from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from tests.waiting import until


def started(data: Path, root: Path, *more: str) -> subprocess.Popen[str]:
    """A training of many short epochs, in a process of its own."""
    options = ["--epochs", "400", "--steps", "1", "--batch-size", "1", "--crop", "64"]
    places = ["--models", str(root / "models"), "--runs", str(root / "runs")]
    command = [str(Path(sys.executable).parent / "caps-med"), "train", "segmentation"]
    return subprocess.Popen(
        [*command, "--data", str(data), "--name", "mine", *options, "--atoms", "4", *places, *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def test_ctrl_c_says_in_one_line_how_to_continue(discs: Path, tmp_path: Path) -> None:
    process = started(discs, tmp_path)
    checkpoint = tmp_path / "runs" / "mine" / "checkpoint.pt"
    until(checkpoint.exists, process=process, state=lambda: process.communicate()[0])
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == 130, printed
    last = printed.splitlines()[-1]
    assert last.startswith("stopped; the last whole epoch is kept, continue with: caps-med train")
    assert last.endswith("--resume")
    assert "terminating" not in printed
    assert "Traceback" not in printed
