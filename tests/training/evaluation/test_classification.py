"""Evaluation of classification models: measures by hand, intervals, the command."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    balanced_accuracy_score,
    brier_score_loss,
    cohen_kappa_score,
    hamming_loss,
    roc_auc_score,
)
from typer.testing import CliRunner

import caps_med
from caps_med.errors import InvalidInput, InvalidParameter, WrongTask
from caps_med.inference import Model
from tests.classifiers import NETWORKS, classifier_card, write_classifiers
from tests.conftest import tiny_card, write_tiny
from tests.training.data.classified_files import Digits, class_folders, digits, findings_folders
from training.cli import evaluate as command
from training.data.cases import files_sha256
from training.data.classified import ClassifiedDataset, open_classified
from training.evaluation.classification.evaluate import evaluate_classification
from training.evaluation.classification.measures import (
    Answers,
    measured,
)
from training.evaluation.classification.ranking import ranked
from training.evaluation.classification.scores import scores_of
from training.evaluation.robustness.evaluate import evaluate_robustness
from training.evaluation.statistics import estimate, resamples
from training.reports.classification import classification_report, measures

#: Three images of class 0, two of class 1, one of class 2; two are wrong.
TARGETS = np.eye(3, dtype=np.uint8)[[0, 0, 0, 1, 1, 2]]
PROBABILITIES = np.array(
    [
        [0.8, 0.1, 0.1], [0.6, 0.3, 0.1], [0.2, 0.7, 0.1],
        [0.1, 0.9, 0.0], [0.3, 0.4, 0.3], [0.5, 0.1, 0.4],
    ]
)  # fmt: skip


@pytest.fixture(autouse=True)
def _few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.evaluation.statistics.MEASURED_RESAMPLES", 20)


def values(answers: Answers) -> dict[str, float]:
    return {
        name: float(found[0])
        for name, found in measured(answers, np.ones((1, len(answers.targets)))).items()
    }


class TestMeasures:
    def test_of_exclusive_classes(self) -> None:
        found = values(Answers(PROBABILITIES, TARGETS, exclusive=True))
        assert found["accuracy"] == pytest.approx(4 / 6)
        assert found["balanced_accuracy"] == pytest.approx((2 / 3 + 1 + 0) / 3)
        assert found["sensitivity/0"] == pytest.approx(2 / 3)
        assert found["specificity/0"] == pytest.approx(2 / 3)
        assert found["specificity/1"] == pytest.approx(3 / 4)
        assert found["auroc/2"] == 1
        assert found["auroc/0"] == pytest.approx(7 / 9)
        chance = (3 * 3 + 2 * 3 + 1 * 0) / 36
        assert found["kappa"] == pytest.approx((4 / 6 - chance) / (1 - chance))
        squares = [0.06, 0.26, 1.14, 0.02, 0.54, 0.62]
        assert found["brier_score"] == pytest.approx(sum(squares) / 6)

    @pytest.mark.parametrize("classes", [2, 4])
    def test_of_exclusive_classes_as_scikit_learn_has_them(self, classes: int) -> None:
        random = np.random.default_rng(classes)
        true = random.integers(0, classes, 60)
        probabilities = random.dirichlet(np.ones(classes), 60)
        probabilities[np.arange(60), true] += 0.5
        probabilities /= probabilities.sum(1, keepdims=True)
        answers = Answers(probabilities, np.eye(classes, dtype=np.uint8)[true], exclusive=True)
        said = probabilities.argmax(1)
        weights = resamples([""] * 60, 0, 10)
        found = measured(answers, weights)
        for row, weight in enumerate(weights):
            expected = {
                "kappa": cohen_kappa_score(true, said, sample_weight=weight),
                "balanced_accuracy": balanced_accuracy_score(true, said, sample_weight=weight),
                "brier_score": brier_score_loss(
                    true,
                    probabilities if classes > 2 else probabilities[:, 1],
                    sample_weight=weight,
                    labels=range(classes),
                ),
            }
            for name, value in expected.items():
                assert found[name][row] == pytest.approx(value), name

    def test_of_classes_that_go_together_as_scikit_learn_has_them(self) -> None:
        random = np.random.default_rng(0)
        targets = random.integers(0, 2, (50, 3), np.uint8)
        probabilities = np.clip(random.random((50, 3)) + 0.3 * targets - 0.15, 0, 1)
        found = values(Answers(probabilities, targets, exclusive=False))
        columns = list(zip(targets.T, probabilities.T, strict=True))
        kappas = [cohen_kappa_score(t, p >= 0.5) for t, p in columns]
        assert found["kappa"] == pytest.approx(np.mean(kappas))
        scores = [brier_score_loss(t, p) for t, p in columns]
        assert found["brier_score"] == pytest.approx(np.mean(scores))

    def test_of_one_class_alone_there_is_no_kappa(self) -> None:
        """By chance all would agree."""
        targets = np.eye(3, dtype=np.uint8)[[0, 0]]
        alone = Answers(PROBABILITIES[:2], targets, exclusive=True)
        assert np.isnan(values(alone)["kappa"])
        assert np.isnan(values(replace(alone, exclusive=False))["kappa"])
        wrong = Answers(PROBABILITIES[[2, 3]], targets, exclusive=True)
        assert values(wrong)["kappa"] == 0

    def test_the_confusion_matrix_has_classes_in_rows(self) -> None:
        matrix = Answers(PROBABILITIES, TARGETS, exclusive=True).confusion
        assert matrix.tolist() == [[2, 1, 0], [0, 2, 0], [1, 0, 0]]

    def test_of_classes_that_go_together(self) -> None:
        probabilities = np.array([[0.9, 0.2], [0.6, 0.6], [0.1, 0.8], [0.4, 0.3]])
        targets = np.array([[1, 0], [0, 1], [0, 1], [1, 0]], np.uint8)
        found = values(Answers(probabilities, targets, exclusive=False))
        assert found["accuracy"] == pytest.approx(6 / 8)
        assert (found["sensitivity/0"], found["specificity/0"]) == (0.5, 0.5)
        assert (found["sensitivity/1"], found["specificity/1"]) == (1, 1)
        assert found["balanced_accuracy"] == pytest.approx(0.75)

    def test_calibration_error_of_answers_that_say_too_much(self) -> None:
        """Half of a hundred answers at 0.9 are right."""
        probabilities = np.tile([0.9, 0.1], (100, 1))
        targets = np.eye(2, dtype=np.uint8)[np.arange(100) % 2]
        answers = Answers(probabilities, targets, exclusive=True)
        assert values(answers)["calibration_error"] == pytest.approx(0.4)
        confidence, right, count = answers.calibration()
        assert count.sum() == 100 and count[13] == 100
        assert (confidence[13], right[13]) == (pytest.approx(0.9), 0.5)

    def test_a_class_without_images_has_no_measures(self) -> None:
        targets = np.eye(3, dtype=np.uint8)[[0, 0, 0, 1, 1, 1]]
        found = values(Answers(PROBABILITIES, targets, exclusive=True))
        assert np.isnan(found["sensitivity/2"]) and np.isnan(found["auroc/2"])
        assert estimate(np.array([np.nan, np.nan])).value is None
        assert np.isfinite(found["balanced_accuracy"]) and np.isfinite(found["auroc"])

    @pytest.mark.parametrize("exclusive", [True, False])
    def test_scores_of_held_out_images_are_computed_alike(self, exclusive: bool) -> None:
        """Class 0 occurs in no image, class 2 in all where classes go together."""
        random = np.random.default_rng(0)
        targets = np.eye(4, dtype=np.uint8)[random.integers(1, 4, 40)]
        if not exclusive:
            targets[:, 2] = 1
        probabilities = random.random((40, 4)) * [0.4, 1, 1, 1]
        found = values(Answers(probabilities, targets, exclusive))
        held_out = scores_of(probabilities, targets, exclusive)
        assert held_out == pytest.approx({name: found[name] for name in held_out})

    def test_without_a_class_to_tell_from_others_held_out_scores_are_those_of_chance(self) -> None:
        targets = np.array([[0, 1], [0, 1]], np.uint8)
        found = scores_of(np.array([[0.1, 0.9], [0.2, 0.8]]), targets, exclusive=False)
        assert found == {"accuracy": 1, "balanced_accuracy": 0.5, "auroc": 0.5}

    def test_a_weight_counts_an_image_as_often(self) -> None:
        repeated = np.repeat(np.arange(6), [3, 1, 0, 2, 1, 1])
        weights = np.array([[3.0, 1, 0, 2, 1, 1]])
        found = measured(Answers(PROBABILITIES, TARGETS, exclusive=True), weights)
        again = measured(
            Answers(PROBABILITIES[repeated], TARGETS[repeated], exclusive=True), np.ones((1, 8))
        )
        for name, value in found.items():
            np.testing.assert_allclose(value, again[name], err_msg=name)


@pytest.mark.parametrize("decimals", [1, 15], ids=["many equal scores", "no equal scores"])
def test_ranked_measures_are_those_of_scikit_learn(decimals: int) -> None:
    """Of every resample; one of them has no image of the class, one no other."""
    generator = np.random.default_rng(0)
    true = generator.random(40) < 0.3
    scores = (generator.random(40) + 0.3 * true).round(decimals)
    weights = np.concatenate([resamples([""] * 40, 0, 30), [true, ~true]])
    found = np.stack(ranked(scores, true, weights))
    assert np.isnan(found[:, -2:]).all()
    for row, weight in enumerate(weights[:-2]):
        drawn = weight > 0
        truth = [
            measure(true[drawn], scores[drawn], sample_weight=weight[drawn])
            for measure in (roc_auc_score, average_precision_score)
        ]
        np.testing.assert_allclose(found[:, row], truth, atol=1e-12)


def test_a_large_table_is_ranked_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    scores, true = np.array([0.9, 0.8, 0.3, 0.1]), np.array([True, False, True, False])
    weights = resamples([""] * 4, 0, 20)
    whole = ranked(scores, true, weights)
    monkeypatch.setattr("training.evaluation.classification.ranking._BLOCK", 12)
    np.testing.assert_array_equal(ranked(scores, true, weights), whole)


def test_whole_patients_are_resampled() -> None:
    weights = resamples(["a", "a", "b", "b", "", ""], seed=0, count=50)
    assert (weights[0] == 1).all() and weights.shape == (51, 6)
    assert (weights[:, 0] == weights[:, 1]).all() and (weights[:, 2] == weights[:, 3]).all()
    assert (weights[:, 4] != weights[:, 5]).any()
    np.testing.assert_array_equal(weights, resamples(["a", "a", "b", "b", "", ""], 0, 50))


def test_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    covered = 0
    for seed in range(100):
        right = np.random.default_rng(seed).random(200) < 0.8
        weights = resamples([""] * 200, seed, 200)
        interval = estimate(weights @ right / weights.sum(1)).interval
        covered += interval is not None and interval[0] <= 0.8 <= interval[1]
    assert 88 <= covered <= 99


def test_measures_that_are_larger_in_resamples_lie_in_their_intervals() -> None:
    """Percentiles of resamples lay above the value, and held the truth in one of eight tests."""

    def drawn(generator: np.random.Generator, count: int) -> Answers:
        classes = generator.integers(0, 4, count)
        scores = generator.normal(size=(count, 4)) + 0.5 * np.eye(4)[classes]
        probabilities = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        return Answers(probabilities, np.eye(4, dtype=np.uint8)[classes], exclusive=True)

    truth = values(drawn(np.random.default_rng(1000), 20_000))
    covered = {"average_precision": 0, "calibration_error": 0, "auroc": 0}
    for seed in range(20):
        found = measured(drawn(np.random.default_rng(seed), 20), resamples([""] * 20, seed, 200))
        for name in covered:
            told = estimate(found[name])
            assert told.value is not None and told.interval is not None
            low, high = told.interval
            assert 0 <= low <= told.value <= high <= 1
            covered[name] += low <= truth[name] <= high
    assert covered["auroc"] >= 17 and covered["average_precision"] >= 13
    assert covered["calibration_error"] >= 8


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_classifiers(tmp_path_factory.mktemp("classifiers"))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return findings_folders(
        tmp_path_factory.mktemp("data"), digits(20, kinds=3), digits(40, kinds=3, start=20)
    )


def test_the_test_part_is_scored_as_the_model_answers(data: Path, repository: Path) -> None:
    model = caps_med.load_model("tiny-efficient", repository)
    found = evaluate_classification(open_classified(data), [model])
    assert found.summary.part == "test" and found.summary.cases == 40
    dataset = open_classified(data)
    for row, image in zip(found.rows, dataset.of("test"), strict=True):
        answer = model.classify(dataset.read(image))
        assert row.answer == answer.label
        assert row.probabilities == pytest.approx(answer.probabilities, abs=1e-5)
    right = np.mean([row.correct for row in found.rows])
    assert found.summary.scores[0].measures["accuracy"].value == pytest.approx(right)


def copied(model: Model, folder: Path) -> Model:
    """A model of another name with the same answers."""
    shutil.copytree(model.bundle.path.parent, folder / "copy")
    return caps_med.load_model("copy", folder)


def test_a_model_against_its_copy_shows_no_difference(
    data: Path, repository: Path, tmp_path: Path
) -> None:
    one, other = (caps_med.load_model(f"tiny-{n}", repository) for n in ("efficient", "cnn"))
    same = evaluate_classification(open_classified(data), [one, copied(one, tmp_path)]).summary
    assert all(c.difference.value == 0 for c in same.comparisons)
    assert {c.verdict for c in same.comparisons} == {"no difference shown"}
    both = evaluate_classification(open_classified(data), [one, other]).summary
    first, second = (scores.measures["auroc"].value for scores in both.scores)
    (difference,) = (c.difference for c in both.comparisons if c.metric == "auroc")
    assert first is not None and second is not None
    assert difference.value == pytest.approx(first - second, abs=1e-5)


def test_a_model_is_not_compared_with_itself(data: Path, repository: Path) -> None:
    models = [caps_med.load_model("tiny-cnn", repository) for _ in range(2)]
    with pytest.raises(InvalidParameter, match="tiny-cnn@1 is given twice; leave one out"):
        evaluate_classification(open_classified(data), models)


def test_scores_on_the_training_images_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whatever path; trained on ``--data data``, it may have been on such a folder elsewhere."""
    data = tmp_path / "data"
    findings_folders(data, digits(9, kinds=3), digits(24, kinds=3, start=9))
    shutil.rmtree(data / "test")
    card, home = classifier_card(NETWORKS["tiny-cnn"]), tmp_path / "models"
    files = files_sha256(open_classified(data).fingerprint())
    for name, path, known in (
        ("moved", "before", files), ("same", str(data), ""), ("relative", "data", "0" * 64),
        ("other", str(tmp_path / "else"), "0" * 64),
    ):  # fmt: skip
        update = {"recipe": {"data": path}, "files_sha256": known}
        seen = card.provenance.model_copy(update=update)
        write_tiny(home, name, card.model_copy(update={"provenance": seen}))
    monkeypatch.chdir(tmp_path)
    models = [caps_med.load_model(name, home) for name in ("moved", "same", "relative", "other")]
    notes = evaluate_classification(open_classified(Path("data")), models).summary.notes
    told = [note for note in notes if "was trained" in note]
    assert [note.split(":")[0] for note in told] == [
        "moved@1 was trained on these images",
        "same@1 was trained on these images",
        "relative@1 was trained with --data data, a relative path",
    ]


