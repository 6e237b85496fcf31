from __future__ import annotations

import csv
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import caps_med
from caps_med import samples
from caps_med.bundles import ModelRepository
from caps_med.errors import InvalidInput, InvalidParameter, ModelNotFound, WrongTask
from caps_med.images import MedicalImage, SliceStack, read_image, write_image
from caps_med.inference import Model
from caps_med.preprocessing import single_slice_plane
from tests.conftest import tiny_binary, tiny_card, write_tiny
from tests.images.codecs.test_dicom_seg import series
from tests.training.evaluation.command import run
from training.data import open_dataset
from training.data.interpretation import Interpretation
from training.evaluation.metrics.overlap import score_case
from training.evaluation.models import find_models
from training.evaluation.segmentation import evaluate
from training.reports.segmentation import evaluation_report


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A binary `tiny` and the U-Net `tiny-unet` of random weights; `other` knows other labels."""
    root = tmp_path_factory.mktemp("models")
    write_tiny(root, "tiny", tiny_binary("SegCaps", "disc"))
    write_tiny(root, "tiny-unet", tiny_binary("UNet", "disc"))
    write_tiny(root, "other", tiny_card("segmentation", None))
    return root


def test_one_model_on_a_folder(discs: Path, repository: Path, tmp_path: Path) -> None:
    out = tmp_path / "report"
    answer = run("--model", "tiny", "--data", discs, "--out", out, "--models", repository)
    assert answer.exit_code == 0, answer.output
    with (out / "cases.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["case"] for row in rows] == [f"case{i}" for i in range(6)]
    assert {(row["model"], row["class"], row["unit"]) for row in rows} == {
        ("tiny@1", "disc", "pixels")
    }
    model = caps_med.load_model("tiny", repository)
    for row in rows:
        image, mask = (read_image(discs / kind / f"{row['case']}.png") for kind in
                       ("images", "labels"))  # fmt: skip
        truth = MedicalImage((mask.array[:1] == 255).astype(np.uint8), kind="labels")
        (scores,) = score_case(model.segment(image), truth, [1])
        assert float(row["dice"]) == scores.dice
        assert row["hd95"] == ("" if scores.hd95 is None else str(scores.hd95))
    summary = json.loads((out / "summary.json").read_text())
    (disc,) = summary["scores"]
    assert disc["metrics"]["dice"]["mean"] == pytest.approx(
        np.mean([float(row["dice"]) for row in rows]), abs=1e-6
    )
    assert disc["metrics"]["dice"]["cases"] == 6
    assert summary["comparisons"] == []
    assert "calibration error, whole images" in answer.output
    whole, found = summary["calibration"]
    assert (whole["region"], found["region"]) == ("image", "foreground")
    low, high = whole["error"]["interval"]
    assert 0 <= low <= whole["error"]["value"] <= high <= 1
    assert sum(one["count"] for one in whole["bins"]) == 6 * 72 * 80
    assert "tiny@1" in answer.output


def test_against_a_baseline_that_is_named_by_its_network(
    discs: Path, repository: Path, tmp_path: Path
) -> None:
    answer = run("--model", "tiny", "--data", discs, "--out", tmp_path / "out", "--models",
                 repository, "--against", "unet")  # fmt: skip
    assert answer.exit_code == 0, answer.output
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["models"] == ["tiny@1", "tiny-unet@1"]
    with (tmp_path / "out" / "cases.csv").open() as file:
        dice = {(r["model"], r["case"]): float(r["dice"]) for r in csv.DictReader(file)}
    compared = next(c for c in summary["comparisons"] if c["metric"] == "dice")
    ours, theirs = (
        np.array([dice[model, f"case{i}"] for i in range(6)]) for model in summary["models"]
    )
    assert compared["difference"]["mean"] == pytest.approx((ours - theirs).mean(), abs=1e-6)
    low, high = compared["difference"]["interval"]
    assert compared["excludes_zero"] == (low > 0 or high < 0)
    scores, difference = (
        line for line in answer.output.splitlines() if line.split()[1:3] == ["disc,", "Dice"]
    )
    shown = [f"{values.mean():.3f} ± {values.std(ddof=1):.3f} [" for values in (ours, theirs)]
    assert 0 < scores.index(shown[0]) < scores.index(shown[1])
    assert f"{(ours - theirs).mean():.3f} [" in difference and compared["verdict"] in difference


def test_models_are_also_scored_with_test_time_augmentation(
    discs: Path, repository: Path, tmp_path: Path
) -> None:
    out = tmp_path / "report"
    answer = run(
        "--model", "tiny", "--data", discs, "--out", out, "--models", repository,
        "--against", "unet", "--tta",
    )  # fmt: skip
    assert answer.exit_code == 0, answer.output
    names = ["tiny@1", "tiny@1 with TTA", "tiny-unet@1", "tiny-unet@1 with TTA"]
    summary = json.loads((out / "summary.json").read_text())
    assert summary["models"] == names
    assert {one["against"] for one in summary["comparisons"]} == set(names[1:])
    assert len(set(summary["notes"])) == len(summary["notes"])
    model = caps_med.load_model("tiny", repository)
    with (out / "cases.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["case"] == "case2"]
    image, mask = (read_image(discs / kind / "case2.png") for kind in ("images", "labels"))
    truth = MedicalImage((mask.array[:1] == 255).astype(np.uint8), kind="labels")
    for row, tta in zip(rows[:2], (False, True), strict=True):
        (scores,) = score_case(model.segment(image, tta=tta), truth, [1])
        assert float(row["dice"]) == scores.dice
    page = (out / "report.html").read_text()
    assert all(name in page for name in names)


def test_a_model_without_mirror_images_is_scored_without_them(
    discs: Path, repository: Path, tmp_path: Path
) -> None:
    """It could not be compared with others that have them."""
    card = tiny_binary("SegCaps", "disc")
    recipe = {"augmentation": {"flip_columns": 0.0, "flip_rows": 0.0}}
    provenance = card.provenance.model_copy(update={"recipe": recipe})
    shutil.copytree(repository / "tiny", tmp_path / "tiny")
    write_tiny(tmp_path, "fixed", card.model_copy(update={"provenance": provenance}))
    given = ("--data", discs, "--out", tmp_path / "report", "--models", tmp_path, "--tta")
    answer = run("--model", "fixed", "--against", "tiny", *given)
    assert answer.exit_code == 0, answer.output
    assert "note: fixed@1 was trained without mirror images" in answer.stderr
    summary = json.loads((tmp_path / "report" / "summary.json").read_text())
    assert summary["models"] == ["fixed@1", "tiny@1", "tiny@1 with TTA"]
    alone = run("--model", "fixed", *given)
    assert "fixed was trained without mirror images, so that there are none" in str(alone.exception)


def test_a_model_is_not_compared_with_itself(discs: Path, repository: Path) -> None:
    model = caps_med.load_model("tiny", repository)
    with pytest.raises(InvalidParameter, match="tiny@1 is given twice; leave one out"):
        evaluate(open_dataset(discs), [model, caps_med.load_model("tiny", repository)])


def test_the_tolerance_of_the_surface_dice(discs: Path, repository: Path, tmp_path: Path) -> None:
    found = {}
    for given in ([], ["--tolerance", 0.5], ["--tolerance", 8]):
        answer = run("--model", "tiny", "--data", discs, "--out", tmp_path, "--models", repository,
                     *given)  # fmt: skip
        assert answer.exit_code == 0, answer.output
        summary = json.loads((tmp_path / "summary.json").read_text())
        within = f"surface Dice within {given[1]} pixels" if given else "Dice within 1 pixel"
        shown = " ".join(answer.output.split())  # the title may take two lines
        assert within in shown and within in (tmp_path / "report.html").read_text()
        assert summary["tolerance"] == (given[1] if given else None)
        (disc,) = summary["scores"]
        found[str(summary["tolerance"])] = disc["metrics"]["surface_dice"]["mean"]
        assert disc["metrics"]["dice"]["mean"] > 0
    assert found["0.5"] < found["None"] < found["8.0"]


@pytest.mark.parametrize(
    ("tolerance", "told"),
    [("-1", "greater than or equal to 0"), ("nan", "greater than or equal to 0"),
     ("inf", "tolerance=inf: must be a distance of at least 0")],
)  # fmt: skip
def test_a_tolerance_is_a_distance(
    tolerance: str, told: str, discs: Path, repository: Path, tmp_path: Path
) -> None:
    answer = run("--model", "tiny", "--data", discs, "--out", tmp_path, "--models", repository,
                 "--tolerance", tolerance)  # fmt: skip
    assert told in answer.output + str(answer.exception)


@pytest.mark.parametrize(
    ("model", "option", "told"),
    [
        ("tiny", ["--segmenter", "tiny"], "--segmenter: tiny@1 is a segmentation model, which doe"),
        ("tiny", ["--images", 4], "--images: tiny@1 is a segmentation model, which does not take"),
        ("digits", ["--tolerance", 1], "--tolerance: digits@1 is a classification model, which"),
        ("digits", ["--binary"], "--binary: digits@1 is a classification model, which does not"),
        ("digits", ["--robust-images", 9], "--robust-images: has no effect without --robust"),
    ],
)
def test_options_of_other_tasks_are_not_ignored(
    model: str, option: list[object], told: str, discs: Path, repository: Path, tmp_path: Path
) -> None:
    answer = run("--model", model, "--data", discs, "--out", tmp_path, "--models", repository,
                 *option)  # fmt: skip
    assert isinstance(answer.exception, InvalidParameter)
    assert told in str(answer.exception)


def test_a_volume_is_scored_as_a_whole_in_millimetres(tmp_path: Path) -> None:
    for kind, source in (("images", samples.T1), ("labels", samples.TISSUE)):
        (tmp_path / kind).mkdir()
        read = read_image(source, kind="image" if kind == "images" else "labels")
        thick = MedicalImage(np.concatenate([read.array] * 2, -1), read.affine, kind=read.kind)
        write_image(thick, tmp_path / kind / "head.nii.gz")
    found = evaluate(open_dataset(tmp_path), [caps_med.load_model("brain-t1-tissue")])
    assert found.summary.unit == "mm"
    assert [row.class_name for row in found.rows] == list(found.summary.labels.values())
    assert min(row.scores.dice or 0 for row in found.rows) > 0.7
    mean = found.summary.scores[-1]
    assert mean.class_name == "mean over classes"
    dice = mean.metrics["dice"]
    assert dice is not None
    assert dice.mean == pytest.approx(np.mean([r.scores.dice for r in found.rows]), abs=1e-6)
    assert dice.interval is None
    assert found.dice_of_cases() == {"head": pytest.approx(dice.mean, abs=1e-6)}
    assert any("1 independent case:" in note for note in found.summary.notes)


def test_the_guide_evaluates_from_python(
    discs: Path, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    guide = (Path(__file__).parents[3] / "docs" / "guides" / "evaluation.md").read_text()
    whole, single = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)
    for name, network in (("my-model", "SegCaps"), ("my-model-unet", "UNet")):
        write_tiny(repository, name, tiny_binary(network, "disc"))
    (tmp_path / "TEST").symlink_to(discs)
    truth = read_image(samples.TISSUE, kind="labels")
    truth.save(tmp_path / "truth.nii.gz")
    truth.with_array(np.roll(truth.array, 1, 1)).save(tmp_path / "prediction.nii.gz")
    monkeypatch.setenv("CAPS_MED_MODELS", str(repository))
    monkeypatch.chdir(tmp_path)
    exec(whole, {})  # noqa: S102 - our own guide
    files = {path.name for path in (tmp_path / "report").iterdir()}
    assert files == {"cases.csv", "summary.json", "report.html"}
    assert "my-model-unet@1 case5 disc" in capsys.readouterr().out
    exec(single, {})  # noqa: S102 - our own guide
    first, _ = capsys.readouterr().out.splitlines()
    assert 0.5 < float(first.split()[1]) < 1


@pytest.mark.parametrize("axis", [1, 2])
def test_a_single_slice_is_scored_as_it_is_segmented(
    axis: int, repository: Path, tmp_path: Path
) -> None:
    """At its spacing, in the model's plane; its label map is a picture."""
    shape = [40, 44, 48]
    shape[axis] = 1
    image = np.random.default_rng(0).integers(0, 255, shape).astype(np.float32)
    labels = (image > 127).astype(np.uint8)
    affine = np.diag([-3.0, -3, 3, 1])
    file = tmp_path / "images" / "a.nii.gz"
    for kind in ("images", "labels"):
        (tmp_path / kind).mkdir()
    write_image(MedicalImage(image[None], affine), file)
    truth = MedicalImage(labels[None], affine, kind="labels")
    (plane,) = SliceStack.from_image(truth, single_slice_plane(truth) or "axial").array
    write_image(MedicalImage(plane, kind="labels"), tmp_path / "labels" / "a.png")
    card = tiny_binary("UNet", "disc").model_copy(update={"spacing_mm": (1.0, 1.0)})
    write_tiny(repository, f"resampling{axis}", card)
    model = caps_med.load_model(f"resampling{axis}", repository)
    found = evaluate(open_dataset(tmp_path), [model])
    assert found.summary.unit == "mm"
    answer = model.segment(file)
    assert answer.array.any()
    assert [row.scores for row in found.rows] == list(score_case(answer, truth, [1]))
    evaluation_report(tmp_path / "report.html", found)


