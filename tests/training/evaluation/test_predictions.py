"""Label maps of other programs in an evaluation."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import caps_med
from caps_med.errors import CapsMedError, InvalidInput, InvalidParameter
from caps_med.images import MedicalImage, read_image, write_image
from tests.conftest import tiny_binary, tiny_card, write_tiny
from tests.training.data.test_oddities import nuclei, save_cases
from tests.training.evaluation.command import run
from training.data import open_dataset
from training.data.interpretation import Interpretation
from training.evaluation.segmentation import evaluate
from training.reports.segmentation import evaluation_report


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    write_tiny(root, "tiny", tiny_binary("SegCaps", "disc"))
    return root


@pytest.fixture
def predicted(discs: Path, tmp_path: Path) -> Path:
    """As the data's label maps, black and white, but the last one empty."""
    folder = tmp_path / "predicted"
    shutil.copytree(discs / "labels", folder)
    last = folder / "case5.png"
    write_image(read_image(last).with_array(np.zeros((1, 72, 80), np.uint8)), last)
    return folder


def test_a_folder_of_another_program_is_compared_like_a_model(
    discs: Path, repository: Path, predicted: Path, tmp_path: Path
) -> None:
    (predicted / "plans.json").write_text("{}")
    np.savez(predicted / "case0.npz", softmax=np.zeros((2, 72, 80), np.float32))
    out = tmp_path / "report"
    answer = run("--model", "tiny", "--data", discs, "--out", out, "--models", repository,
                 "--predictions", f"nnU-Net={predicted}")  # fmt: skip
    assert answer.exit_code == 0, answer.output
    summary = json.loads((out / "summary.json").read_text())
    assert summary["models"] == ["tiny@1", "nnU-Net"]
    with (out / "cases.csv").open() as file:
        rows = {(row["model"], row["case"]): row for row in csv.DictReader(file)}
    assert [float(rows["nnU-Net", f"case{i}"]["dice"]) for i in range(6)] == [1, 1, 1, 1, 1, 0]
    assert rows["nnU-Net", "case5"]["presence"] == "missed"
    (dice,) = (c for c in summary["comparisons"] if c["metric"] == "dice")
    ours = [float(rows["tiny@1", f"case{i}"]["dice"]) for i in range(6)]
    assert dice["against"] == "nnU-Net"
    assert dice["difference"]["mean"] == pytest.approx(np.mean(ours) - 5 / 6, abs=1e-6)
    assert {one["model"] for one in summary["calibration"]} == {"tiny@1"}
    *_, lines = answer.output.partition("minus nnU-Net")
    told = {name: "(5 cases)" in line for line in lines.splitlines() for name in ("Dice", "HD95")
            if f"disc, {name}" in line}  # fmt: skip
    assert told == {"Dice": False, "HD95": True}
    page = (out / "report.html").read_text()
    assert "tiny@1 against nnU-Net" in page and "nnU-Net, Dice 1.000" in page


def test_what_a_model_answers_scores_the_same_from_files(
    discs: Path, repository: Path, tmp_path: Path
) -> None:
    model, files = caps_med.load_model("tiny", repository), tmp_path / "mine"
    files.mkdir()
    for image in (discs / "images").iterdir():
        write_image(model.segment(image), files / f"{image.stem}_seg.png")
    found = evaluate(open_dataset(discs), [model], predictions={"files": files})
    one, other = (
        [row.scores for row in found.rows if row.model == name] for name in ("tiny@1", "files")
    )
    assert one == other
    evaluation_report(tmp_path / "report.html", found)


@pytest.mark.parametrize("written", ["_0000.png", "_0000_seg.png"])
def test_predictions_may_be_named_as_the_images(
    written: str, discs: Path, repository: Path, predicted: Path, tmp_path: Path
) -> None:
    """As `caps-med segment -i imagesTr` and MONAI name what they write of nnU-Net's data."""
    data = tmp_path / "data"
    shutil.copytree(discs / "labels", data / "labelsTr")
    (data / "imagesTr").mkdir()
    for file in (discs / "images").iterdir():
        shutil.copy(file, data / "imagesTr" / f"{file.stem}_0000.png")
    for file in [*predicted.iterdir()]:
        file.rename(file.with_name(f"{file.stem}{written}"))
    model = caps_med.load_model("tiny", repository)
    found = evaluate(open_dataset(data), [model], predictions={"files": predicted})
    dice = {row.case: row.scores.dice for row in found.rows if row.model == "files"}
    assert dice == {**{f"case{number}": 1 for number in range(5)}, "case5": 0}


def test_255_is_the_class_that_a_model_has_learned_even_where_there_is_no_other(
    discs: Path, repository: Path
) -> None:
    labels = {0: "background", 1: "tissue", 255: "disc"}
    write_tiny(repository, "classes", tiny_card("segmentation", None, labels=labels))
    model = caps_med.load_model("classes", repository)
    masks = discs / "labels"  # of 0 and 255
    found = evaluate(open_dataset(discs), [model], predictions={"files": masks})
    scores = [row.scores for row in found.rows if row.model == "files"]
    assert {(one.label, one.presence) for one in scores} == {(1, "absent"), (255, "both")}