def of_patients(folder: Path, names: Sequence[str]) -> ClassifiedDataset:
    """24 test images, which go to the patients in turn."""
    findings_folders(folder, digits(9, kinds=3), digits(24, kinds=3, start=9))
    for number, file in enumerate(sorted((folder / "test").rglob("*.png"))):
        patient = file.parent / names[number % len(names)]
        patient.mkdir(exist_ok=True)
        file.rename(patient / file.name)
    return open_classified(folder)


def test_verdicts_count_patients(tmp_path: Path, repository: Path) -> None:
    models = [caps_med.load_model(f"tiny-{n}", repository) for n in ("efficient", "cnn")]
    few = of_patients(tmp_path / "few", ("anna", "berta", "cleo"))
    found = evaluate_classification(few, models).summary
    assert (found.cases, found.groups) == (24, 3)
    assert found.notes == (
        "24 images of 3 patients: intervals and verdicts are by patient",
        "only 3 patients: intervals mean little",
    )
    assert all(c.difference.interval is not None for c in found.comparisons)
    assert {c.verdict for c in found.comparisons} == {"too few cases"}
    lone = replace(few, images=tuple(replace(image, group="") for image in few.images))
    found = evaluate_classification(lone, [models[0], copied(models[0], tmp_path)]).summary
    assert found.groups == 24 and found.notes == ()
    assert {c.verdict for c in found.comparisons} == {"no difference shown"}