def test_a_single_slice_is_a_picture_to_a_model_of_pictures(
    repository: Path, tmp_path: Path
) -> None:
    for kind in ("images", "labels"):
        (tmp_path / kind).mkdir()
        array = np.eye(32, dtype=np.uint8)[None, :, :, None]
        image = MedicalImage(array, kind="labels" if kind == "labels" else "image")
        write_image(image, tmp_path / kind / "a.nii.gz")
    model = caps_med.load_model("tiny", repository)
    assert evaluate(open_dataset(tmp_path), [model]).summary.unit == "pixels"


def test_a_baseline_that_is_not_there_says_how_to_train_it(discs: Path, models: Path) -> None:
    command = "caps-med train segmentation --data DIR --name tiny-segmentation-unet --network unet"
    with pytest.raises(ModelNotFound, match=command):
        find_models(
            ModelRepository(models), "tiny-segmentation", ["unet"], {"segmentation": ("unet",)}
        )
    with pytest.raises(ModelNotFound, match="no model 'nonsense'"):
        find_models(ModelRepository(models), "tiny-segmentation", ["nonsense"])


def test_models_that_cannot_be_compared(repository: Path, models: Path) -> None:
    with pytest.raises(WrongTask, match="tiny-synthesis is a synthesis model: models are com"):
        find_models(ModelRepository(models), "tiny-segmentation", ["tiny-synthesis"])
    with pytest.raises(InvalidInput, match="1 disc, but other@1 0 background, 2 nucleus"):
        find_models(ModelRepository(repository), "tiny", ["other"])
    with pytest.raises(InvalidParameter, match="tiny@1 is given twice"):
        find_models(ModelRepository(repository), "tiny", ["tiny@1"])


