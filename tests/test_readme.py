"""What the README shows is true."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from caps_med import samples

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """The README's code blocks of one language."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A folder with the files that the README's commands read."""
    shutil.copy(samples.T1, tmp_path / "t1.nii.gz")
    (tmp_path / "scans").mkdir()
    shutil.copy(samples.T1, tmp_path / "scans" / "a.nii.gz")
    shutil.copy(samples.COLIN27_SLICE, tmp_path / "scans" / "b.png")
    return tmp_path


@pytest.mark.parametrize("code", blocks("python"), ids=["library", "networks"])
def test_the_readmes_python_runs(python: Path, workplace: Path, code: str) -> None:
    subprocess.run([python, "-c", code], cwd=workplace, check=True)


@pytest.mark.slow
def test_the_readmes_commands_run(preloaded: Path, workplace: Path) -> None:
    path = f"{preloaded.parent}{os.pathsep}{os.environ['PATH']}"
    (script,) = blocks("bash")
    environment = {**os.environ, "PATH": path}
    subprocess.run(["/bin/bash", "-e", "-c", script], cwd=workplace, check=True, env=environment)
    assert (workplace / "capsules" / "capsules.png").stat().st_size > 1000
    assert (workplace / "synthetic.nii.gz").exists()
    assert (workplace / "tissues" / "cases.csv").exists()


def test_the_readmes_links_lead_somewhere() -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert targets
    for target in targets:
        assert (ROOT / target).exists(), target


def test_the_image_installs_by_the_steps_that_are_tested_here() -> None:
    dockerfile = (ROOT / "docker" / "Dockerfile").read_text()
    assert "make install" in dockerfile
    assert re.search(r"^USER (?!root)", dockerfile, re.MULTILINE)
    assert "HEALTHCHECK" in dockerfile and '["python", "-m", "api.health_check"]' in dockerfile