def test_of_one_patient_there_are_no_intervals(tmp_path: Path, repository: Path) -> None:
    models = [caps_med.load_model(f"tiny-{n}", repository) for n in ("efficient", "cnn")]
    found = evaluate_classification(of_patients(tmp_path, ["anna"]), models).summary
    assert "all images are of one patient: there are no intervals" in found.notes
    accuracy = found.scores[0].measures["accuracy"]
    assert accuracy.value is not None and accuracy.interval is None
    assert {c.verdict for c in found.comparisons} == {"too few cases"}


def test_classes_that_the_model_does_not_know_are_told(tmp_path: Path, repository: Path) -> None:
    found = Digits(digits(4, kinds=2).pictures, digits(4, kinds=2).classes)
    folder = class_folders(tmp_path, found, found)
    models = [caps_med.load_model("tiny-cnn", repository)]
    told = "the class '0' is not one of the model's: benign, mali"
    for measure in (evaluate_classification, evaluate_robustness):
        with pytest.raises(InvalidInput, match=told):
            measure(open_classified(folder), models)


@pytest.mark.parametrize("classes", [(), (1, 2)])
def test_images_of_several_classes_or_none_are_not_scored_as_of_one(
    classes: tuple[int, ...], data: Path, repository: Path
) -> None:
    """They counted as of the first class; scikit-learn refuses to mix the two kinds of answers."""
    dataset = open_classified(data)
    test = dataset.of("test")
    mixed = replace(dataset, images=(replace(test[0], classes=classes), *test[1:]))
    model = caps_med.load_model("tiny-cnn", repository)
    told = f"of {len(classes)} classes, but tiny-cnn@1 tells exactly one of each image"
    for measure in (evaluate_classification, evaluate_robustness):
        with pytest.raises(InvalidInput, match=told):
            measure(mixed, [model])
    answers = np.arange(len(test)) % 3
    with pytest.raises(ValueError, match="mix of multilabel-indicator"):
        accuracy_score(mixed.targets(mixed.images), answers)
    findings = caps_med.load_model("tiny-findings", repository)
    assert evaluate_classification(mixed, [findings]).summary.cases == len(test)


