from __future__ import annotations

import errno
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import highdicom
import numpy as np
import pydicom
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

import caps_med
from caps_med import samples
from caps_med.cli import commands, inference, weights
from caps_med.cli import models as model_commands
from caps_med.cli import progress as cli_progress
from caps_med.cli.group import PlainGroup
from caps_med.cli.options import print_what_the_terminal_lacks, say
from caps_med.cli.segment import print_measures
from caps_med.errors import InvalidParameter
from caps_med.images import CODECS, MedicalImage, read_image
from caps_med.inference import MAP_NAMES, Model
from caps_med.inference.strip import strip
from caps_med.plugins import add_plugins
from caps_med.wording import measure_text
from tests.archives.series import slices
from tests.conftest import BUILT_IN_NAMES
from tests.images.dicom_files import ECHOES, IDENTITY, zipped_series, zipped_study

INSTALLED = Path(sys.executable).parent / "caps-med"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(preloaded: Path) -> Run:
    """The command, in a process of its own."""
    return partial(called, preloaded)


def called(command: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    whole = [str(command), *map(str, arguments)]
    return subprocess.run(whole, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image.nii.gz"
    array = np.random.default_rng(0).uniform(0, 1, (1, 20, 28, 3)).astype(np.float32)
    MedicalImage(array, np.diag([-1.0, 1, 2, 1]), format="nifti").save(path)
    return path


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    path = tmp_path / "labels.png"
    ids = np.zeros((1, 20, 28), np.uint8)
    ids[0, 4:12, 6:20] = 2
    MedicalImage(ids, format="png", kind="labels").save(path)
    return path


def told_of(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """What a command prints that meets an error."""

    def refused(*_: object) -> None:
        raise error

    for name in ("PYTHONWARNINGS", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, "")
    for name in ("collect_rarely_at_start", "keep_freed_memory"):
        monkeypatch.setattr(commands, name, lambda: None)
    monkeypatch.setattr(commands, "add_plugins", lambda _: None)
    monkeypatch.setattr(commands, "app", refused)
    with pytest.raises(SystemExit, match="2"):
        commands.run()
    return capsys.readouterr().err


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_too_little_memory_is_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = told_of(error, monkeypatch, capsys)
    assert told.startswith("out_of_memory: not enough memory: crop")


@pytest.mark.parametrize(("number", "hint"), [(errno.ENOSPC, True), (errno.EACCES, False)])
def test_a_full_disk_is_told_with_the_way_out(
    number: int, hint: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = told_of(OSError(number, os.strerror(number), "o.png"), monkeypatch, capsys)
    assert told.startswith(f"file: o.png: {os.strerror(number)}")
    assert ("free some space, then repeat the command" in told) == hint


def test_what_the_output_cannot_encode_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with LC_ALL=C; the byte E9 of a file name that is no text is printed as it is."""
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    print_what_the_terminal_lacks()
    say("2 \u00d7 3 \U0001f9e0 n\udce9.png", Console())
    sys.stdout.flush()
    assert written.getvalue() == b"2 \\u00d7 3 \\ud83e\\udde0 n\xe9.png\n"


def test_ctrl_c_is_one_line_and_status_130(capsys: pytest.CaptureFixture[str]) -> None:
    app = typer.Typer(cls=PlainGroup)

    @app.command()
    def stopped() -> None:
        raise KeyboardInterrupt

    app.callback()(lambda: None)
    with pytest.raises(SystemExit, match="130"):
        app(["stopped"])
    assert capsys.readouterr().err == "stopped; no file is half written\n"


PRESSED = """
import signal, sys
from importlib.abc import MetaPathFinder

class Presses(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == at:
            signal.raise_signal(signal.SIGINT)

from caps_med.cli import main
at = sys.argv.pop(1)
sys.meta_path.insert(0, Presses())
main()
"""


@pytest.mark.parametrize(
    "module",
    ["caps_med.cli.commands", "typer", "rich.console", "training.cli.train", "typer._adapters",
     "pydantic", "caps_med.bundles.metadata"],
)  # fmt: skip
def test_ctrl_c_while_python_imports(module: str) -> None:
    """Whatever is being imported; before `main` there is next to nothing."""
    command = [sys.executable, "-c", PRESSED, module, "models", "list"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (answer.returncode, answer.stdout) == (130, "")
    assert answer.stderr == "stopped; no file is half written\n"


def test_little_is_imported_before_ctrl_c_is_handled() -> None:
    code = (
        "import sys; before = set(sys.modules); from caps_med.cli import main;"
        "print(*sorted(set(sys.modules) - before))"
    )
    names = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert {"caps_med.cli", "caps_med.cli.interrupts"} <= set(names)
    assert len(names) < 50 and not {"typing", "re", "typer", "rich"} & set(names)


def test_ctrl_c_at_the_very_end_prints_no_traceback() -> None:
    """The answer is there already; what is left is Python's own end."""
    code = (
        "import atexit, signal, sys\nfrom caps_med.cli import main\n"
        "atexit.register(signal.raise_signal, signal.SIGINT)\nmain()"
    )
    command = [sys.executable, "-c", code, "--version"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.stdout.startswith("caps_med ") and answer.stderr == ""
    assert answer.returncode == -signal.SIGINT


def test_ctrl_c_in_a_callback_of_python_is_not_lost() -> None:
    """Python drops what is raised there, such as while the garbage collector tells that it ends."""
    code = """
import gc, signal, threading
from caps_med.cli.interrupts import keep_interrupts

def press(phase, info):
    gc.callbacks.remove(press)
    signal.raise_signal(signal.SIGINT)

keep_interrupts()
gc.callbacks.append(press)
try:
    gc.collect()
    threading.Event().wait(60)
except KeyboardInterrupt:
    print("stopped")
"""
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert (answer.stdout, answer.stderr) == ("stopped\n", "")


@pytest.fixture(scope="module")
def all_commands() -> typer.Typer:
    """The library's commands and those of its plugins."""
    app = typer.Typer()
    for group in (inference, model_commands, weights):
        group.register(app)
    app.command()(commands.demo)
    add_plugins(app)
    return app


@pytest.mark.skipif(sys.platform != "linux", reason="only GNU's OpenMP says how it is set")
@pytest.mark.parametrize(("chosen", "expected"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_waiting_threads_leave_the_core_to_others(
    models: Path, monkeypatch: pytest.MonkeyPatch, chosen: str | None, expected: str
) -> None:
    monkeypatch.setenv("OMP_DISPLAY_ENV", "TRUE")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if chosen:
        monkeypatch.setenv("OMP_WAIT_POLICY", chosen)
    answer = called(INSTALLED, "models", "verify", "tiny-segmentation", "--models", models)
    assert answer.returncode == 0
    assert f"OMP_WAIT_POLICY = '{expected}'" in answer.stderr


@pytest.mark.parametrize(
    "command",
    ["demo", "serve", "segment", "synthesize", "interpolate", "features", "manipulate",
     "train segmentation", "train synthesis", "data check", "data phantoms", "data labels",
     "evaluate", "augment", "import segcaps", "import capspix2pix", "import capsnet",
     "import bundle", "export", "models list", "models show", "models verify", "keys create",
     "keys list", "keys revoke"],
)  # fmt: skip
def test_every_command_explains_itself(all_commands: typer.Typer, command: str) -> None:
    result = CliRunner().invoke(all_commands, [*command.split(), "--help"], prog_name="caps-med")
    assert result.exit_code == 0, result.output
    assert f"Usage: caps-med {command} " in result.output


def test_the_terminal_breaks_the_lines_of_a_help() -> None:
    shown = CliRunner().invoke(commands.app, ["segment", "--help"], env={"COLUMNS": "80"}).output
    lines = [line.strip() for line in shown.splitlines()]
    assert "OUT_entropy: a .nii.gz file for a volume, or a .png file, in which 255 stands" in lines
    assert "caps-med segment --model brain-t1-tissue -i scans -o tissues --jobs 4" in lines


def test_segment_equals_the_library(run: Run, models: Path, image: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.nii.gz"
    answer = run("segment", "--model", "tiny-segmentation", image, "--out", out, "--models", models)
    assert answer.returncode == 0, answer.stderr
    wanted = caps_med.load_model("tiny-segmentation", models).segment(image)
    found = read_image(out, kind="labels")
    np.testing.assert_array_equal(found.array, wanted.array)
    np.testing.assert_array_equal(found.affine, wanted.affine)
    assert "nucleus" in answer.stdout
    assert "mm3" in answer.stdout


def call(*arguments: str | Path, app: typer.Typer = commands.app) -> str:
    """A command in this process; its output."""
    result = CliRunner().invoke(app, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_measures_of_each_label(run: Run, models: Path, image: Path, tmp_path: Path) -> None:
    """As a table, and as JSON that a program can read from standard output."""
    arguments = ("segment", "--model", "tiny-segmentation", image, "--models", models)
    wanted = caps_med.load_model("tiny-segmentation", models).segment(image)
    shown = call(*arguments, "--out", tmp_path / "table.nii.gz")
    for one in wanted.measures:
        row = next(line for line in shown.splitlines() if one.name in line)
        assert measure_text(one.volume) in row and f" {one.objects} " in row
        assert one.confidence is not None and f"{one.confidence:.3f}" in row
    answer = run(*arguments, "--out", tmp_path / "json.nii.gz", "--json")
    assert json.loads(answer.stdout) == wanted.numbers()
    assert answer.stderr == "", "no progress bar where there is no terminal"


def test_volumes_of_microscopy_are_not_0(models: Path, image: Path) -> None:
    """Of voxels of micrometres they are far below 1 mm³."""
    found = caps_med.load_model("tiny-segmentation", models).segment(image)
    small = replace(found, affine=found.affine @ np.diag([0.002, 0.002, 0.002, 1]))
    page = Console(width=120, file=io.StringIO(), record=True)
    print_measures(page, small)
    shown = page.export_text()
    for one in small.measures:
        row = next(line for line in shown.splitlines() if one.name in line)
        assert f" {measure_text(one.volume)} " in row
    assert small.measures and " 0 " not in shown


def test_the_measures_are_whole_on_a_narrow_terminal(models: Path, image: Path) -> None:
    found = caps_med.load_model("tiny-segmentation", models).segment(image)
    page = Console(width=40, file=io.StringIO(), record=True)
    print_measures(page, found)
    shown = page.export_text()
    assert "…" not in shown
    for one in found.measures:
        assert f"{one.name}\n  volume (mm3): {measure_text(one.volume)}\n" in shown


@pytest.mark.parametrize(
    ("command", "model", "out", "more"),
    [
        ("segment", "tiny-segmentation", "o.png", ()),
        ("synthesize", "tiny-synthesis", "o.png", ()),
        ("synthesize", "tiny-synthesis", "o-seed3.png", ("--seed", "2", "--count", "2")),
        ("interpolate", "tiny-synthesis", "o.png", ("--steps", "2")),
        ("manipulate", "tiny-segmentation", "o.png", ()),
        ("features", "tiny-segmentation", "o.npz", ()),
        ("features", "tiny-segmentation", "capsules.png", ("--out", ".")),
    ],
)
def test_nothing_is_overwritten_unasked(
    models: Path, labels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str,
    model: str, out: str, more: tuple[str, ...],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    there = tmp_path / out
    there.write_bytes(b"mine")
    asked = "o.npz" if out.endswith("npz") else "o.png"
    arguments = [command, str(labels), "--model", model, "--out", asked, *more,
                 "--models", str(models)]  # fmt: skip
    result = CliRunner().invoke(commands.app, arguments)
    assert result.exit_code != 0
    assert f"{there.name} exists: name another file, or add --overwrite" in str(result.exception)
    assert there.read_bytes() == b"mine"
    call(*arguments, "--overwrite")
    assert there.read_bytes() != b"mine"


def test_a_bar_shows_how_far_a_volume_is(
    models: Path, image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal, on standard error; the answer's table stays on standard output."""
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=100)
    monkeypatch.setattr(cli_progress, "errors", terminal)
    printed = call("segment", "--model", "tiny-segmentation", image, "--out",
                   tmp_path / "o.nii.gz", "--models", models)  # fmt: skip
    assert "segmenting image.nii.gz" in screen.getvalue()
    assert "3/3" in screen.getvalue()
    assert "segmenting" not in printed and "nucleus" in printed


def test_probabilities(models: Path, image: Path, tmp_path: Path) -> None:
    out = tmp_path / "p.npy"
    call("segment", "--model", "tiny-segmentation", image, "--out", out, "--probabilities",
         "--models", models)  # fmt: skip
    assert np.load(out).shape == (3, 20, 28, 3)


def test_maps_of_how_sure_it_is(run: Run, models: Path, image: Path, tmp_path: Path) -> None:
    arguments = ("segment", "--model", "tiny-segmentation", image, "--out", tmp_path / "o.nii.gz",
                 "--models", models, "--confidence", "--entropy", "--disagreement")  # fmt: skip
    printed = call(*arguments)
    assert "mean entropy 0." in printed and "disagreement of flips 0." in printed
    wanted = caps_med.load_model("tiny-segmentation", models).segment(image, disagreement=True)
    for name in MAP_NAMES:
        found = caps_med.read_image(tmp_path / f"o_{name}.nii.gz").array
        np.testing.assert_allclose(found, wanted.map_of(name).array, atol=1e-6)
    (tmp_path / "o.nii.gz").unlink()
    again = run(*arguments)
    assert again.returncode == 2 and "o_confidence.nii.gz exists" in again.stderr
    assert not (tmp_path / "o.nii.gz").exists()


def test_segment_writes_label_names_for_itk_snap(
    run: Run, models: Path, image: Path, tmp_path: Path
) -> None:
    names = tmp_path / "labels.txt"
    arguments = ("segment", "--model", "tiny-segmentation", image, "--label-file", names,
                 "--models", models, "--out")  # fmt: skip
    call(*arguments, tmp_path / "one.nii.gz")
    assert '"nucleus"' in names.read_text() and '"membrane"' in names.read_text()
    again = run(*arguments, tmp_path / "two.nii.gz")
    assert again.returncode == 2 and "labels.txt exists" in again.stderr


def test_a_label_file_is_not_written_of_what_is_refused(
    run: Run, models: Path, image: Path, tmp_path: Path
) -> None:
    names, there = tmp_path / "labels.txt", tmp_path / "there.nii.gz"
    there.touch()
    arguments = ("segment", "--model", "tiny-segmentation", "--models", models)
    for given, told in (
        ((image, "--out", there, "--label-file", names), "there.nii.gz exists"),
        ((tmp_path / "none.nii.gz", "--out", tmp_path / "o.nii.gz", "--label-file", names), "none"),
        ((image, "--out", tmp_path / "o.txt", "--label-file", tmp_path / "o.txt"), "different"),
        ((image, "--out", tmp_path / "o.png", "--label-file", tmp_path / "x" / "y"), "no folder"),
    ):
        refused = run(*arguments, *given)
        assert refused.returncode == 2 and told in refused.stderr, refused.stderr
        assert not names.exists()
    scans, out = tmp_path / "scans", tmp_path / "out"
    scans.mkdir()
    shutil.copy(image, scans)
    (scans / "broken.nii.gz").write_bytes(b"")
    folder = (*arguments, "-i", scans, "-o", out, "--label-file", names)
    assert run(*folder).returncode == 1
    assert names.is_file()
    assert run(*folder, "--resume").returncode == 1  # the broken one is tried again


def test_synthesize_counts_seeds(models: Path, labels: Path, tmp_path: Path) -> None:
    out = tmp_path / "s.png"
    call("synthesize", "--model", "tiny-synthesis", labels, "--out", out, "--seed", "4",
         "--count", "2", "--models", models)  # fmt: skip
    alone = tmp_path / "alone.png"
    call("synthesize", "--model", "tiny-synthesis", labels, "--out", alone, "--seed", "5",
         "--models", models)  # fmt: skip
    assert (tmp_path / "s-seed5.png").read_bytes() == alone.read_bytes()
    assert (tmp_path / "s-seed4.png").read_bytes() != alone.read_bytes()


def test_features(models: Path, image: Path, tmp_path: Path) -> None:
    out = tmp_path / "f.npz"
    text = call("features", "--model", "tiny-segmentation", image, "--out", out, "--layer",
                "seg_caps", "--models", models)  # fmt: skip
    assert "seg_caps: 3 capsule types of 4 atoms" in text
    with np.load(out) as stored:
        assert sorted(stored) == ["lengths/seg_caps", "seg_caps"]


def test_interpolate(models: Path, labels: Path, tmp_path: Path) -> None:
    out, taller = tmp_path / "strip.png", tmp_path / "taller.png"
    arguments = ("interpolate", labels, "--model", "tiny-synthesis", "--seed", "3",
                 "--to-seed", "5", "--steps", "2", "--models", models)  # fmt: skip
    assert f"seed 3 to 5 in 2 images -> {out}" in call(*arguments, "--out", out)
    model = caps_med.load_model("tiny-synthesis", models)
    expected = strip(model.interpolate(labels, 3, 5, 2), model.bundle.card.plane)
    np.testing.assert_array_equal(read_image(out).array, expected.array)
    call(*arguments, "--out", taller, "--features")
    shape, taller_shape = read_image(out).array.shape, read_image(taller).array.shape
    assert taller_shape[0] == 3 and taller_shape[1] > 5 * shape[1]  # image, length, three atoms


def test_interpolate_a_volume(models: Path, tmp_path: Path) -> None:
    """A picture shows one slice; a folder gets the volumes, or that slice of each."""
    source, picture = tmp_path / "labels.nii.gz", tmp_path / "strip.png"
    ids = np.zeros((1, 20, 28, 4), np.uint8)
    ids[0, 4:12, 6:20, 1:] = 2
    MedicalImage(ids, np.diag([-1.0, 1, 2, 1]), format="nifti", kind="labels").save(source)
    arguments = ("interpolate", source, "--model", "tiny-synthesis", "--steps", "2", "--models",
                 models, "--out")  # fmt: skip
    assert "in 2 images, slice 2 of 0 to 3 ->" in call(*arguments, picture)
    call(*arguments, tmp_path / "volumes")
    call(*arguments, tmp_path / "slices", "--slice", "3")
    volume, one = (read_image(tmp_path / name / "image01.nii.gz") for name in ("volumes", "slices"))
    np.testing.assert_array_equal(one.array, volume.array[..., 3:])
    model = caps_med.load_model("tiny-synthesis", models)
    np.testing.assert_array_equal(volume.array, model.synthesize(source, 1).array)
    result = CliRunner().invoke(
        commands.app, [*map(str, arguments), str(tmp_path / "n"), "--features"]
    )
    assert "--features: only for a picture, not a folder" in str(result.exception)
    again = CliRunner().invoke(commands.app, [*map(str, arguments), str(tmp_path / "volumes")])
    assert "image00.nii.gz exists: name another file, or add --overwrite" in str(again.exception)


def test_slices_of_a_tiff_become_nifti(models: Path, tmp_path: Path) -> None:
    """TIFF holds no place of a slice; the whole volumes it does hold."""
    source = tmp_path / "labels.tif"
    ids = np.zeros((1, 20, 28, 4), np.uint8)
    MedicalImage(ids, np.diag([-1.0, -1, 2, 1]), format="tiff", kind="labels").save(source)
    arguments = ("interpolate", source, "--model", "tiny-synthesis", "--steps", "2", "--models",
                 models, "--out")  # fmt: skip
    call(*arguments, tmp_path / "volumes")
    assert read_image(tmp_path / "volumes" / "image01.tif").array.shape == (1, 20, 28, 4)
    call(*arguments, tmp_path / "slices", "--slice", "2")
    one = read_image(tmp_path / "slices" / "image01.nii.gz")
    assert one.affine[2, 3] == 4 and one.spacing == (1, 1, 2)


def test_manipulate(models: Path, image: Path, tmp_path: Path) -> None:
    out = tmp_path / "atoms.png"
    text = call("manipulate", "--model", "tiny-segmentation", image, "--out", out, "--capsule",
                "nucleus", "--range", "-0.1,0.2", "--slice", "2", "--models", models)  # fmt: skip
    assert f"capsule 1 (nucleus) -> {out}" in text
    manipulator = caps_med.load_model("tiny-segmentation", models).manipulator(image, 2)
    expected = manipulator.sheet(1, [-0.1 + 0.05 * step for step in range(7)])
    np.testing.assert_array_equal(read_image(out).array, expected.array)
    call("manipulate", "--model", "tiny-segmentation", image, "--out", out, "--overwrite",
         "--range", "-0.1,0.1", "--steps", "3", "--models", models)  # fmt: skip
    middle = caps_med.load_model("tiny-segmentation", models).manipulator(image)
    np.testing.assert_array_equal(read_image(out).array, middle.sheet(0, [-0.1, 0, 0.1]).array)


def test_phantoms_are_evaluated_and_augmented(all_commands: typer.Typer, tmp_path: Path) -> None:
    """With the built-in models of axons, so that nothing is trained."""
    data, report, more = tmp_path / "data", tmp_path / "report", tmp_path / "more"
    app = all_commands
    drawn = call("data", "phantoms", "--count", "2", "--size", "64", "--out", data, app=app)
    assert f"2 images with label maps in {data}" in drawn
    stems = {kind: {p.stem for p in (data / kind).iterdir()} for kind in ("images", "labels")}
    assert len(stems["images"]) == 2 and stems["images"] == stems["labels"]
    call("evaluate", "--model", "axon-segmentation", "--data", data, "--out", report, app=app)
    assert {path.name for path in report.iterdir()} >= {"cases.csv", "summary.json", "report.html"}
    call("augment", "--data", data, "--out", more, "--count", "1", "--model", "axon-synthesis",
         "--judge", "axon-segmentation", "--threshold", "0", app=app)  # fmt: skip
    assert len(list((more / "images").iterdir())) == len(list((more / "labels").iterdir())) == 1


def test_models(models: Path) -> None:
    listed = call("models", "list", "--models", models)
    for name in (*BUILT_IN_NAMES, "tiny-segmentation", "tiny-synthesis"):
        assert name in listed
    assert "and 13 more" in " ".join(listed.replace("│", " ").split()), "of 17 labels"
    shown = call("models", "show", "tiny-synthesis@1", "--models", models)
    assert "convcaps10" in shown and "takes: not stated" in shown
    assert "licence: not stated" in shown
    shown = call("models", "show", "digits", "--layers")
    assert "held-out balanced accuracy: 0.98" in shown
    assert re.search(
        r"decoder.layers.0 .* Linear .* weight 512x\d+, bias 512 .* \d\d,\d{3} ", shown
    )
    verified = call("models", "verify", "tiny-synthesis", "--models", models)
    assert "tiny-synthesis@1: valid" in verified


def test_a_repository_that_is_not_there_is_told(run: Run, tmp_path: Path) -> None:
    listed = run("models", "list", "--json", "--models", tmp_path / "modles")
    assert {one["name"] for one in json.loads(listed.stdout)} == set(BUILT_IN_NAMES)
    assert re.match(r"note: there is no folder .*modles: only the built-in", listed.stderr)
    assert not run("models", "list", "--models", tmp_path).stderr


def test_a_folder_that_was_removed_meanwhile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    told = told_of(RuntimeError("not reached"), monkeypatch, capsys)
    assert told == "file: the current folder no longer exists: change to another one\n"


def test_models_as_json(models: Path) -> None:
    listed = json.loads(call("models", "list", "--json", "--models", models))
    assert {one["name"] for one in listed} == {
        *BUILT_IN_NAMES,
        "tiny-segmentation",
        "tiny-synthesis",
    }
    shown = json.loads(call("models", "show", "tiny-synthesis", "--json", "--models", models))
    assert shown["layers"][-1]["name"] == "convcaps10"
    network = caps_med.load_model("tiny-synthesis", models).network
    counted = sum(one["parameters"] for one in shown["parameters"])
    assert counted == sum(weights.numel() for weights in network.parameters())
    verified = json.loads(call("models", "verify", "tiny-synthesis", "--json", "--models", models))
    assert verified["weights_sha256"] == shown["weights_sha256"]


def test_models_are_copied_renamed_and_removed(run: Run, tmp_path: Path) -> None:
    def models(*arguments: str) -> str:
        return call("models", *arguments, "--models", tmp_path)

    assert "axon-segmentation@2 -> mine@1" in models("copy", "axon-segmentation", "mine")
    assert "mine -> yours, 1 version\n" in models("rename", "mine", "yours")
    assert "yours@1: valid" in models("verify", "yours")
    refused = run("models", "copy", "axon-segmentation", "yours", "--models", tmp_path)
    assert refused.returncode == 2 and "model yours exists" in refused.stderr
    asked = run("models", "remove", "yours", "--models", tmp_path)  # nobody says yes
    assert asked.returncode == 1 and "Delete yours@1" in asked.stdout
    assert "yours@1: valid" in models("verify", "yours")
    assert "removed yours@1" in models("remove", "yours", "--yes")
    assert not (tmp_path / "yours").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "nope", samples.T1], "model_not_found: no model 'nope'"),
        (["--model", "tiny-synthesis", samples.T1], "wrong_task: tiny-synthesis is a synthesis"),
        (["--model", "tiny-segmentation", "missing.png"], "missing.png: No such file"),
        (["--model", "tiny-segmentation", __file__], "unsupported_format:"),
    ],
)
def test_a_mistake_is_one_line(
    run: Run, models: Path, tmp_path: Path, arguments: list[str | Path], message: str
) -> None:
    answer = run("segment", *arguments, "--out", tmp_path / "o.png", "--models", models)
    assert answer.returncode == 2
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr
    assert len(answer.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("export --model m --format x --out o", "'x' is not one of 'bundle', 'onnx', 'torch'."),
        ("import segcaps f --name m --variant q", "'q' is not one of 'r3', 'r1'."),
        ("import capspix2pix f --name m --output q", "'q' is not one of 'sigmoid', 'tanh'."),
        ("data phantoms --kind q --count 1 --out o", "--kind q: must be axons"),
    ],
)
def test_a_choice_that_there_is_not_is_told_with_those_that_there_are(
    run: Run, arguments: str, message: str
) -> None:
    answer = run(*arguments.split())
    assert answer.returncode == 2
    shown = " ".join(answer.stderr.replace("\N{BOX DRAWINGS LIGHT VERTICAL}", " ").split())
    assert f": {message}" in shown
    assert "Value error" not in shown


@pytest.mark.parametrize(
    ("command", "out", "message"),
    [
        ("segment", "x.xyz", "unsupported_format: x.xyz has no known suffix"),
        ("segment", "nowhere/x.png", "nowhere/x.png: there is no folder"),
        ("features", "nowhere/x.npz", "nowhere/x.npz: there is no folder"),
        ("classify", "nowhere/x.json", "nowhere/x.json: there is no folder"),
        ("segment", "", ": this is a folder; name a file in it"),
        ("features", "x.zip", "x.zip: must be a .npz file, or a folder whose name has no suffix"),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_work(
    run: Run, models: Path, tmp_path: Path, command: str, out: str, message: str
) -> None:
    """The image does not exist either, and is not what is complained about."""
    answer = run(command, "missing.png", "--model", "tiny-segmentation", "--out", tmp_path / out,
                 "--models", models)  # fmt: skip
    assert answer.returncode == 2
    assert message in answer.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["segment", "synthesize", "interpolate", "manipulate"])
def test_the_input_is_never_written_over(
    run: Run, models: Path, labels: Path, command: str
) -> None:
    before = labels.read_bytes()
    answer = run(command, labels, "--model", "tiny-synthesis", "--out", labels, "--models", models)
    assert (answer.returncode, labels.read_bytes()) == (2, before)
    assert "this is the input itself; name another file" in answer.stderr


def test_the_input_is_never_written_over_by_one_of_several_seeds(
    run: Run, models: Path, labels: Path, tmp_path: Path
) -> None:
    source = labels.rename(tmp_path / "t-seed1.png")
    answer = run("synthesize", source, "--model", "tiny-synthesis", "--out", tmp_path / "t.png",
                 "--count", "2", "--models", models)  # fmt: skip
    assert "this is the input itself; name another file" in answer.stderr
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize(
    ("source", "arguments", "told"),
    [
        ("x.nii.gz", ("segment", "--out", "o.nii.gz", "--label-file", "x.nii.gz"), "--label-file"),
        ("x_entropy.nii.gz", ("segment", "--out", "x.nii.gz", "--entropy"), "--entropy"),
        ("capsules.png", ("features", "--out", "."), "--out"),
        ("image01.nii.gz", ("interpolate", "--out", "."), "--out"),
        ("x.json", ("classify", "--out", "x.json"), "--out"),
    ],
)
def test_the_input_is_never_written_over_by_another_file(
    models: Path, image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str,
    arguments: tuple[str, ...], told: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    name = "synthesis" if arguments[0] == "interpolate" else "segmentation"
    if name == "synthesis":
        array = np.zeros((1, 20, 28, 3), np.uint8)
        MedicalImage(array, np.eye(4), format="nifti", kind="labels").save(image)
    before = image.rename(source).read_bytes()
    given = (source, "--model", f"tiny-{name}", "--models", models, "--overwrite")
    with pytest.raises(InvalidParameter, match=f"{told} {source}: this is the input itself"):
        call(*arguments, *given)
    assert Path(source).read_bytes() == before and list(tmp_path.iterdir()) == [tmp_path / source]


@pytest.mark.parametrize("option", ["--out", "--report", "--preview"])
def test_a_slice_of_the_series_is_never_written_over(
    models: Path, tmp_path: Path, option: str
) -> None:
    folder, out = tmp_path / "series", tmp_path / "seg.dcm"
    folder.mkdir()
    for number, content in enumerate(slices()):
        (folder / f"{number}.dcm").write_bytes(content)
    given = ("segment", folder, "--model", "tiny-segmentation", "--models", models, "--overwrite")
    first = folder / "0.dcm"
    with pytest.raises(InvalidParameter, match=f"{option} .*: this is the input itself"):
        call(*given, *(() if option == "--out" else ("--out", out)), option, first)
    assert first.read_bytes() == slices()[0]
    for _ in range(2):  # the answer may replace an earlier one in the same folder
        call(*given, "--out", folder / "seg.dcm", "--report", folder / "report.dcm")


def test_the_images_of_a_folder_are_never_written_over(
    models: Path, image: Path, tmp_path: Path
) -> None:
    listed = tmp_path / "list.txt"
    listed.write_text(image.name)
    given = ("segment", "--model", "tiny-segmentation", "--models", models, "--overwrite")
    before = image.read_bytes()
    for source in (listed, tmp_path, tmp_path / "*.nii.gz"):
        with pytest.raises(InvalidParameter, match="this is an image; name a text file"):
            call(*given, "-i", source, "--out", tmp_path / "out", "--label-file", image)
    with pytest.raises(InvalidParameter, match=r"list.txt: this is the input itself"):
        call(*given, "-i", listed, "--out", tmp_path / "out", "--label-file", listed)
    assert image.read_bytes() == before and listed.read_text() == image.name


@pytest.mark.parametrize(
    ("out", "more", "message"),
    [
        ("o.png", (), "a volume cannot be written as png"),
        ("o.jpg", (), "labels cannot be written as jpeg"),
        ("o.tif", ("--probabilities",), "cannot be written as tiff"),
    ],
)
def test_a_format_that_cannot_hold_the_answer_is_refused_before_the_work(
    models: Path, image: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str,
    more: tuple[str, ...], message: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(Model, "segment", lambda *_, **__: pytest.fail("it was segmented"))
    arguments = ["segment", str(image), "--model", "tiny-segmentation", "--out",
                 str(tmp_path / out), "--models", str(models), *more]  # fmt: skip
    result = CliRunner().invoke(commands.app, arguments)
    assert message in str(result.exception)


@pytest.mark.parametrize("given", ["{series} --out {out}.dcm", "-i {series} --out {out}"])
def test_too_many_labels_for_a_dicom_seg_are_refused_before_the_work(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    folder = tmp_path / "series"
    folder.mkdir()
    for number, content in enumerate(slices()):
        (folder / f"{number}.dcm").write_bytes(content)
    monkeypatch.setattr(Model, "segment", lambda *_, **__: pytest.fail("it was segmented"))
    monkeypatch.setitem(CODECS, "dicom", replace(CODECS["dicom"], most_labels=1))
    arguments = given.format(series=folder, out=tmp_path / "o").split()
    command = ("segment", "--model", "tiny-segmentation", "--models", models, *arguments)
    result = CliRunner().invoke(commands.app, [*map(str, command)])
    assert "a label map of 2 labels is not written" in f"{result.output}{result.exception}"


@pytest.mark.parametrize("out", ["o.png", "o.jpg", "o.bmp"])
def test_probabilities_of_a_picture_are_no_colours(
    run: Run, models: Path, tmp_path: Path, out: str
) -> None:
    picture = tmp_path / "picture.png"
    MedicalImage(np.zeros((1, 20, 28), np.uint8), format="png").save(picture)
    command = ("segment", picture, "--model", "tiny-segmentation", "--models", models)
    answer = run(*command, "--probabilities", "--out", tmp_path / out)
    assert (answer.returncode, (tmp_path / out).exists()) == (2, False)
    assert "no colours" in answer.stderr and "npy" in answer.stderr
    run(*command, "--probabilities", "--out", tmp_path / "o.nii.gz")
    assert read_image(tmp_path / "o.nii.gz").array.shape == (3, 28, 20, 1)


@pytest.mark.parametrize("command", ["interpolate", "manipulate"])
def test_a_picture_is_no_dicom_seg(run: Run, models: Path, tmp_path: Path, command: str) -> None:
    """Refused before the input is even looked for."""
    answer = run(command, "missing.png", "--model", "tiny-synthesis", "--out", tmp_path / "x.dcm",
                 "--models", models)  # fmt: skip
    assert answer.returncode == 2
    assert "only label maps of DICOM slices are written" in answer.stderr


def test_the_series_of_a_study_and_one_of_its_volumes_are_chosen(
    run: Run, models: Path, tmp_path: Path
) -> None:
    study, out = tmp_path / "study.zip", tmp_path / "labels.dcm"
    study.write_bytes(zipped_study())
    command = ("segment", "--model", "tiny-segmentation", "--models", models, study, "--out", out)
    listed = run(*command).stderr
    assert f"{ECHOES} (MR, dual echo, 4 files)" in listed and "--series UID" in listed
    counted = run(*command, "--series", ECHOES).stderr
    assert "2 volumes of 2 slices each" in counted and "--volume N" in counted
    answer = run(*command, "--series", ECHOES, "--volume", "1")
    assert answer.returncode == 0, answer.stderr
    found = highdicom.seg.segread(out)
    references = found.ReferencedSeriesSequence[0].ReferencedInstanceSequence
    assert [one.ReferencedSOPInstanceUID for one in references] == [f"{ECHOES}.1", f"{ECHOES}.3"]


def test_a_series_is_segmented_to_dicom_seg(run: Run, models: Path, tmp_path: Path) -> None:
    """Probabilities are no label map, and an image from elsewhere is of no series."""
    series, out = tmp_path / "series.zip", tmp_path / "seg.dcm"
    series.write_bytes(zipped_series())
    arguments = (
        "segment",
        series,
        "--model",
        "tiny-segmentation",
        "--out",
        out,
        "--models",
        models,
    )
    answer = run(*arguments, "--probabilities")
    assert (answer.returncode, out.exists()) == (2, False)
    assert "only label maps of DICOM slices are written" in answer.stderr
    answer = run(*arguments)
    assert f"tiny-segmentation@1 -> {out}" in answer.stdout.splitlines()
    assert highdicom.seg.segread(out).PatientID == IDENTITY["PatientID"]
    assert IDENTITY["PatientID"] not in answer.stdout + answer.stderr


def test_report_and_preview_are_written_beside_the_dicom_seg(
    run: Run, models: Path, tmp_path: Path
) -> None:
    series, out = tmp_path / "series.zip", tmp_path / "seg.dcm"
    report, preview = tmp_path / "volumes.dcm", tmp_path / "preview.dcm"
    series.write_bytes(zipped_series())
    options = ("--seg-type", "labelmap", "--report", report, "--preview", preview)
    command = ("segment", series, "--model", "tiny-segmentation", "--models", models, "--out", out)
    answer = run(*command, *options)
    assert answer.returncode == 0, answer.stderr
    seg, sr, picture = (pydicom.dcmread(file) for file in (out, report, preview))
    assert (seg.SegmentationType, sr.Modality, picture.Modality) == ("LABELMAP", "SR", "OT")
    evidence = sr.CurrentRequestedProcedureEvidenceSequence[0].ReferencedSeriesSequence
    instances = {one.ReferencedSOPInstanceUID for s in evidence for one in s.ReferencedSOPSequence}
    assert seg.SOPInstanceUID in instances


def test_paths_are_printed_as_they_are(models: Path, image: Path, tmp_path: Path) -> None:
    out = tmp_path / ("long-" * 20 + "[b]name.nii.gz")
    printed = call("segment", "--model", "tiny-segmentation", image, "--out", out, "--models",
                   models)  # fmt: skip
    assert f"tiny-segmentation@1 -> {out}" in printed.splitlines()


@pytest.mark.slow
def test_training_from_the_command_line(
    run: Run, models: Path, discs: Path, tmp_path: Path
) -> None:
    """Train, publish, use: and a second start is refused until it is told to resume."""
    arguments: list[str | Path]
    arguments = ["train", "segmentation", "--data", discs, "--name", "discs", "--models", tmp_path,
                 "--runs", tmp_path / "runs", "--epochs", "1", "--steps", "2", "--crop", "64",
                 "--atoms", "4", "--batch-size", "2"]  # fmt: skip
    answer = run(*arguments)
    assert answer.returncode == 0, answer.stderr
    assert "discs@1: held-out dice" in answer.stdout
    assert (tmp_path / "runs" / "discs" / "report.html").is_file()
    card = caps_med.load_model("discs", tmp_path).metadata.caps_med
    assert card.provenance.command.startswith("caps-med train segmentation --data")
    assert card.labels == {0: "background", 1: "label 1"}
    again = run(*arguments)
    assert again.returncode == 2
    assert "add --resume to continue it" in again.stderr
    resumed = run(*arguments, "--resume")
    assert "discs@1" in resumed.stdout, "the same model is no second version"


def test_the_demo_writes_its_pictures(run: Run, tmp_path: Path) -> None:
    answer = run("demo", "--out", tmp_path / "demo")
    assert answer.returncode == 0, answer.stderr
    names = {path.name for path in (tmp_path / "demo").iterdir()}
    assert names == {
        "t1.png", "tissue.png", "capsules.png", "overview.png",
        "synthetic-seed1.png", "synthetic-seed2.png", "synthetic-seed3.png",
    }  # fmt: skip
    assert "volume (mm3)" in answer.stdout
    for tissue in ("cerebrospinal fluid", "grey matter", "white matter"):
        assert tissue in answer.stdout