def test_models_that_number_their_labels_differently(repository: Path, discs: Path) -> None:
    """By number, the grey matter of one would be compared with the white matter of the other."""
    names = ("background", "grey matter", "white matter")
    for name, order in (("own", (0, 1, 2)), ("same", (0, 1, 2)), ("swapped", (0, 2, 1))):
        labels = {i: names[k] for i, k in enumerate(order)}
        if name == "same":
            labels = {0: "background", 1: "Gray_matter", 2: "fibres"}
        write_tiny(repository, name, tiny_card("segmentation", None, labels=labels))
    known = ModelRepository(repository)
    with pytest.raises(InvalidInput, match="2 grey matter: compare models with the"):
        find_models(known, "own", ["swapped"])
    models = [Model(bundle) for bundle in find_models(known, "own", ["same"])]
    notes = evaluate(open_dataset(discs), models).summary.notes
    assert [note for note in notes if "calls" in note] == [
        "same@1 calls 2 fibres what own@1 calls 2 white matter; labels are matched by number"
    ]


def test_segments_are_compared_by_their_names(repository: Path, tmp_path: Path) -> None:
    """The segments of the file have other numbers than the model's labels."""
    labels = {0: "background", 1: "tumor", 2: "liver"}
    write_tiny(repository, "organs", tiny_card("segmentation", None, labels=labels))
    folder = tmp_path / "images" / "a"
    folder.mkdir(parents=True)
    image = read_image(series(folder))
    ids = np.zeros(image.array.shape, np.uint8)
    ids[0, 1:4, 0:3, 1], ids[0, 4:, 3:, 1] = 1, 2
    (tmp_path / "labels").mkdir()
    segments = replace(image.with_array(ids, kind="labels"), names={1: "liver", 2: "Tumor"})
    segments.save(tmp_path / "labels" / "a.dcm")
    model = caps_med.load_model("organs", repository)
    found = evaluate(open_dataset(tmp_path), [model])
    truth = image.with_array(np.array([0, 2, 1], np.uint8)[ids], kind="labels")
    assert [row.scores for row in found.rows] == list(
        score_case(model.segment(folder), truth, [1, 2])
    )
    assert not any("matched by number" in note for note in found.summary.notes)