def test_volumes_on_another_grid_are_refused_by_name(repository: Path, tmp_path: Path) -> None:
    data, files = tmp_path / "data", tmp_path / "other"
    for folder in (data / "imagesTr", data / "labelsTr", files):
        folder.mkdir(parents=True)
    rng, affine = np.random.default_rng(0), np.diag([1.0, 2.0, 3.0, 1.0])
    voxels = rng.integers(0, 2, (1, 24, 24, 4)).astype(np.uint8)
    write_image(MedicalImage(voxels * 99, affine), data / "imagesTr" / "a_0000.nii.gz")
    labels = MedicalImage(voxels, affine, kind="labels")
    write_image(labels, data / "labelsTr" / "a.nii.gz")
    write_image(labels, files / "a.nii.gz")
    np.savez(files / "a.npz", softmax=np.zeros((2, 24, 24, 4), np.float32))  # as nnU-Net
    models = [caps_med.load_model("tiny", repository)]
    found = evaluate(open_dataset(data), models, predictions={"other": files})
    assert [row.scores.dice for row in found.rows if row.model == "other"] == [1]
    flipped = MedicalImage(voxels, np.diag([-1.0, 2.0, 3.0, 1.0]), kind="labels")
    write_image(flipped, files / "a.nii.gz")
    with pytest.raises(InvalidInput, match=r"prediction of other: a_0000.* different affines"):
        evaluate(open_dataset(data), models, predictions={"other": files})


def test_ids_of_predicted_instances_tell_touching_objects_apart(
    repository: Path, tmp_path: Path
) -> None:
    ids = [nuclei(20 + 7 * i, i) for i in range(3)]
    data = save_cases(tmp_path / "data", ids)
    for number, one in enumerate(ids):
        for folder, array in (("ids", one), ("masks", (one > 0).astype(np.uint8))):
            map_ = MedicalImage(array[None], kind="labels")
            (tmp_path / folder).mkdir(exist_ok=True)
            write_image(map_, tmp_path / folder / f"{number}.tif")
    found = evaluate(
        open_dataset(data, interpretation=Interpretation.parse("binary")),
        [caps_med.load_model("tiny", repository)],
        predictions={name: tmp_path / name for name in ("ids", "masks")},
    )
    scores = {name: [r.scores for r in found.rows if r.model == name] for name in ("ids", "masks")}
    assert [one.dice for one in scores["ids"] + scores["masks"]] == [1] * 6
    assert [(one.objects_found, one.detection_f1) for one in scores["ids"]] == [
        (20, 1), (27, 1), (34, 1)
    ]  # fmt: skip
    assert all((one.objects_found or 99) < (one.objects_true or 0) for one in scores["masks"])


def _without_one(folder: Path) -> None:
    (folder / "case3.png").unlink()


def _twice(folder: Path) -> None:
    (folder / "case3.png").rename(folder / "case3_seg.png")
    shutil.copy(folder / "case3_seg.png", folder / "case3_mask.png")


def _smaller(folder: Path) -> None:
    write_image(MedicalImage(np.zeros((1, 9, 9), np.uint8), kind="labels"), folder / "case3.png")


def _of_other_classes(folder: Path) -> None:
    write_image(MedicalImage(np.full((1, 72, 80), 7, np.uint8), kind="labels"),
                folder / "case3.png")  # fmt: skip


def _broken(folder: Path) -> None:
    (folder / "case3.png").write_bytes(b"\x89PNG\r\n")


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (_without_one, "contains no label map of case3: name each file .* such as case3.png"),
        (_twice, "case3 has several label maps, case3_mask.png, case3_seg.png: keep one"),
        (_smaller, r"prediction of x: case3.png has size \(72, 80\), but its label map \(9, 9\)"),
        (_of_other_classes, r"case3.png: .*7.*\(0 background, 1 disc\)"),
        (_broken, "case3.png cannot be read"),
    ],
)
def test_what_is_wrong_with_a_prediction_is_told(
    damage: Callable[[Path], None], told: str, discs: Path, repository: Path, predicted: Path
) -> None:
    damage(predicted)
    with pytest.raises(InvalidInput, match=told):
        evaluate(open_dataset(discs), [caps_med.load_model("tiny", repository)],
                 predictions={"x": predicted})  # fmt: skip


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["nowhere"], "--predictions nowhere: no such folder"),
        (["tiny@1={}"], "--predictions tiny@1: is the name of a model"),
        (["{}", "{}"], "predicted is given twice; write NAME=FOLDER"),
        (["={}"], "has no name; write NAME=FOLDER"),
    ],
)
def test_folders_and_names_are_checked(
    given: list[str], told: str, discs: Path, repository: Path, predicted: Path, tmp_path: Path
) -> None:
    options = [o for text in given for o in ("--predictions", text.format(predicted))]
    answer = run("--model", "tiny", "--data", discs, "--out", tmp_path / "out", "--models",
                 repository, *options)  # fmt: skip
    assert isinstance(answer.exception, CapsMedError)
    assert told in str(answer.exception)


def test_the_report_is_not_written_among_the_predictions(
    discs: Path, repository: Path, predicted: Path
) -> None:
    answer = run("--model", "tiny", "--data", discs, "--out", predicted / "report", "--models",
                 repository, "--predictions", predicted)  # fmt: skip
    assert isinstance(answer.exception, InvalidParameter)
    assert not (predicted / "report").exists()