def test_accuracy_over_classes_is_called_that(data: Path, repository: Path) -> None:
    """It is far above the share of images with the right classes, as which scikit-learn has it."""
    findings = caps_med.load_model("tiny-findings", repository)
    found = evaluate_classification(open_classified(data), [findings])
    (answers,) = found.answers
    accuracy = found.summary.scores[0].measures["accuracy"].value
    assert accuracy == pytest.approx(1 - hamming_loss(answers.targets, answers.predicted), abs=1e-6)
    of_images = accuracy_score(answers.targets, answers.predicted)
    assert np.mean([row.correct for row in found.rows]) == of_images != accuracy
    told = {measure.name: measure.meaning for measure in measures(found.summary)}
    assert "over all images and classes" in told["accuracy"]
    assert "sensitivity and specificity" in told["balanced accuracy"]
    one = evaluate_classification(
        open_classified(data), [caps_med.load_model("tiny-cnn", repository)]
    )
    told = {measure.name: measure.meaning for measure in measures(one.summary)}
    assert told["accuracy"] == "share of images with the right answer"


def test_the_command_writes_cases_summary_and_report(
    data: Path, repository: Path, tmp_path: Path
) -> None:
    app = typer.Typer()
    command.register(app)
    out = tmp_path / "report"
    arguments = ["--model", "tiny-efficient", "--against", "tiny-cnn", "--data", str(data)]
    arguments += ["--models", str(repository), "--out", str(out)]
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "40 images" in result.output and "balanced accuracy" in result.output
    rows = list(csv.DictReader((out / "cases.csv").open()))
    assert len(rows) == 80 and {row["model"] for row in rows} == {"tiny-efficient@1", "tiny-cnn@1"}
    summary = json.loads((out / "summary.json").read_text())
    assert np.sum(summary["scores"][0]["confusion"]) == 40
    page = (out / "report.html").read_text()
    assert "Confusion matrix" in page and "Reliability" in page
    assert "malignant" in page and "paired" in page


