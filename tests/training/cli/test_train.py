from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from caps_med.cli import progress as cli_progress
from tests.training.data.pairs import draw_pairs, two_folders
from tests.waiting import until
from training.cli.train import train
from training.cluster.trials import TrialsFolder
from training.data import Preparation
from training.tasks.pipeline import TrainRequest


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Data that no other test of this process has checked."""
    return two_folders("images", "labels")(tmp_path / "data", draw_pairs(6))


def trained(data: Path, *more: str) -> Result:
    """Two steps, in the folder above the data."""
    places = ("--models", data.parent / "models", "--runs", data.parent / "runs")
    options = ("--epochs", "1", "--steps", "2", "--batch-size", "1", "--crop", "64", "--atoms", "4")
    command = ["segmentation", "--data", data, "--name", "mine", *places, *options, *more]
    return CliRunner().invoke(train, [str(each) for each in command])


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
    assert last.startswith(
        "stopped; the last complete epoch is kept; continue with: caps-med train"
    )
    assert last.endswith("--resume")
    assert "terminating" not in printed
    assert "Traceback" not in printed


def test_bars_show_what_is_done_before_and_after_the_epochs(
    pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On standard error, and for programs in the folder of the run."""
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=100)
    monkeypatch.setattr(cli_progress, "errors", terminal)
    result = trained(pictures)
    assert result.exit_code == 0, result.output
    phases = ["checking the data", "preparing the data", "scoring held-out data",
              "evaluating"]  # fmt: skip
    shown = screen.getvalue()
    places = [shown.index(phase) for phase in phases]
    assert places == sorted(places) and "6/6" in shown
    assert not any(phase in result.stdout for phase in phases)
    file = pictures.parent / "runs" / "mine" / "progress.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    told = [line["phase"] for line in lines if "phase" in line]
    assert list(dict.fromkeys(told))[:4] == phases
    assert {"phase": "preparing the data", "step": 0, "steps": 6}.items() <= lines[1].items()


def test_no_bar_where_there_is_no_terminal(pictures: Path) -> None:
    result = trained(pictures)
    assert result.exit_code == 0, result.output
    assert "the data" not in result.stderr


def test_ctrl_c_while_data_are_prepared_leaves_nothing(
    pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels, done = Preparation.labels, list[object]()

    def pressed(self: Preparation, label: object) -> object:
        done.append(label)
        if len(done) == 3:
            signal.raise_signal(signal.SIGINT)
        return labels(self, label)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(Preparation, "labels", pressed)
    result = trained(pictures)
    assert result.exit_code == 130
    assert "stopped before the end of the first epoch; start again with:" in result.output
    assert not (pictures.parent / "runs" / "mine").exists()


def test_ctrl_c_in_the_first_epoch_of_a_search_says_how_to_continue_it(
    pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command without ``--resume`` is refused, as there is a search already."""

    def pressed(request: TrainRequest, *_: object) -> None:
        TrialsFolder(request.folder.path).start([{"crop": 64}], resume=False)
        raise KeyboardInterrupt

    monkeypatch.setattr("training.cli.train._train_side_by_side", pressed)
    result = trained(pictures, "--tune", "1")
    assert result.exit_code == 130
    said = " ".join(result.stdout.split())
    assert said.startswith("stopped before the end of the first epoch; continue with:")
    assert said.endswith("--resume")


def test_ctrl_c_while_the_report_is_written_names_the_model_that_is_published(
    pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr("training.reports.segmentation.training_report", pressed)
        result = trained(pictures)
    assert result.exit_code == 130
    said = " ".join(result.stdout.split())
    assert f"mine@1 is trained, in {pictures.parent / 'models' / 'mine' / '1'}" in said
    assert "stopped before the report was written; to write it: " in said
    assert "last complete epoch" not in said
    again = trained(pictures, "--resume")
    assert "mine@1" in again.stdout and "report in" in again.stdout
    assert len(list((pictures.parent / "models" / "mine").iterdir())) == 1


@pytest.mark.parametrize(
    ("option", "value"), [("ignore-label", "0"), ("plain", "0.0"), ("foreground", "0.5")]
)
def test_label_maps_alone_are_learned_as_a_whole(option: str, value: str, pictures: Path) -> None:
    answer = trained(pictures, "--randomize", f"--{option}", value)
    assert f"--{option} and --randomize exclude each other" in str(answer.exception)


def test_images_drawn_from_label_maps_leave_processes_nothing_to_prepare(pictures: Path) -> None:
    answer = trained(pictures, "--randomize", "--workers", "2")
    assert "--workers 2: no crops are prepared with --randomize" in str(answer.exception)


def test_individuals_are_drawn_only_of_tissue_probabilities(pictures: Path) -> None:
    answer = trained(pictures, "--individuals", "0.3")
    assert f"which {pictures} lacks; leave it out, or choose --data mni152" in str(answer.exception)
    assert not (pictures.parent / "runs").exists()


def test_generators_have_no_id_of_what_is_not_labelled(pictures: Path) -> None:
    """Before the training: it ended after the last epoch, in statistics of the label maps."""
    options = ("--data", str(pictures), "--name", "mine", "--runs", str(pictures.parent / "runs"))
    answer = CliRunner().invoke(train, ["synthesis", *options, "--set", "ignored=1"])
    assert "ignored: there is no such value" in str(answer.exception)


def test_the_help_of_an_option_says_what_is_true_of_the_task() -> None:
    helps = {
        task: CliRunner().invoke(train, [task, "--help"], env={"COLUMNS": "200"}).output
        for task in ("segmentation", "synthesis", "classification")
    }
    assert "splits_final.json" in helps["segmentation"]
    assert "splits_final.json" not in helps["classification"]
    assert "for unet" in helps["segmentation"]
    assert "for unet" not in helps["synthesis"]
    assert "crops" not in helps["classification"]
