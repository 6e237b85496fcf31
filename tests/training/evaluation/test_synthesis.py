"""``caps-med evaluate`` of synthesis models, from the folder to the report."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import caps_med
from caps_med.bundles import ModelCard, ModelRepository, NetworkSpec
from caps_med.errors import InvalidInput, InvalidParameter, ModelNotFound, WrongTask
from caps_med.images import MedicalImage, SliceStack, as_written, read_image, write_image
from caps_med.preprocessing import single_slice_plane
from tests.conftest import tiny_card, write_tiny
from tests.training.evaluation.command import run
from training.data import open_dataset
from training.evaluation.metrics import DISTANCES, mean_pairwise, ssim
from training.evaluation.metrics.overlap import score_case
from training.evaluation.models import find_models
from training.evaluation.synthesis import evaluate_synthesis, repeats_of
from training.labelmaps.phantoms import axon_phantom, write_phantom

LABELS = {0: "background", 1: "axon"}


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`axons`, its baseline `axons-pix2pix` and the segmenter `finder`, all of random weights."""
    root = tmp_path_factory.mktemp("models")
    write_tiny(root, "axons", card("synthesis", "CapsPix2Pix", {"atoms": 4}))
    write_tiny(root, "axons-pix2pix", card("synthesis", "Pix2Pix", {"width": 8}))
    unet = {"features": [4, 4, 8, 8, 8, 4]}
    write_tiny(root, "finder", card("segmentation", "UNet", unet))
    write_tiny(root, "stranger", tiny_card("segmentation"))
    return root


def card(task: str, network: str, arguments: Mapping[str, object]) -> ModelCard:
    spec = NetworkSpec(name=network, arguments=dict(arguments))
    return tiny_card(task, None, spec, LABELS)


