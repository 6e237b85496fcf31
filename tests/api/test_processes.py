"""The processes that the service starts give way, and import nothing from the folder around."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from api.processes import lower_priority
from caps_med import load_model
from caps_med.client import Client
from caps_med.images import encode_image
from tests.api.jobs import PATIENCE, TINY, zipped
from tests.api.serving import serving
from tests.conftest import tiny_card, write_tiny


def test_another_session_gives_way() -> None:
    waiting = [sys.executable, "-c", "input()"]
    with subprocess.Popen(waiting, stdin=subprocess.PIPE, start_new_session=True) as process:
        lower_priority(process.pid, 7)
        level, session = os.getpriority(os.PRIO_PROCESS, process.pid), _session(process.pid)
        process.kill()
    assert level == os.getpriority(os.PRIO_PROCESS, 0) + 7
    assert session in (None, 7)
    lower_priority(process.pid, 7)  # it has ended, which is no error


def _session(pid: int) -> int | None:
    """The nice level of a process' session; None where processors are not shared by sessions."""
    file = Path(f"/proc/{pid}/autogroup")
    return int(file.read_text().split()[-1]) if file.exists() else None


@pytest.fixture
def hostile_folder(tmp_path: Path) -> Path:
    """A folder of packages named like ours, and one of a dependency; each import leaves a trace."""
    folder = tmp_path / "hostile"
    for package in ("api", "training", "caps_med", "numpy"):
        (folder / package).mkdir(parents=True)
        code = f"open({str(folder / 'imported')!r}, 'a').write(__name__)\n"
        (folder / package / "__init__.py").write_text(code)
    return folder


@pytest.mark.slow
def test_a_hostile_folder(
    hostile_folder: Path, discs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = tmp_path / "models"
    write_tiny(models, "tiny-segmentation", tiny_card("segmentation"))
    picture = next(discs.glob("images/*")).read_bytes()
    expected = encode_image(load_model("tiny-segmentation", models).segment(picture), "png")
    monkeypatch.chdir(hostile_folder)
    with serving(tmp_path, models) as server, Client(server.address) as client:
        assert client.segment("tiny-segmentation", picture) == expected
        job = client.train("segmentation", "trained-there", zipped(discs), **TINY)
        assert client.wait(job["id"], PATIENCE)["state"] == "succeeded"
    assert not (hostile_folder / "imported").exists()