def test_labels_that_the_model_does_not_know(discs: Path, models: Path) -> None:
    model = caps_med.load_model("tiny-segmentation", models)
    told = r"case0.png: .* holds the ids 1; .*2 nucleus"
    with pytest.raises(InvalidInput, match=told) as refused:
        evaluate(open_dataset(discs), [model])
    assert "--binary" not in str(refused.value)


def test_label_maps_of_instances_for_a_model_of_one_class(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "labels").mkdir()
    ids = np.arange(64, dtype=np.uint8).reshape(1, 8, 8).repeat(4, 1).repeat(4, 2)
    write_image(MedicalImage(ids), tmp_path / "images" / "a.png")
    write_image(MedicalImage(ids, kind="labels"), tmp_path / "labels" / "a.png")
    answer = run("--model", "tiny", "--data", tmp_path, "--out", tmp_path.parent / "report",
                 "--models", repository)  # fmt: skip
    assert "1 disc); if every id above 0 is foreground, use --binary" in str(answer.exception)
    answer = run("--model", "tiny", "--data", tmp_path, "--out", tmp_path.parent / "report",
                 "--models", repository, "--binary")  # fmt: skip
    assert answer.exit_code == 0, answer.output


@pytest.mark.parametrize("named", [True, False], ids=["by the data", "by the user"])
def test_what_is_not_labelled_is_not_scored(
    discs: Path, repository: Path, tmp_path: Path, *, named: bool
) -> None:
    """The right half of the first three pictures; of the others all is labelled."""
    data, unlabelled = tmp_path / "data", np.zeros((1, 72, 80), bool)
    unlabelled[..., 40:] = True
    for kind in ("imagesTr", "labelsTr"):
        (data / kind).mkdir(parents=True)
    for number in range(6):
        shutil.copy(discs / "images" / f"case{number}.png", data / "imagesTr")
        disc = read_image(discs / "labels" / f"case{number}.png", kind="labels").array > 0
        ids = np.where(unlabelled & (number < 3), 7, disc).astype(np.uint8)
        write_image(MedicalImage(ids, kind="labels"), data / "labelsTr" / f"case{number}.png")
    labels = {"background": 0, "disc": 1, "ignore" if named else "rest": 7}
    (data / "dataset.json").write_text(json.dumps({"labels": labels}))
    asked = ["--model", "tiny", "--data", data, "--out", tmp_path / "out", "--models", repository,
             "--predictions", f"truth={discs / 'labels'}"]  # fmt: skip
    if not named:
        refused = run(*asked)
        assert "ids 7; " in str(refused.exception)
        assert "marks unlabelled voxels, use --ignore-label" in str(refused.exception)
    answer = run(*asked, *([] if named else ["--ignore-label", "7"]))
    assert answer.exit_code == 0, answer.output
    assert "the id 7 marks unlabelled voxels: 25.0% of all are not scored" in answer.output
    model = caps_med.load_model("tiny", repository)
    with (tmp_path / "out" / "cases.csv").open() as file:
        rows = {(row["model"], row["case"]): row for row in csv.DictReader(file)}
    for number in range(6):
        case = f"case{number}"
        image, mask = (read_image(discs / kind / f"{case}.png") for kind in ("images", "labels"))
        inside = ~unlabelled | (number >= 3)
        truth = MedicalImage(((mask.array[:1] > 0) & inside).astype(np.uint8), kind="labels")
        found = model.segment(image).array * inside
        (scores,) = score_case(truth.with_array(found.astype(np.uint8)), truth, [1])
        assert float(rows["tiny@1", case]["dice"]) == scores.dice
        assert rows["tiny@1", case]["objects_found"] == str(scores.objects_found)
        assert rows["truth", case]["hd95"] == "0.0"
    calibration = json.loads((tmp_path / "out" / "summary.json").read_text())["calibration"]
    assert sum(one["count"] for one in calibration[0]["bins"]) == 4.5 * 72 * 80
    with pytest.raises(InvalidParameter, match="1: is the only label that tiny@1 segments"):
        everything = Interpretation(ignored=1)
        evaluate(open_dataset(data, interpretation=everything), [model])


