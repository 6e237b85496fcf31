"""A folder in, a folder out, from the command line."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
from rich.console import Console
from typer.testing import CliRunner

from caps_med.cli import commands
from caps_med.cli import progress as cli_progress
from caps_med.cli.batch import check_single
from caps_med.images import MedicalImage
from caps_med.inference import Model
from tests.classifiers import write_classifiers
from tests.images.dicom_files import slice_file
from tests.waiting import until

COMMAND = Path(sys.executable).parent / "caps-med"


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    folder = tmp_path / "scans"
    (folder / "sub").mkdir(parents=True)
    pixels = np.random.default_rng(4).integers(0, 255, (1, 20, 28), dtype=np.uint8)
    for name in ("a.png", "b.png", "sub/c.png"):
        MedicalImage(pixels, format="png").save(folder / name)
    (folder / "Thumbs.db").write_bytes(b"-")
    return folder


def call(status: int, *arguments: str | Path) -> str:
    """A command in this process; what it prints, after a check of its exit status."""
    result = CliRunner().invoke(commands.app, list(map(str, arguments)))
    assert result.exit_code == status, (result.output, result.exception)
    return result.output if status < 2 else f"{result.output}{result.exception}"


def segment(status: int, models: Path, out: Path, *more: str | Path) -> str:
    return call(status, "segment", "--model", "tiny-segmentation", "--models", models,
                "-o", out, *more)  # fmt: skip


def test_a_folder_in_a_folder_out(models: Path, scans: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    printed = segment(0, models, out, "-i", scans)
    assert f"3 cases done -> {out / 'cases.csv'}" in printed
    assert "note: 1 file skipped: not an image" in printed
    assert (out / "sub/c.png").is_file()
    (scans / "sub/c.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    printed = segment(1, models, out, "-i", scans, "--resume")
    assert f"2 cases done, 2 of them before; 1 failed -> {out / 'cases.csv'}" in printed
    assert "failed: sub/c.png: invalid_input: PNG" in printed


def test_what_the_shell_made_of_a_pattern(models: Path, scans: Path, tmp_path: Path) -> None:
    """``-i scans/*.png``: the option takes the first, the others are arguments."""
    out = tmp_path / "out"
    printed = segment(0, models, out, "-i", scans / "a.png", scans / "b.png", "--json")
    assert [case["case"] for case in json.loads(printed)["cases"]] == ["a", "b"]


def test_the_other_commands(models: Path, scans: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    call(0, "features", "--model", "tiny-segmentation", "--models", models, "-i", scans, "-o", out,
         "--layer", "seg_caps")  # fmt: skip
    assert (out / "sub/c/capsules.png").is_file()
    classifiers = write_classifiers(tmp_path / "classifiers")
    printed = call(0, "classify", "--model", "tiny-cnn", "--models", classifiers, "-i", scans,
                   "-o", tmp_path / "classes", "--json")  # fmt: skip
    assert {"class", "malignant probability"} < set(
        json.loads(printed[printed.index("{") :])["cases"][0]["values"]
    )
    assert (tmp_path / "classes/sub/c.json").is_file()
    ids = MedicalImage(np.full((1, 8, 8), 2, np.uint8), format="png", kind="labels")
    ids.save(tmp_path / "labels.png")
    call(0, "synthesize", "--model", "tiny-synthesis", "--models", models, "-i",
         tmp_path / "labels.png", "-o", tmp_path / "images", "--count", "2")  # fmt: skip
    assert (tmp_path / "images/labels-seed1.png").is_file()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--resume",), "--resume: only for many images"),
        (("--jobs", "2"), "--jobs: only for many images"),
        (("--format", "png"), "--format: only for many images"),
        ((), "scans is a folder without DICOM files: to process all images in it, give it"),
    ],
)
def test_a_single_image_is_no_batch(
    models: Path, scans: Path, tmp_path: Path, more: tuple[str, ...], message: str
) -> None:
    arguments = ["segment", str(scans), "--model", "tiny-segmentation", "--models", str(models)]
    result = CliRunner().invoke(commands.app, [*arguments, "--out", str(tmp_path / "o.png"), *more])
    assert message in str(result.exception)


def test_no_input_at_all(models: Path, tmp_path: Path) -> None:
    arguments = ["segment", "--model", "tiny-segmentation", "--models", str(models)]
    result = CliRunner().invoke(commands.app, [*arguments, "--out", str(tmp_path / "o.png")])
    assert "no image given: name a file, or a folder with --input" in str(result.exception)


def test_bars_for_all_cases_and_the_one_at_work(
    models: Path, scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=100)
    monkeypatch.setattr(cli_progress, "errors", terminal)
    segment(0, models, tmp_path / "out", "-i", scans)
    assert "3/3" in screen.getvalue()
    assert "sub/c" in screen.getvalue()


def test_ctrl_c_says_how_to_go_on(
    models: Path, scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Model, *_: object, **__: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(Model, "segment", interrupted)
    printed = segment(130, models, tmp_path / "out", "-i", scans)
    assert "stopped: 0 cases of 3 done" in printed and "to continue, give" in printed


@pytest.mark.slow
def test_a_signal_ends_processes_and_keeps_the_table(models: Path, tmp_path: Path) -> None:
    """As Ctrl-C in a shell does: every process of the group is told."""
    folder, out = tmp_path / "scans", tmp_path / "out"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(60):
        pixels = rng.integers(0, 255, (1, 480, 480), dtype=np.uint8)
        MedicalImage(pixels, format="png").save(folder / f"{number:02}.png")
    command = [str(COMMAND), "segment", "-i", str(folder), "-o", str(out), "--jobs", "2",
               "--model", "tiny-segmentation", "--models", str(models)]  # fmt: skip
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    until((out / "cases.json").exists)
    os.killpg(running.pid, signal.SIGINT)
    said = running.communicate(timeout=60)[1]
    assert running.returncode == 130, said
    assert "to continue, give the same command with --resume" in said and "Traceback" not in said
    done = {case["case"] for case in json.loads((out / "cases.json").read_text())["cases"]}
    written = {path.stem for path in out.iterdir() if path.suffix == ".png"}
    assert done == written and 0 < len(done) < 60
    assert not [path for path in out.iterdir() if path.name.startswith(".")]


def test_ctrl_c_while_processes_start_leaves_no_traceback(
    models: Path, scans: Path, tmp_path: Path
) -> None:
    command = [str(COMMAND), "segment", "-i", str(scans), "-o", str(tmp_path / "out"),
               "--jobs", "2", "--model", "tiny-segmentation", "--models", str(models)]  # fmt: skip
    running = psutil.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    until(lambda: bool(started_by(running)))  # there is a process that imports what it needs
    os.killpg(running.pid, signal.SIGINT)
    said = running.communicate(timeout=60)[1]
    assert running.returncode == 130, said
    assert "to continue, give the same command with --resume" in said and "Traceback" not in said


def started_by(process: psutil.Process) -> list[psutil.Process]:
    """The processes for cases that a command has started."""
    children = process.children()
    return [one for one in children if any("spawn_main" in part for part in one.cmdline())]


def test_the_folder_of_a_study_is_a_single_input(tmp_path: Path) -> None:
    (tmp_path / "DICOM" / "t1").mkdir(parents=True)
    (tmp_path / "DICOM" / "t1" / "IM0").write_bytes(slice_file())
    assert check_single([tmp_path]) == [tmp_path]
