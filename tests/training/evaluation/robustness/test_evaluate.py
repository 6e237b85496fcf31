"""``caps-med evaluate --robust`` on tiny models."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import caps_med
from caps_med.errors import InvalidParameter
from tests.classifiers import write_classifiers
from tests.conftest import tiny_card, write_tiny
from tests.training.data.classified_files import digits, findings_folders
from tests.training.evaluation.command import run
from training.data.classified import ClassifiedDataset, open_classified
from training.evaluation.robustness import attacks, evaluate
from training.evaluation.robustness.attacks import Attack
from training.evaluation.robustness.evaluate import ATTACKS, evaluate_robustness
from training.evaluation.robustness.families import FAMILIES
from training.evaluation.robustness.summary import ModelRobustness
from training.evaluation.statistics import Estimate


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two families at all strengths, two sizes of attacks, few steps."""
    monkeypatch.setattr("training.evaluation.statistics.MEASURED_RESAMPLES", 20)
    few = {name: FAMILIES[name] for name in ("shear", "crowding")}
    monkeypatch.setattr(evaluate, "FAMILIES", few)
    monkeypatch.setattr(evaluate, "EPSILONS", (0.1, 0.4))
    pgd = Attack(steps=2, step=0.5, restarts=2)
    monkeypatch.setattr(attacks, "PGD", pgd)
    kept = {name: ATTACKS[name] for name in ("FGSM", "targeted FGSM")}
    monkeypatch.setattr(evaluate, "ATTACKS", {**kept, "PGD": pgd})


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_classifiers(tmp_path_factory.mktemp("classifiers"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return findings_folders(
        tmp_path_factory.mktemp("data"), digits(6, kinds=3), digits(12, kinds=3, start=20)
    )


def dataset(data: Path) -> ClassifiedDataset:
    return open_classified(data)


def value(estimate: Estimate) -> float:
    assert estimate.value is not None
    return estimate.value


def rates(scores: ModelRobustness) -> dict[tuple[str, str], list[float | None]]:
    return {(a.name, a.source): [r.value for r in a.rates] for a in scores.attacks}


def test_two_models_face_the_same_changes(data: Path, repository: Path) -> None:
    names = ("tiny-efficient", "tiny-cnn", "tiny-efficient")
    models = [caps_med.load_model(name, repository) for name in names]
    found = evaluate_robustness(dataset(data), models, images=9, seed=1)
    first, cnn, again = found.scores
    assert found.cases == 9 and found.models == ("tiny-efficient@1", "tiny-cnn@1", found.models[0])
    assert first.curves == again.curves, "the same model, so the same answers to the same changes"
    assert [len(c.accuracy) for c in first.curves] == [4, 4]
    for curve in first.curves:
        assert value(curve.mean) == pytest.approx(
            np.mean([value(e) for e in curve.accuracy]), abs=1e-5
        )
    own = {name for name, source in rates(first) if not source}
    assert own == {"FGSM", "targeted FGSM", "PGD", "PGD on votes"}
    assert {name for name, source in rates(cnn) if not source} == own - {"PGD on votes"}
    black_box = [source for name, source in rates(first) if source]
    assert black_box == ["tiny-cnn@1", "tiny-efficient@1"]
    assert rates(first)["PGD", "tiny-efficient@1"] == rates(again)["PGD", ""], "its own attack"
    for comparison in found.comparisons:
        if comparison.against == "tiny-efficient@1" and "from" not in comparison.metric:
            assert comparison.difference.value in (0, None)


def test_verdicts_count_patients(data: Path, repository: Path) -> None:
    names = ("tiny-efficient", "tiny-cnn")
    models = [caps_med.load_model(name, repository) for name in names]
    found = dataset(data)
    images = [replace(image, group=f"{k % 2}") for k, image in enumerate(found.of("test") * 2)]
    summary = evaluate_robustness(replace(found, images=tuple(images)), models)
    assert summary.cases == 24 and "only 2 patients: intervals mean little" in summary.notes
    assert {c.verdict for c in summary.comparisons} == {"too few cases"}


def test_attacks_are_tried_on_right_answers_alone(data: Path, repository: Path) -> None:
    model = caps_med.load_model("tiny-cnn", repository)
    found = evaluate_robustness(dataset(data), [model])
    (scores,) = found.scores
    right = round(value(scores.accuracy) * found.cases)
    assert 0 < right < found.cases == 12
    assert {a.images for a in scores.attacks} == {right}
    for attack in scores.attacks:
        if attack.name == "PGD":
            low, high = (value(rate) for rate in attack.rates)
            assert low <= high, "the larger ball includes the smaller"
    assert scores.zero_gradients is not None and 0 <= scores.zero_gradients < 1


def test_a_model_of_colour_pictures_is_no_black_box_for_grey_ones(
    data: Path, repository: Path
) -> None:
    names = ("tiny-cnn", "tiny-colours")
    models = [caps_med.load_model(name, repository) for name in names]
    found = evaluate_robustness(dataset(data), models, images=5)
    assert not any(source for scores in found.scores for _, source in rates(scores))
    assert found.notes == (
        "only 5 images: intervals mean little",
        "tiny-colours@1 takes pictures of another shape: it is no black box for others",
    )


def test_the_command_adds_curves_to_the_report(
    data: Path, repository: Path, tmp_path: Path
) -> None:
    out = tmp_path / "report"
    arguments = ["--data", data, "--models", repository, "--out", out, "--robust"]
    arguments += ["--robust-images", 6, "--model", "tiny-capsnet", "--against", "tiny-cnn"]
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    assert "6 images changed" in result.output and "PGD from tiny-cnn@1" in result.output
    summary = json.loads((out / "robustness.json").read_text())
    assert [s["model"] for s in summary["scores"]] == ["tiny-capsnet@1", "tiny-cnn@1"]
    page = (out / "report.html").read_text()
    assert "Accuracy on changed images" in page and "Confusion matrix" in page
    assert "crowding: mean accuracy" in page and "zero gradients" in page
    assert json.loads(run(*arguments, "--json").output)["robustness"] == summary


def test_what_cannot_be_done_is_told(data: Path, repository: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="tiny-findings@1 may find several classes in an im"):
        evaluate_robustness(dataset(data), [caps_med.load_model("tiny-findings", repository)])
    write_tiny(repository, "segmenter", tiny_card("segmentation"))
    result = run("--model", "segmenter", "--models", repository, "--data", data,
                 "--out", tmp_path, "--robust")  # fmt: skip
    assert isinstance(result.exception, InvalidParameter)
    told = "--robust: segmenter@1 is a segmentation model, which does not take it"
    assert told in str(result.exception)