def test_masks_of_255_may_have_1_for_what_is_not_labelled(
    discs: Path, repository: Path, tmp_path: Path
) -> None:
    """The model's label 1, which 255 stands for, is another one than the 1 in the files."""
    shutil.copytree(discs, tmp_path / "data")
    for file in (tmp_path / "data" / "labels").iterdir():
        array = read_image(file, kind="labels").array.copy()
        array[..., 60:] = 1
        write_image(MedicalImage(array, kind="labels"), file)
    dataset = open_dataset(tmp_path / "data", interpretation=Interpretation(ignored=1))
    found = evaluate(dataset, [caps_med.load_model("tiny", repository)])
    assert found.summary.labels == {1: "disc"} and len(found.rows) == 6
    assert "the id 1 marks unlabelled voxels: 25.0% of all are not scored" in found.summary.notes


def test_pictures_and_volumes_have_no_common_unit(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said before any of them is segmented."""
    for name, array in (("a.png", np.eye(16)), ("b.nii.gz", np.stack([np.eye(16)] * 3))):
        for kind in ("images", "labels"):
            (tmp_path / kind).mkdir(exist_ok=True)
            whole = array[None].astype(np.uint8)
            labels = MedicalImage(whole, kind="labels" if kind == "labels" else "image")
            write_image(labels, tmp_path / kind / name)
    monkeypatch.delattr(Model, "segment")
    with pytest.raises(InvalidInput, match="in pixels and in mm: evaluate them separately"):
        evaluate(open_dataset(tmp_path), [caps_med.load_model("tiny", repository)])


def test_a_single_case_has_no_interval(discs: Path, repository: Path) -> None:
    model = caps_med.load_model("tiny", repository)
    summary = evaluate(open_dataset(discs).subset({"case1"}), [model]).summary
    assert all(one is None or one.interval is None for one in summary.scores[0].metrics.values())
    told = [note for note in summary.notes if "interval" in note]
    assert len(told) == 1 and "there are no confidence intervals" in told[0]


@pytest.mark.parametrize("layout", ["parts", "parts below", "side by side", "list"])
def test_a_test_part_that_is_left_out_is_told(
    repository: Path, discs: Path, tmp_path: Path, layout: str
) -> None:
    """Its scores are those that one expects."""
    data, rows = tmp_path / "data", ["image,label,part"]
    for part, number in (("train", 0), ("test", 1)):
        images, labels = (
            {
                "parts": data / part / kind / "a.png",
                "parts below": data / kind / part / "a.png",
                "side by side": data / part / f"a{'_mask' * (kind == 'labels')}.png",
                "list": data / kind / f"{part}.png",
            }[layout]
            for kind in ("images", "labels")
        )
        for kind, file in (("images", images), ("labels", labels)):
            file.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(discs / kind / f"case{number}.png", file)
        rows.append(f"{images},{labels},{part}")
    if layout == "list":
        (data / "list.csv").write_text("\n".join(rows))
        data /= "list.csv"
    model = caps_med.load_model("tiny", repository)
    summary = evaluate(open_dataset(data), [model]).summary
    note = "has a test part, which is left out: to score it, give its folder"
    assert summary.cases == 1 and any(note in one for one in summary.notes)
    if layout == "list":
        data.write_text("\n".join([rows[0], rows[2]]))
        with pytest.raises(InvalidInput, match="no labelled images but those of a test part"):
            evaluate(open_dataset(data), [model])
    else:
        note = "has a test part"
        assert not any(note in one for one in evaluate(open_dataset(discs), [model]).summary.notes)


def test_only_the_groups_that_were_held_out(discs: Path, repository: Path) -> None:
    model = caps_med.load_model("tiny", repository)
    found = evaluate(open_dataset(discs).subset({"case1", "case4"}), [model])
    assert list(found.dice_of_cases()) == ["case1", "case4"]
    assert found.card.cases == 2


def test_the_data_are_left_as_they_are(discs: Path, repository: Path) -> None:
    answer = run("--model", "tiny", "--data", discs, "--out", discs / "report", "--models",
                 repository)  # fmt: skip
    assert "lies inside the data" in str(answer.exception)
    assert not (discs / "report").exists()


def test_a_list_is_not_replaced_by_the_results(tmp_path: Path, repository: Path) -> None:
    """They have a table of the same name."""
    (tmp_path / "cases.csv").write_text("image,label\n")
    answer = run("--model", "tiny", "--data", tmp_path / "cases.csv", "--out", tmp_path, "--models",
                 repository)  # fmt: skip
    assert "holds the list of the data, cases.csv" in str(answer.exception)


@pytest.mark.parametrize("below", ["", "report"])
def test_a_file_is_no_folder_for_the_report(
    below: str, discs: Path, repository: Path, tmp_path: Path
) -> None:
    """Told before the work: it was lost."""
    (tmp_path / "notes.txt").touch()
    begun = len(list(tmp_path.iterdir()))
    answer = run("--model", "tiny", "--data", discs, "--out", tmp_path / "notes.txt" / below,
                 "--models", repository)  # fmt: skip
    assert isinstance(answer.exception, InvalidParameter)
    assert "notes.txt is a file; name a folder" in str(answer.exception)
    assert len(list(tmp_path.iterdir())) == begun


@pytest.mark.parametrize("described", [False, True])
def test_scores_on_the_training_data_are_told(
    described: bool, discs: Path, repository: Path, tmp_path: Path
) -> None:
    """Also of a folder that is named by its description."""
    data = discs
    if described:
        data = tmp_path / "dataset.json"
        named = {
            file.stem: {"images": [str(file)], "label": str(discs / "labels" / file.name)}
            for file in (discs / "images").iterdir()
        }
        data.write_text(json.dumps({"dataset": named}))
    card, name = tiny_binary("SegCaps", "disc"), f"seen-{int(described)}"
    seen = card.provenance.model_copy(update={"recipe": {"data": str(data)}})
    write_tiny(repository, name, card.model_copy(update={"provenance": seen}))
    found = evaluate(open_dataset(data), [caps_med.load_model(name, repository)])
    assert any(f"{name}@1 was trained on these data" in note for note in found.summary.notes)