def test_reconstructions_are_shown_beside_the_images(
    data: Path, repository: Path, tmp_path: Path
) -> None:
    matrix, cnn = (caps_med.load_model(f"tiny-{kind}", repository) for kind in ("matrix", "cnn"))
    found = evaluate_classification(open_classified(data), [matrix])
    drawn = found.reconstructions
    assert {one.classes for one in drawn} == {("benign",), ("malignant",), ("normal tissue",)}
    assert len(drawn) <= 24 and drawn[0].given.shape == drawn[0].drawn.shape == (1, 20, 28)
    name = next(image for image in open_classified(data).images if image.name == drawn[0].name)
    answer = matrix.classify(open_classified(data).read(name))
    assert answer.reconstruction is not None
    np.testing.assert_array_equal(drawn[0].drawn, answer.reconstruction.array)
    classification_report(tmp_path / "report.html", found)
    assert "Reconstructions</h2>" in (tmp_path / "report.html").read_text()
    assert not evaluate_classification(open_classified(data), [cnn]).reconstructions


def test_models_of_other_tasks_or_classes_are_not_compared(
    data: Path, repository: Path, tmp_path: Path
) -> None:
    write_tiny(repository, "stranger", tiny_card("segmentation"))
    other = classifier_card(NETWORKS["tiny-cnn"])
    write_tiny(repository, "renamed", other.model_copy(update={"labels": {0: "a", 1: "b", 2: "c"}}))
    app = typer.Typer()
    command.register(app)
    for against, error, message in (
        ("stranger", WrongTask, "compared with others of their task, classification"),
        ("renamed", InvalidInput, "compare models with the same labels"),
        ("tiny-findings", InvalidInput, "their scores differ in meaning: compare models of one"),
    ):
        arguments = ["--model", "tiny-cnn", "--against", against, "--data", str(data)]
        arguments += ["--models", str(repository), "--out", str(tmp_path / "r")]
        with pytest.raises(error, match=message):
            CliRunner().invoke(app, arguments, catch_exceptions=False)
