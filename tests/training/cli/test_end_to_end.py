"""From awkward folders to a model that is evaluated and used, by the commands alone."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from caps_med.bundles import ModelRepository
from caps_med.cli import inference, models
from caps_med.errors import InvalidParameter
from caps_med.images import read_image
from caps_med.plugins import add_plugins
from tests.training.data.test_oddities import nuclei, save_cases

TINY = ("--network", "unet", "--set", "features=[4,4,4,4,4,4]", "--epochs", "1", "--steps", "1",
        "--batch-size", "1", "--crop", "64")  # fmt: skip
AFFINE = np.diag([-1.0, 1.2, 2.0, 1.0])


@pytest.fixture(scope="module")
def app() -> typer.Typer:
    app = typer.Typer()
    for group in (inference, models):
        group.register(app)
    add_plugins(app)
    return app


def run(app: typer.Typer, *arguments: object, fails: bool = False) -> str:
    answer = CliRunner().invoke(app, [str(one) for one in arguments])
    if not fails and answer.exception is not None:
        raise answer.exception
    assert (answer.exit_code != 0) == fails, answer.output
    return answer.output


def test_two_channels_from_training_to_segmentation(app: typer.Typer, tmp_path: Path) -> None:
    data, models = tmp_path / "data", tmp_path / "models"
    rng = np.random.default_rng(0)
    (data / "imagesTr").mkdir(parents=True)
    (data / "labelsTr").mkdir()
    (data / "dataset.json").write_text(json.dumps({"channel_names": {"0": "FLAIR", "1": "T1"}}))
    for number in range(5):
        label = np.zeros((64, 70, 3), np.uint8)
        label[20:40, 10 + number : 40, 1:] = 1
        for channel, scale in enumerate((3000, 90)):
            voxels = (rng.integers(1, scale, label.shape) // (2 - label)).astype(np.int16)
            file = data / "imagesTr" / f"case{number}_{channel:04}.nii.gz"
            nib.save(nib.Nifti1Image(voxels, AFFINE), file)
        nib.save(nib.Nifti1Image(label, AFFINE), data / "labelsTr" / f"case{number}.nii.gz")
    options = ("--models", models, "--runs", tmp_path / "runs")
    run(app, "train", "segmentation", "--data", data, "--name", "lesion", *options, *TINY)
    card = ModelRepository(models).find("lesion").card
    assert card.channel_names == ("FLAIR", "T1") and card.normalization.per_channel
    report = tmp_path / "report"
    run(app, "evaluate", "--model", "lesion", "--models", models, "--data", data, "--out", report)
    with (report / "cases.csv").open() as table:
        assert len(list(csv.DictReader(table))) == 5
    files = sorted((data / "imagesTr").glob("case0*"))
    out = tmp_path / "lesion.nii.gz"
    run(app, "segment", "--model", "lesion", "--models", models, *files, "--out", out)
    assert read_image(out, kind="labels").spatial_shape == (64, 70, 3)


def test_instances_from_the_check_to_the_evaluation(app: typer.Typer, tmp_path: Path) -> None:
    data, models = tmp_path / "data", tmp_path / "models"
    save_cases(data, [nuclei(9 + 7 * i, i) for i in range(5)])
    (data / "images" / "Thumbs.db").touch()
    found = run(app, "data", "check", data, fails=True)
    assert "instances" in found and "not ready" in found and "Thumbs.db" in found
    found = run(app, "data", "check", data, "--instances", "borders", "--labels", "1=nucleus")
    assert "ready to train" in found and "nucleus" in found and "border" in found
    options = ("--data", data, "--name", "nuclei", "--models", models, "--runs", tmp_path / "runs")
    run(app, "train", "segmentation", *options, "--binary", "--labels", "1=nucleus", *TINY)
    card = ModelRepository(models).find("nuclei").card
    assert card.labels == {0: "background", 1: "nucleus"} and card.instances == "binary"
    assert card.provenance.recipe["instances"] == "binary"
    report = tmp_path / "report"
    evaluate = ("evaluate", "--model", "nuclei", "--models", models, "--data", data)
    run(app, *evaluate, "--out", report)  # label maps are understood as in the training
    summary = json.loads((report / "summary.json").read_text())
    assert summary["labels"] == {"1": "nucleus"} and summary["cases"] == 5
    with pytest.raises(InvalidParameter, match=r"was started with another recipe .*instances"):
        run(app, "train", "segmentation", *options, "--instances", "classes", "--resume")
    with pytest.raises(InvalidParameter, match="--binary and --instances borders cannot be"):
        run(app, "data", "check", data, "--binary", "--instances", "borders")


@pytest.mark.parametrize("named", [False, True])
def test_a_few_strokes_from_the_check_to_the_evaluation(
    app: typer.Typer, tmp_path: Path, named: bool
) -> None:
    data, models = tmp_path / "data", tmp_path / "models"
    cases = [nuclei(9 + 7 * i, i) for i in range(5)]
    for label in cases:
        label[:] = label > 0
        label[:, 20:] = 2 if named else 255
    save_cases(data, cases)
    ignored: tuple[object, ...] = ("--ignore-label", 255)
    if named:  # as nnU-Net does
        (data / "images").rename(data / "imagesTr")
        (data / "labels").rename(data / "labelsTr")
        for file in (data / "imagesTr").iterdir():
            file.rename(file.with_name(f"{file.stem}_0000{file.suffix}"))
        names = {"background": 0, "nucleus": 1, "ignore": 2}
        description = {"labels": names, "channel_names": {"0": "DAPI"}, "file_ending": ".png"}
        (data / "dataset.json").write_text(json.dumps(description))
        ignored = ()
    found = " ".join(run(app, "data", "check", data).split())
    assert "ignored_value" in found and ("--ignore-label 255" in found or named)
    found = run(app, "data", "check", data, "--ignore-label", 2 if named else 255)
    assert "unlabelled" in found and "ignored_value" not in found
    options = ("--data", data, "--name", "nuclei", "--models", models, "--runs", tmp_path / "runs")
    run(app, "train", "segmentation", *options, *ignored, *TINY)
    card = ModelRepository(models).find("nuclei").card
    assert list(card.labels) == [0, 1]
    assert card.provenance.recipe["ignored"] == (2 if named else 255)
    report = tmp_path / "report"
    evaluate = ("evaluate", "--model", "nuclei", "--models", models, "--data", data)
    run(app, *evaluate, *ignored, "--out", report)
    summary = json.loads((report / "summary.json").read_text())
    assert list(summary["labels"]) == ["1"] and any("unlabelled" in n for n in summary["notes"])
    with pytest.raises(InvalidParameter, match=r"was started with another recipe .*ignored"):
        run(app, "train", "segmentation", *options, "--ignore-label", 1, *TINY, "--resume")
    if not named:  # of a single picture the right fifth is held out, which has no labels here
        for kind in ("images", "labels"):
            for file in sorted((data / kind).iterdir())[1:]:
                file.unlink()
        one = ("--data", data, "--name", "one", "--models", models, "--runs", tmp_path / "runs")
        said = run(app, "train", "segmentation", *one, *ignored, *TINY)
        assert "warning: the held-out data have no labels" in said
        assert ModelRepository(models).find("one").card.temperature is None
    if not named:
        with pytest.raises(InvalidParameter, match=r"was started with another recipe .*ignored"):
            run(app, "train", "segmentation", *options, *TINY, "--resume")
