from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from caps_med.errors import InvalidParameter
from caps_med.images import read_image
from tests.training.data.classified_files import class_folders, digits
from tests.training.data.pairs import draw_pairs, two_folders
from training.cli.data import register

app = typer.Typer()
register(app)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    return two_folders("images", "labels")(tmp_path / "data [1]", draw_pairs(6))


def run(*arguments: str | Path) -> Result:
    return CliRunner(env={"COLUMNS": "160"}).invoke(app, ["data", "check", *map(str, arguments)])


def test_healthy_data_are_described(pictures: Path, tmp_path: Path) -> None:
    answer = run(pictures)
    assert answer.exit_code == 0, answer.output
    assert "data [1]: folders images/ and labels/" in answer.output
    assert "6 pictures in 6 groups" in answer.output
    assert "ready to train: 0 errors, 0 warnings" in answer.output
    assert [path.name for path in tmp_path.iterdir()] == ["data [1]"]


def test_all_that_was_found_as_json(pictures: Path) -> None:
    (pictures / "labels" / "axon-03.png").unlink()
    answer = run(pictures, "--json")
    assert answer.exit_code == 1
    found = json.loads(answer.stdout)
    assert (found["ready"], found["card"]["cases"]) == (False, 5)
    assert [one["code"] for one in found["findings"]] == ["unpaired"]


def test_one_warning_is_counted_as_one(pictures: Path) -> None:
    empty = read_image(pictures / "labels" / "axon-02.png", kind="labels")
    empty.with_array(empty.array * 0).save(pictures / "labels" / "axon-02.png")
    assert "0 errors, 1 warning\n" in run(pictures).output


def test_broken_data_are_told_and_the_status_says_so(pictures: Path) -> None:
    (pictures / "images" / "axon-02.png").write_bytes(b"")
    (pictures / "labels" / "axon-03.png").unlink()
    answer = run(pictures)
    assert answer.exit_code == 1
    for told in ("unreadable", "axon-02.png", "unpaired", "axon-03.png", "not ready: 2 errors"):
        assert told in answer.output


def test_a_folder_that_is_not_understood_shows_what_would_be(tmp_path: Path) -> None:
    answer = run(tmp_path)
    assert answer.exit_code == 1
    assert "Found: nothing" in answer.output
    assert "  NAME_data_train.npy + NAME_mask_train.npy\n" in answer.output


def test_many_findings_of_one_kind_are_counted(tmp_path: Path) -> None:
    root = two_folders("images", "labels")(tmp_path, draw_pairs(14))
    for path in (root / "images").iterdir():
        path.write_bytes(b"")
    answer = run(root)
    assert "and 4 more" in answer.output
    assert "no_cases" in answer.output


def test_the_report_is_written_where_asked(pictures: Path, tmp_path: Path) -> None:
    (pictures / "labels" / "axon-03.png").unlink()
    assert run(pictures, "--out", tmp_path / "report").exit_code == 1
    card = json.loads((tmp_path / "report" / "card.json").read_text())
    assert card["cases"] == 5
    (found,) = json.loads((tmp_path / "report" / "findings.json").read_text())
    assert (found["code"], found["file"]) == ("unpaired", "images/axon-03.png")
    assert read_image(tmp_path / "report" / "cases.png").array.shape[0] == 3


def test_nothing_is_written_into_the_data(pictures: Path) -> None:
    answer = run(pictures, "--out", pictures / "report")
    assert isinstance(answer.exception, InvalidParameter)
    assert "lies inside the data" in str(answer.exception)


def test_a_folder_with_brackets_is_named_as_it_is(tmp_path: Path) -> None:
    arguments = ["data", "phantoms", "--kind", "axons", "--count", "1", "--size", "64"]
    out = tmp_path / "phantoms [old]"
    answer = CliRunner().invoke(app, [*arguments, "--out", str(out)])
    assert answer.exit_code == 0, answer.output
    assert str(out) in answer.output


@pytest.mark.parametrize(
    "command",
    [["phantoms", "--count", "1"], ["labels", "--count", "1", "--kind", "axons"],
     ["patches", "--data", "{pictures}"]],
)  # fmt: skip
def test_new_images_are_not_written_over_files(
    command: list[str], pictures: Path, tmp_path: Path
) -> None:
    arguments = ["data", *(word.format(pictures=pictures) for word in command)]
    (tmp_path / "notes.txt").write_text("mine")
    for out, told in (
        (tmp_path / "notes.txt", f"{tmp_path / 'notes.txt'} is a file; name a folder"),
        (tmp_path, "the folder is not empty; name another folder"),
    ):
        answer = CliRunner().invoke(app, [*arguments, "--out", str(out)])
        assert isinstance(answer.exception, InvalidParameter)
        assert told in str(answer.exception)


@pytest.mark.parametrize(
    "option", [["--labels", "1=axon"], ["--binary"], ["--ignore-label", "2"], ["--channels", "T1"]]
)
def test_images_with_classes_have_no_label_maps_to_understand(
    option: list[str], tmp_path: Path
) -> None:
    (root := tmp_path / "classes").mkdir()
    class_folders(root, digits(4), digits(2))
    answer = run(root, *option)
    assert isinstance(answer.exception, InvalidParameter)
    assert f"{root} (a folder per class) does not have; leave {option[0]} out" in str(
        answer.exception
    )


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--like", "{pictures}", "--size", "64"], "--size: new label maps have the sizes of"),
        (["--like", "{pictures}", "--out", "{pictures}/new"], "lies inside the data"),
        (["--kind", "axons", "--tolerance", "0.1"], "--tolerance: only used with --like"),
        (["--kind", "axons", "--symmetries", "all"], "--symmetries: only used with --like"),
    ],
)
def test_what_new_label_maps_would_ignore_or_change_is_refused(
    options: list[str], told: str, pictures: Path, tmp_path: Path
) -> None:
    given = [word.format(pictures=pictures) for word in options]
    out = tmp_path / "new"
    answer = CliRunner().invoke(app, ["data", "labels", "--count", "1", "--out", str(out), *given])
    assert told in str(answer.exception)
    assert not out.exists() and not (pictures / "new").exists()