@pytest.fixture(scope="module")
def phantoms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three label maps with two real images each."""
    folder = tmp_path_factory.mktemp("phantoms")
    for case in range(3):
        for repeat in range(2):
            phantom = axon_phantom(0, case, repeat, size=64)
            write_phantom(folder, f"axons{case}-look{repeat}", phantom)
    return folder


def test_a_model_against_pix2pix(phantoms: Path, repository: Path, tmp_path: Path) -> None:
    out = tmp_path / "report"
    answer = run("--model", "axons", "--data", phantoms, "--out", out, "--models", repository,
                 "--against", "pix2pix", "--segmenter", "finder", "--images", 3)  # fmt: skip
    assert answer.exit_code == 0, answer.output
    summary = json.loads((out / "summary.json").read_text())
    assert summary["models"] == ["axons@1", "axons-pix2pix@1"]
    assert (summary["cases"], summary["label_maps"], summary["images"]) == (6, 3, 3)
    assert summary["segmenter"] == "finder@1" and summary["floor"]["frechet"] > 0
    ours, theirs = summary["scores"]
    for scores in (ours, theirs):
        assert set(scores["sets"]) == {"frechet", "mmd", "spectrum", "histogram"}
        assert scores["diversity"]["l1"]["real"] > 0
        assert set(scores["artefacts"]) >= {"border"} and scores["artefacts"]["border"]["real"] > 0
        assert scores["ssim"]["cases"] == 6 and scores["ssim"]["groups"] == 3
    assert theirs["parameters"] > ours["parameters"]
    assert {c["metric"] for c in summary["comparisons"]} == {"ssim", "psnr", "geometry"}
    with (out / "cases.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    mean = np.mean([float(row["ssim"]) for row in rows if row["model"] == "axons@1"])
    assert ours["ssim"]["mean"] == pytest.approx(mean, abs=1e-5)
    key = json.loads((out / "real-or-synthetic.json").read_text())
    assert key["model"] == "axons@1" and {pair["real"] for pair in key["pairs"]} <= {"A", "B"}
    assert len(key["pairs"]) == 6
    assert read_image(out / "real-or-synthetic.png").array.shape[0] == 3
    page = (out / "report.html").read_text()
    assert "Fréchet distance" in page and page.count("data:image/png") == 3 * (1 + 2 + 3 + 3)
    assert "axons-pix2pix@1" in answer.output and "geometry kept" in answer.output


def test_the_numbers_are_those_of_the_images(phantoms: Path, repository: Path) -> None:
    model, finder = (caps_med.load_model(name, repository) for name in ("axons", "finder"))
    found = evaluate_synthesis(open_dataset(phantoms), [model], seed=5, images=2, segmenter=finder)
    label = read_image(phantoms / "labels" / "axons1-look0.png", kind="labels")
    made = [as_written(model.synthesize(label, seed=5 + 2 + i)) for i in range(2)]
    fake = [image.array.astype(np.float32) / 255 for image in made]
    row = next(row for row in found.rows if row.case == "axons1-look1")
    shown = read_image(phantoms / "images" / "axons1-look1.png")
    real = model.bundle.card.normalization.apply(shown.array)
    assert row.label_map == 1
    assert row.ssim == pytest.approx(np.mean([ssim(one, real) for one in fake]), abs=1e-6)
    for name, distance in DISTANCES.items():
        assert row.distances[name] == pytest.approx(mean_pairwise(fake, distance), abs=1e-6)
    truth = MedicalImage(label.array, kind="labels")
    dice = [score_case(finder.segment(image), truth, [1])[0].dice for image in made]
    assert row.geometry == pytest.approx(np.mean([d for d in dice if d is not None]), abs=1e-6)


@pytest.mark.parametrize("axis", [1, 2])
def test_a_single_slice_is_compared_as_it_is_synthesized(
    axis: int, models: Path, tmp_path: Path
) -> None:
    """At its spacing; the measures are of the slice, whichever plane the model looks at."""
    shape = [40, 44, 48]
    shape[axis] = 1
    labels = np.random.default_rng(0).integers(0, 2, shape).astype(np.uint8) * 2
    volume = MedicalImage(labels[None], np.diag([-2.0, -2, 2, 1]), kind="labels")
    for kind, one in (("images", volume.with_array(volume.array * 99, kind="image")),
                      ("labels", volume)):  # fmt: skip
        (tmp_path / kind).mkdir()
        write_image(one, tmp_path / kind / "a.nii.gz")
    model = caps_med.load_model("tiny-synthesis", models)
    (row,) = evaluate_synthesis(open_dataset(tmp_path), [model], images=1).rows
    made = as_written(model.synthesize(tmp_path / "labels" / "a.nii.gz"))
    plane = single_slice_plane(volume) or "axial"
    (fake,) = SliceStack.from_image(made, plane).array
    (real,) = SliceStack.from_image(volume, plane).array > 0
    expected = ssim(fake.astype(np.float32), real.astype(np.float32))
    assert row.ssim == pytest.approx(expected, abs=1e-6)


def test_cases_that_show_one_label_map_are_its_repeats(phantoms: Path, repository: Path) -> None:
    model = caps_med.load_model("axons", repository)
    repeats = repeats_of(open_dataset(phantoms), model)
    assert [[case.name for case in one] for one in repeats] == [
        [f"axons{i}-look{k}" for k in range(2)] for i in range(3)
    ]


def test_a_patient_may_have_the_name_of_its_first_image(
    phantoms: Path, repository: Path, tmp_path: Path
) -> None:
    for kind in ("images", "labels"):
        shutil.copytree(phantoms / kind, tmp_path / kind)
        for file in (tmp_path / kind).glob("*-look0.png"):
            file.rename(file.with_name(file.name.replace("-look0", "")))
    model = caps_med.load_model("axons", repository)
    found = evaluate_synthesis(open_dataset(tmp_path), [model], images=1)
    assert [row.group for row in found.rows] == ["axons0"] * 2 + ["axons1"] * 2 + ["axons2"] * 2
    (scores,) = found.summary.scores
    assert scores.ssim is not None and (scores.ssim.cases, scores.ssim.groups) == (6, 3)


def test_images_smaller_than_the_window_of_ssim_have_none(repository: Path, tmp_path: Path) -> None:
    """Nothing was written, of other images neither."""
    rng, data = np.random.default_rng(0), tmp_path / "data"
    for name, size in (("large", (11, 20)), ("small", (10, 20))):
        label = MedicalImage(rng.integers(0, 2, (1, *size)).astype(np.uint8), kind="labels")
        for repeat in range(2):
            image = MedicalImage(rng.integers(0, 256, (1, *size)).astype(np.uint8))
            for kind, one in (("images", image), ("labels", label)):
                (data / kind).mkdir(parents=True, exist_ok=True)
                write_image(one, data / kind / f"{name}-look{repeat}.png")
    answer = run("--model", "axons", "--data", data, "--out", tmp_path / "out",
                 "--models", repository, "--images", 2)  # fmt: skip
    assert answer.exit_code == 0, answer.output
    with (tmp_path / "out" / "cases.csv").open() as file:
        rows = list(csv.DictReader(file))
    for metric in ("ssim", "structure_among_synthetic"):
        assert [bool(row[metric]) for row in rows] == [True, True, False, False]
    assert all(row["psnr"] and row["l1_among_synthetic"] for row in rows)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    (scores,) = summary["scores"]
    assert (scores["ssim"]["cases"], scores["psnr"]["cases"]) == (2, 4)
    assert scores["diversity"]["structure"]["ratio"] > 0
    assert any("1 label map of under 11 x 11 pixels" in note for note in summary["notes"])


def test_what_cannot_be_measured_is_said(phantoms: Path, repository: Path, tmp_path: Path) -> None:
    for kind in ("images", "labels"):
        shutil.copytree(phantoms / kind, tmp_path / kind)
        for file in (tmp_path / kind).glob("*-look1.png"):
            file.unlink()
    model = caps_med.load_model("axons", repository)
    summary = evaluate_synthesis(open_dataset(tmp_path), [model], images=1).summary
    (scores,) = summary.scores
    assert scores.geometry is None
    assert scores.diversity["l1"].ratio is None and scores.diversity["l1"].synthetic is None
    told = " ".join(summary.notes)
    assert "only one real image" in told and "--images 2" in told and "--segmenter" in told


def test_a_volume_is_measured_slice_by_slice(tmp_path: Path, repository: Path) -> None:
    rng = np.random.default_rng(0)
    for kind in ("images", "labels"):
        (tmp_path / kind).mkdir()
    for number in range(2):
        ids = np.zeros((1, 24, 24, 5), np.uint8)
        ids[:, 8:16, 8:16, 1:4] = 1
        image = (ids * 100 + rng.integers(0, 50, ids.shape)).astype(np.int16)
        MedicalImage(image, np.eye(4)).save(tmp_path / "images" / f"v{number}.nii.gz")
        labels = MedicalImage(ids, np.eye(4), kind="labels")
        labels.save(tmp_path / "labels" / f"v{number}.nii.gz")
    model = caps_med.load_model("axons", repository)
    found = evaluate_synthesis(open_dataset(tmp_path), [model], images=2)
    assert found.summary.label_maps == 1 and len(found.rows) == 2
    sets = found.summary.scores[0].sets
    assert sets is not None and np.isfinite(list(sets.values())).all()
    assert found.shown[0].labels.shape == (24, 24)


def test_mistakes_are_named(phantoms: Path, repository: Path, models: Path) -> None:
    known = ModelRepository(repository)
    with pytest.raises(ModelNotFound, match="caps-med train synthesis --data DIR --name "
                                            "axons-pix2pix-pix2pix --network pix2pix"):  # fmt: skip
        find_models(known, "axons-pix2pix", ["pix2pix"], {"synthesis": ("pix2pix",)})
    with pytest.raises(WrongTask, match="finder is a segmentation model"):
        find_models(known, "axons", ["finder"])
    model, stranger = (caps_med.load_model(name, repository) for name in ("axons", "stranger"))
    with pytest.raises(
        InvalidInput, match="--segmenter stranger@1 knows the labels 0 background, 2 "
    ):
        evaluate_synthesis(open_dataset(phantoms), [model], segmenter=stranger)
    with pytest.raises(InvalidParameter, match="images=0: must be at least 1"):
        evaluate_synthesis(open_dataset(phantoms), [model], images=0)
