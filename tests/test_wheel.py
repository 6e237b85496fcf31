"""The wheel keeps clear of other packages named `api` and `training`, and they of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import psutil
import pytest

from caps_med import load_model, samples
from caps_med.client import Client
from caps_med.images import encode_image
from tests.api import serving

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def folder(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the wheel and other packages of the same names."""
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--target", str(folder), str(wheel)], check=True)
    for package in ("api", "training"):
        (folder / package).mkdir()
        (folder / package / "__init__.py").write_text("raise ImportError('of somebody else')\n")
    return folder


@pytest.fixture
def installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder, first on the import path."""
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.chdir(folder)
    return folder


def test_it_installs_one_package(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"caps_med"}
    assert not [name for name in names if "/web/" in name]
    page = (ROOT / "api" / "static" / "index.html").exists()
    assert ("caps_med/_plugins/api/static/index.html" in names) == page


def test_its_commands_run_beside_others(installed: Path) -> None:
    command = str(installed / "bin" / "caps-med")
    shown = subprocess.run([command, "--help"], check=True, capture_output=True, text=True).stdout
    assert "Train a model on labelled images" in shown
    assert "Not installed" not in shown
    subprocess.run([command, "data", "phantoms", "--count", "1", "--out", "axons"], check=True)
    assert len(list(installed.glob("axons/images/*"))) == 1


def test_a_script_can_import_training_from_it(installed: Path) -> None:
    script = (
        "from caps_med.plugins import put_plugins_first; put_plugins_first(); "
        "from training.data import open_dataset; print(open_dataset('mni152').name)"
    )
    command = [sys.executable, "-c", script]
    assert subprocess.run(command, check=True, capture_output=True).stdout == b"mni152\n"


def test_it_serves_beside_others(
    installed: Path, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "COMMAND", installed / "bin" / "caps-med")
    expected = load_model("tiny-segmentation", models).segment(samples.T1)
    with serving.serving(tmp_path, models) as server, Client(server.address) as client:
        answer = client.segment("tiny-segmentation", samples.T1)
        paths = [psutil.Process(pid).environ()["PYTHONPATH"] for pid in server.decoders()]
    assert answer == encode_image(expected, "nifti")
    plugins = str(installed / "caps_med" / "_plugins")
    assert {path.split(os.pathsep)[0] for path in paths} == {plugins}
