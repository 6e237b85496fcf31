"""Training of classification networks, from files to a model in the repository."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from rich.console import Console
from typer.testing import CliRunner

import caps_med
from caps_med.bundles import Bundle, NetworkSpec
from caps_med.bundles.metadata import ClassificationSpec
from caps_med.errors import InvalidInput, InvalidParameter
from caps_med.images import MedicalImage, write_image
from caps_med.inference import Model
from caps_med.networks import (
    CapsNet,
    ClassificationEnsemble,
    ConvNet,
    EfficientCapsNet,
    MatrixCapsules,
    ResNet,
    build_network,
)
from caps_med.preprocessing import PicturePreprocessing
from tests.classifiers import NETWORKS, classifier_card
from tests.conftest import write_tiny
from tests.images.dicom_files import dataset, encoded, placed
from tests.training.data.classified_files import Digits, class_folders, digits, idx
from training.cli.train import train as train_commands
from training.data.cases import files_sha256
from training.data.classified import ClassifiedSource, load_classified, open_classified
from training.data.classified.arrays import read_array
from training.engine.loop import LossNotFinite
from training.engine.run_folder import RunFolder
from training.evaluation.calibration import fit_temperature
from training.evaluation.classification.calibration import fitted
from training.evaluation.classification.scores import answers
from training.evaluation.models import unseen_by
from training.tasks.classification.augmentation import PictureAugmentation
from training.tasks.classification.objective import Objective
from training.tasks.classification.plan import plan_classification
from training.tasks.classification.recipe import ClassificationRecipe
from training.tasks.overrides import build_recipe
from training.tasks.pipeline import TrainRequest, prepare, train

TINY = {"epochs": 1, "steps": 2, "batch_size": 8, "seed": 1}


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the intervals in reports, which take longer than these trainings."""
    monkeypatch.setattr("training.evaluation.statistics.MEASURED_RESAMPLES", 20)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return idx(tmp_path_factory.mktemp("digits"), digits(300), digits(60, start=300))


def trained(
    data: Path,
    root: Path,
    resume: bool = False,
    folds: int = 0,
    **overrides: Any,  # noqa: ANN401
) -> Bundle:
    request = TrainRequest(
        "classification", open_classified(data), "digits", {**TINY, **overrides}, folds=folds,
        models=root / "models", runs=root / "runs", resume=resume,
    )  # fmt: skip
    bundle = train(request, Console(quiet=True))
    assert bundle is not None
    return bundle


def test_a_capsule_network_learns_digits(data: Path, tmp_path: Path) -> None:
    bundle = trained(data, tmp_path, epochs=3, steps=12, batch_size=32, learning_rate=5e-3)
    assert bundle.card.scores["held-out accuracy"] > 0.6
    spec = bundle.card.classification
    assert spec is not None and spec.pictures.size == (8, 8) and spec.exclusive
    assert spec.pictures.normalization.window == (0.0, 255.0)
    assert spec.reconstruction_error is not None and 0 < spec.reconstruction_error < 2
    assert list(bundle.card.labels.values()) == list("0123456789")
    model = caps_med.load_model("digits", tmp_path / "models")
    assert isinstance(model.network, EfficientCapsNet)
    shown = read_array(next(data.glob("t10k-images*")))
    told = [
        bool(model.classify(MedicalImage(pixels[None], format="png")).warnings)
        for pixels in (*shown, *np.random.default_rng(0).integers(0, 255, (9, 8, 8), np.uint8))
    ]
    assert told == [False] * len(shown) + [True] * 9
    report = (tmp_path / "runs" / "digits" / "report.html").read_text()
    assert "measured on the 30 images held out" in report
    assert "balanced accuracy" in report and "training loss" in report


@pytest.mark.parametrize(
    ("network", "built"),
    [("capsnet", CapsNet), ("matrix", MatrixCapsules), ("cnn", ConvNet), ("resnet", ResNet)],
)
def test_every_network_is_trained_and_published(
    data: Path, tmp_path: Path, network: str, built: type
) -> None:
    small = {"matrix": {"width": 8, "types": [2, 2, 2]}, "capsnet": {"width": 16}}
    arguments = small.get(network, {})
    bundle = trained(data, tmp_path, network=network, steps=1, batch_size=2, arguments=arguments)
    assert isinstance(bundle.load_network(), built)


def test_iterations_of_em_are_two_unless_told() -> None:
    def built(**values: Any) -> Mapping[str, Any]:  # noqa: ANN401
        given = {"data": "x", "seed": 0, "network": "matrix", **values}
        source = SimpleNamespace(classes=("a", "b"), exclusive=True)
        recipe = ClassificationRecipe.model_validate(given)
        return recipe.network_spec(source).arguments  # type: ignore[arg-type]  # all it asks for

    assert built()["iterations"] == 2
    assert built(iterations=3)["iterations"] == 3
    before = {"width": 64, "types": [8, 16, 16]}  # as the recipes of older runs store them
    assert "iterations" not in built(arguments=before)


def test_a_stopped_and_resumed_run_equals_an_uninterrupted_one(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dropout, batch normalization, every augmentation and a running mean of the weights."""
    overrides: dict[str, Any] = {
        "network": "cnn", "epochs": 3, "steps": 2, "weight_average": 0.9,
        "augmentation": {"rotation": 10, "zoom": 0.1, "flip": 0.5, "erase": 0.5, "noise": 0.1},
    }  # fmt: skip
    whole = trained(data, tmp_path / "a", **overrides)
    call, calls = PictureAugmentation.__call__, 0

    def stop(self: PictureAugmentation, *arguments: Any) -> torch.Tensor:  # noqa: ANN401
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return call(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(PictureAugmentation, "__call__", stop)
        with pytest.raises(KeyboardInterrupt):
            trained(data, tmp_path / "b", **overrides)
    again = trained(data, tmp_path / "b", resume=True, **overrides)
    assert again.metadata.weights.sha256 == whole.metadata.weights.sha256


def test_the_running_mean_of_the_weights_is_published(data: Path, tmp_path: Path) -> None:
    """Instead of the last weights, which are not far."""
    last = trained(data, tmp_path / "a", steps=3).load_network().state_dict()
    found = trained(data, tmp_path / "b", steps=3, weight_average=0.9).load_network().state_dict()
    assert not torch.equal(found["classcaps.weight"], last["classcaps.weight"])
    torch.testing.assert_close(
        found["classcaps.weight"], last["classcaps.weight"], atol=0.1, rtol=0
    )


def test_pictures_in_the_memory_of_a_device_train_the_same_network(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = trained(data, tmp_path / "a", augmentation={"flip": 0.5})
    monkeypatch.setattr("training.tasks.classification.batches._fits", lambda *_: True)
    resident = trained(data, tmp_path / "b", augmentation={"flip": 0.5})
    assert resident.metadata.weights.sha256 == read.metadata.weights.sha256


def test_a_loss_that_is_looked_at_later_still_names_the_images_of_its_step(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, where training looks at its losses every few steps."""
    call, steps = Objective.forward, list[torch.Tensor]()

    def broken(self: Objective, image: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        loss = call(self, image, target)
        steps.append(loss)
        return loss * float("nan") if len(steps) == 2 else loss

    monkeypatch.setattr(Objective, "forward", broken)
    monkeypatch.setattr("training.engine.loop.STEPS_PER_LOOK", {"cpu": 20})
    with pytest.raises(LossNotFinite, match=r"the loss is nan in a step on: (train-\d+, ){7}train"):
        trained(data, tmp_path, steps=4)
    assert len(steps) == 4
    assert not (tmp_path / "runs" / "digits" / "checkpoint.pt").exists()


@pytest.mark.parametrize("name", NETWORKS)
def test_a_training_that_starts_from_a_model_has_its_network(
    name: str, data: Path, tmp_path: Path
) -> None:
    """Also its size: the pictures of the data have 8 x 8 pixels."""
    card = classifier_card(NETWORKS[name])
    write_tiny(tmp_path / "models", "first", card)
    request = TrainRequest(
        "classification", open_classified(data), "later", {"seed": 0, "start_from": "first"},
        models=tmp_path / "models", runs=tmp_path / "runs",
    )  # fmt: skip
    prepared = prepare(request, Console(quiet=True))
    spec = prepared.recipe.network_spec(prepared.source)
    wanted = {"activation": "softmax", "decoder": True} | card.network.arguments
    assert spec.name == card.network.name
    assert spec.arguments == {k: wanted[k] for k in spec.arguments} | {"out_channels": 10}


def test_folds_become_one_model(data: Path, tmp_path: Path) -> None:
    bundle = trained(data, tmp_path, folds=2)
    assert bundle.card.network.name == "ClassificationEnsemble"
    network, image = bundle.load_network(), torch.rand(2, 1, 8, 8)
    assert isinstance(network, ClassificationEnsemble)
    members = torch.stack([member(image) for member in network.members])
    torch.testing.assert_close(network(image), members.mean(0))
    assert not torch.equal(members[0], members[1])
    model, images = Model(bundle), open_classified(data)
    assert bundle.card.provenance.files_sha256 == files_sha256(images.fingerprint())
    with (tmp_path / "runs" / "digits" / "cases.csv").open() as file:
        rows = {row["case"]: row for row in csv.DictReader(file)}
    assert rows.keys() == {image.name for image in images.of("train")}
    again = TrainRequest("classification", images, "digits", TINY, folds=2, resume=True,
                         models=tmp_path / "models", runs=tmp_path / "runs")  # fmt: skip
    folds = prepare(again, Console(quiet=True)).source.folds(2)
    unseen = unseen_by(model, [fold.held_out for fold in folds])
    assert {name: row["answer"] for name, row in rows.items()} == {
        image.name: unseen[image.name].classify(images.read(image)).label
        for image in images.of("train")
    }
    report = (tmp_path / "runs" / "digits" / "report.html").read_text()
    assert "each with the network that was trained without it" in report
    scores, classes, spec = [], [], bundle.card.classification
    for member, fold in zip(network.members, folds, strict=True):
        assert isinstance(member, EfficientCapsNet) and isinstance(fold, ClassifiedSource)
        scores.append(answers(member, fold.validation))
        classes.append(fold.validation.chosen_targets.argmax(1))
    assert spec is not None and sum(map(len, classes)) == 300
    assert spec.temperature == fit_temperature(np.concatenate(scores), np.concatenate(classes))
    assert spec.temperature != fit_temperature(scores[0], classes[0])


def test_a_training_does_not_start_from_another_network(data: Path, tmp_path: Path) -> None:
    """What the model's network has is nothing to complain about in the one that is asked for."""
    write_tiny(tmp_path / "models", "first", classifier_card(NETWORKS["tiny-matrix"]))
    for network, name in (("capsnet", "CapsNet"), ("cnn", "ConvNet")):
        request = TrainRequest(
            "classification", open_classified(data), network,
            {**TINY, "network": network, "start_from": "first"},
            models=tmp_path / "models", runs=tmp_path / "runs",
        )  # fmt: skip
        told = rf"a different one \(MatrixCapsules where {name} is trained\)"
        with pytest.raises(InvalidParameter, match=told):
            train(request, Console(quiet=True))


def test_a_training_does_not_start_from_an_ensemble(data: Path, tmp_path: Path) -> None:
    """It has no weights of one network."""
    card, tiny = classifier_card(NETWORKS["tiny-matrix"]), NETWORKS["tiny-matrix"].name
    members = {"network": tiny, "members": 2, "arguments": card.network.arguments}
    spec = NetworkSpec(name="ClassificationEnsemble", arguments=members)
    write_tiny(tmp_path / "models", "folds", card.model_copy(update={"network": spec}))
    request = TrainRequest(
        "classification", open_classified(data), "next", {**TINY, "start_from": "folds"},
        models=tmp_path / "models", runs=tmp_path / "runs",
    )  # fmt: skip
    with pytest.raises(InvalidParameter, match="start_from=folds: the model is an ensemble, and"):
        train(request, Console(quiet=True))


def test_folds_leave_no_share_to_choose(data: Path, tmp_path: Path) -> None:
    """It was ignored."""
    options = ("--data", str(data), "--name", "x", "--runs", str(tmp_path / "runs"))
    given = ["classification", *options, "--folds", "3", "--validation", "0.2"]
    answer = CliRunner().invoke(train_commands, given)
    assert "--validation and --folds exclude each other" in str(answer.exception)
    assert not (tmp_path / "runs").exists()


def test_a_validation_part_leaves_no_share_to_choose(tmp_path: Path) -> None:
    """It was ignored."""
    folder = class_folders(tmp_path / "data", digits(8, kinds=2), digits(4, kinds=2, start=8))
    (folder / "test").rename(folder / "val")
    options = ("--data", str(folder), "--name", "x", "--runs", str(tmp_path / "runs"))
    answer = CliRunner().invoke(train_commands, ["classification", *options, "--validation", "0.2"])
    assert f"--validation: {folder} has a validation part" in str(answer.exception)
    assert not (tmp_path / "runs").exists()


def test_a_report_on_few_images_says_that_they_are_few(tmp_path: Path) -> None:
    trained(class_folders(tmp_path / "data", digits(40, kinds=2), digits(4, kinds=2)), tmp_path)
    report = (tmp_path / "runs" / "digits" / "report.html").read_text()
    assert "measured on the 4 images held out" in report
    assert "only 4 images: intervals mean little" in report


def test_uneven_classes_are_weighted(tmp_path: Path) -> None:
    found = digits(300, kinds=2)
    kept = np.concatenate([np.flatnonzero(found.classes == 0), np.flatnonzero(found.classes)[:20]])
    few = Digits(found.pictures[kept], found.classes[kept])
    folder = class_folders(tmp_path / "data", few, digits(4, kinds=2, start=300))
    recipe = trained(folder, tmp_path).card.provenance.recipe
    assert recipe["score"] == "balanced_accuracy"
    rare, common = recipe["class_weights"][1], recipe["class_weights"][0]
    assert rare / common == pytest.approx((sum(few.classes == 0) / 20) ** 0.5, rel=1e-4)


@pytest.mark.parametrize(("suffix", "depth"), [(".dcm", 1), (".nii.gz", 1), (".nii.gz", 5)])
def test_pictures_of_slices_have_the_proportions_of_the_slices(
    tmp_path: Path, suffix: str, depth: int
) -> None:
    rng = np.random.default_rng(0)
    for name in ("a/1", "a/2", "b/1", "b/2"):
        rows = rng.integers(0, 900, (30, 42)).astype(np.int16)
        path = tmp_path / f"{name}{suffix}"
        path.parent.mkdir(exist_ok=True)
        if suffix == ".dcm":
            path.write_bytes(encoded(dataset(rows, **placed(0.0))))
        else:
            voxels = np.stack([rows.T] * depth, -1)[None]
            write_image(MedicalImage(voxels, np.diag([-0.75, -0.5, 2.5, 1.0])), path)
    opened = open_classified(tmp_path)
    planned = plan_classification(opened, torch.device("cpu"))
    assert opened.card is not None
    assert opened.card.sizes.median == ((30, 42) if depth == 1 else (depth, 30, 42))
    assert planned["preparation"].size == (30, 42)


def test_images_of_several_classes(tmp_path: Path) -> None:
    found = digits(60)
    labels = np.stack([found.classes % 2, found.classes > 4], 1).astype(np.uint8)
    np.savez(tmp_path / "x.npz", train_images=found.pictures, train_labels=labels)
    for network in ("efficient", "cnn"):
        bundle = trained(tmp_path / "x.npz", tmp_path / network, network=network)
        spec = bundle.card.classification
        assert spec is not None and not spec.exclusive
        assert bundle.card.provenance.recipe["score"] == "auroc"
    for network, loss in (("matrix", "spread"), ("efficient", "cross_entropy")):
        message = f"loss={loss}: images of several classes need the margin loss: .*--loss margin"
        with pytest.raises(InvalidParameter, match=message):
            trained(tmp_path / "x.npz", tmp_path / network / loss, network=network, loss=loss)


@pytest.mark.parametrize("network", ["efficient", "cnn"])
def test_weights_of_other_classes_are_refused(data: Path, tmp_path: Path, network: str) -> None:
    """As of a recipe file from a run on other data."""
    with pytest.raises(InvalidParameter, match="class_weights: 2 for 10 classes; give one each"):
        trained(data, tmp_path, network=network, class_weights=[1, 2])


def test_data_of_one_class_are_refused(tmp_path: Path) -> None:
    found = digits(20, kinds=1)
    folder = class_folders(tmp_path / "my data", found, found)
    (folder / "train" / "1").mkdir()
    with pytest.raises(InvalidInput, match=r"the data have errors.* data check '.*/my data'"):
        trained(folder, tmp_path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"network": "cnn", "loss": "margin"}, "loss margin: cnn is trained with cross_entropy"),
        ({"network": "cnn", "reconstruction_weight": 1}, "cnn has no capsules"),
        ({"network": "efficient", "iterations": 3}, "efficient does not route in iterations"),
        ({"network": "vgg"}, "network: Input should be 'efficient'"),
    ],
)
def test_an_impossible_recipe_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        build_recipe(ClassificationRecipe, [{"data": "x", "seed": 0}, values])


class TestAugmentation:
    pictures = torch.from_numpy(digits(64).pictures)[:, None]

    def augmented(self, seed: int = 0, **values: Any) -> torch.Tensor:  # noqa: ANN401
        augmentation = PictureAugmentation(**{"shift": 0, **values})
        found = augmentation(self.pictures, np.random.default_rng(seed))
        assert found.shape == self.pictures.shape and found.dtype == torch.float32
        assert found.min() >= 0 and found.max() <= 1
        return found

    def test_without_any_the_pictures_stay(self) -> None:
        assert torch.equal(self.augmented(), self.pictures.float() / 255)

    def test_each_picture_is_shifted_by_whole_pixels_and_zeros_come_in(self) -> None:
        padded = torch.nn.functional.pad(self.pictures, (2,) * 4).float() / 255
        offsets = set()
        for number, picture in enumerate(self.augmented(shift=2)):
            places = [
                (y, x)
                for y in range(5)
                for x in range(5)
                if torch.equal(picture, padded[number, :, y : y + 8, x : x + 8])
            ]
            assert places, "no shift of the picture"
            offsets.update(places)
        assert len(offsets) > 15

    def test_colours_stay_together(self) -> None:
        coloured = self.pictures.repeat(1, 3, 1, 1)
        found = PictureAugmentation(shift=2, flip=0.5)(coloured, np.random.default_rng(0))
        assert torch.equal(found[:, 0], found[:, 2])

    def test_about_half_are_mirrored(self) -> None:
        found, plain = self.augmented(flip=0.5), self.pictures.float() / 255
        mirrored = sum(bool(torch.equal(a, b.flip(-1))) for a, b in zip(found, plain, strict=True))
        assert 20 < mirrored < 44

    def test_a_quarter_turn_is_a_quarter_turn(self) -> None:
        """Of a picture that is not square, too."""
        wide = torch.zeros(1, 1, 9, 15, dtype=torch.uint8)
        wide[0, 0, 4, 4:11] = 255

        class QuarterTurn(np.random.Generator):
            def uniform(self, low: float, high: float, size: int) -> NDArray[np.float64]:  # type: ignore[override]
                return np.full(size, high)

        drawn = QuarterTurn(np.random.PCG64(0))
        turned = PictureAugmentation(shift=0, rotation=90)(wide, drawn)
        expected = torch.zeros(9, 15)
        expected[1:8, 7] = 1
        torch.testing.assert_close(turned[0, 0], expected, rtol=0, atol=1e-5)

    def test_no_more_is_erased_than_asked_for(self) -> None:
        white = torch.full((16, 1, 100, 100), 255, dtype=torch.uint8)
        augmentation = PictureAugmentation(shift=0, erase=1.0, erased=0.005)
        changed = augmentation(white, np.random.default_rng(0))
        assert 0.002 < float((changed == 0).float().mean((1, 2, 3)).max()) < 0.006

    def test_rectangles_are_erased(self) -> None:
        full = torch.full((200, 1, 20, 20), 255, dtype=torch.uint8)
        augmentation = PictureAugmentation(shift=0, erase=1.0, erased=0.2)
        found = augmentation(full, np.random.default_rng(0))
        gone = (found == 0).float().mean((1, 2, 3))
        assert gone.min() > 0 and gone.max() < 0.35 and gone.std() > 0.03

    def test_the_generator_decides(self) -> None:
        values = {"shift": 2, "rotation": 20, "zoom": 0.2, "flip": 0.5, "erase": 0.5, "noise": 0.1}
        first, again, other = (self.augmented(seed, **values) for seed in (0, 0, 1))
        assert torch.equal(first, again) and not torch.equal(first, other)


class TestObjective:
    def test_reconstruction_is_of_the_true_class(self) -> None:
        torch.manual_seed(0)
        network = EfficientCapsNet(1, 3, (8, 8)).eval()
        image, target = torch.rand(4, 1, 8, 8), torch.eye(3)[[0, 1, 2, 0]]
        _, capsules = network.classify(image)
        wanted = (
            Objective(network, "margin")(image, target)
            + 0.392 * (network.reconstruct(capsules, target) - image).square().mean()
        )
        found = Objective(network, "margin", 0.392)(image, target)
        torch.testing.assert_close(found, wanted)

    def test_lower_precision_gives_nearly_the_same_loss_and_finite_gradients(self) -> None:
        torch.manual_seed(0)
        network = EfficientCapsNet(1, 3, (28, 28)).train()
        image, target = torch.rand(8, 1, 28, 28), torch.eye(3)[[0, 1, 2, 0] * 2]
        whole = Objective(network, "margin", 0.392)(image, target)
        found = Objective(network, "margin", 0.392, precision="bfloat16")(image, target)
        assert found.dtype == torch.float32 and not torch.equal(found, whole)
        torch.testing.assert_close(found, whole, rtol=0.05, atol=0.02)
        found.backward()
        assert all(torch.isfinite(p.grad).all() for p in network.parameters() if p.grad is not None)

    def test_cross_entropy_of_capsules_takes_shares_of_the_scores(self) -> None:
        torch.manual_seed(0)
        network = EfficientCapsNet(1, 3, (8, 8)).eval()
        image, target = torch.rand(4, 1, 8, 8), torch.eye(3)[[0, 1, 2, 0]]
        scores = network(image)
        shares = scores / scores.sum(1, keepdim=True)
        found = Objective(network, "cross_entropy")(image, target)
        torch.testing.assert_close(found, -(shares * target).sum(1).log().mean())
        weighted = Objective(network, "cross_entropy", class_weights=(3, 1, 1))(image, target)
        weights = torch.tensor([3.0, 1, 1, 3])
        by_hand = -((shares * target).sum(1).log() * weights).sum() / weights.sum()
        torch.testing.assert_close(weighted, by_hand)

    def test_the_margin_of_the_spread_loss_rises(self) -> None:
        torch.manual_seed(0)
        objective = Objective(MatrixCapsules(1, 3, (8, 8), width=4, types=(2, 2, 2)), "spread")
        image, target = torch.rand(2, 1, 8, 8), torch.eye(3)[:2]
        losses = []
        for objective.progress in (0, 0.5, 1):
            losses.append(objective(image, target).item())
        assert losses == sorted(losses) and losses[0] < losses[-1]

    def test_the_margin_rises_as_in_the_published_code(self) -> None:
        network = MatrixCapsules(1, 3, (8, 8), width=4, types=(2, 2, 2))
        rising = Objective(network, "spread", margin="sigmoid").spread_margin
        assert [round(rising(done), 3) for done in (0, 0.5, 1)] == [0.214, 0.595, 0.976]


def test_the_temperature_of_overconfident_scores_is_found() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(4000, 5, generator=generator).double()
    drawn = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    spec = ClassificationSpec(pictures=PicturePreprocessing())
    scores, targets = (3 * logits).softmax(1).numpy(), np.eye(5, dtype=np.uint8)[drawn.numpy()]
    assert fitted(spec, scores, targets).temperature == pytest.approx(3, rel=0.05)
    several = spec.model_copy(update={"exclusive": False})
    assert fitted(several, scores, targets) == several


@pytest.mark.parametrize("fast", [True, False])
def test_the_precision_follows_from_processor_and_network(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fast: bool
) -> None:
    monkeypatch.setattr("training.engine.precision.has_bfloat16", lambda _: fast)
    dataset = open_classified(data)
    source = load_classified(dataset, tmp_path, PicturePreprocessing(size=(8, 8)), 0.1, 0)

    def chosen(**values: str) -> str | None:
        recipe = build_recipe(ClassificationRecipe, [{"data": "x", "seed": 0, **values}])
        assert isinstance(recipe, ClassificationRecipe)
        return recipe.completed(source).precision

    assert chosen() == ("bfloat16" if fast else "float32")
    assert chosen(network="matrix") == chosen(precision="float32") == "float32"


def test_an_older_run_goes_on_with_the_patients_that_it_held_out(tmp_path: Path) -> None:
    """Before recipes had `keep_classes`, the first share was held out."""
    rows = ["image,class,patient"]
    for number, pixels in enumerate(digits(12).pictures):
        MedicalImage(pixels[None]).save(tmp_path / f"{number}.png")
        patient = number // 3
        rows.append(f"{number}.png,{'rare' if patient == 3 else 'common'},{patient}")
    (tmp_path / "list.csv").write_text("\n".join(rows))

    def request(resume: bool) -> TrainRequest:
        return TrainRequest(
            "classification", open_classified(tmp_path / "list.csv"), "list",
            {"validation": 0.25, "seed": 0}, models=tmp_path / "models", runs=tmp_path / "runs",
            resume=resume,
        )  # fmt: skip

    new, folder = prepare(request(False), Console(quiet=True)), request(False).folder
    rare = {f"{number}.png" for number in (9, 10, 11)}
    assert new.source.held_out.isdisjoint(rare)
    before = new.recipe.model_dump(mode="json")
    del before["keep_classes"]
    folder.recipe.write_text(json.dumps(before))
    folder.checkpoint.touch()
    folder.split.unlink()  # older runs have none
    assert prepare(request(True), Console(quiet=True)).source.held_out == rare
    folder.write(new.recipe)
    assert prepare(request(True), Console(quiet=True)).source.held_out == new.source.held_out


@pytest.mark.parametrize("grouped", [True, False])
def test_a_run_goes_on_with_what_it_held_out_however_that_was_chosen(
    tmp_path: Path, grouped: bool
) -> None:
    """As of an older version, which chose the share of patients in another way."""
    rows = ["image,class,patient"]
    for number, pixels in enumerate(digits(12).pictures):
        MedicalImage(pixels[None]).save(tmp_path / f"{number}.png")
        rows.append(f"{number}.png,{'ab'[number % 2]},{number // 2 if grouped else ''}")
    (tmp_path / "list.csv").write_text("\n".join(rows))

    def source(resume: bool) -> ClassifiedSource:
        asked = TrainRequest(
            "classification", open_classified(tmp_path / "list.csv"), "list",
            {"validation": 0.4, "seed": 0}, models=tmp_path / "models", runs=tmp_path / "runs",
            resume=resume,
        )  # fmt: skip
        prepared = prepare(asked, Console(quiet=True))
        if not resume:
            asked.folder.write(prepared.recipe)
            asked.folder.checkpoint.touch()
        assert isinstance(prepared.source, ClassifiedSource)
        return prepared.source

    def kept(held_out: Sequence[int]) -> None:
        names = [f"{number}.png" for number in held_out]
        RunFolder(tmp_path / "runs" / "list").keep_split(names, 12 - len(names), len(names))

    source(resume=False)
    kept([0, 1, 2, 3])
    assert source(resume=True).held_out == {f"{number}.png" for number in range(4)}
    for other in ([0, 1, 2, 3, 12], [0, 2, 4, 5] if grouped else [12]):
        kept(other)
        with pytest.raises(InvalidParameter, match="the data have changed since the run began"):
            source(resume=True)


def test_the_steps_of_an_epoch_go_once_through_the_images(data: Path, tmp_path: Path) -> None:
    bundle = trained(data, tmp_path, steps=0, batch_size=16)
    assert bundle.card.provenance.recipe["steps"] == 270 // 16
    scores = (tmp_path / "runs" / "digits" / "scores.jsonl").read_text().splitlines()
    assert json.loads(scores[0])["epoch"] == 1


def test_the_command_trains_and_publishes(data: Path, tmp_path: Path) -> None:
    options = [
        "--data", data, "--name", "digits", "--models", tmp_path / "models",
        "--runs", tmp_path / "runs", "--epochs", 1, "--steps", 1, "--batch-size", 8,
    ]  # fmt: skip
    done = CliRunner().invoke(train_commands, ["classification", *map(str, options)])
    assert done.exit_code == 0, done.output
    assert caps_med.load_model("digits", tmp_path / "models").task == "classification"


@pytest.mark.parametrize(
    ("epochs", "batch_size", "steps"),
    [(1, 128, 15), (20, 128, 15), (40, 128, 8), (400, 64, 3), (20, 8, 30)],
)
def test_few_images_are_gone_through_several_times_an_epoch(
    data: Path, tmp_path: Path, epochs: int, batch_size: int, steps: int
) -> None:
    source = load_classified(
        open_classified(data), tmp_path, PicturePreprocessing(size=(8, 8)), 0.2, 0
    )
    given = {"data": "x", "seed": 0, "epochs": epochs, "batch_size": batch_size}
    recipe = ClassificationRecipe.model_validate(given)
    assert len(source.training) == 240
    assert recipe.completed(source).steps == steps
    assert recipe.model_copy(update={"steps": 2}).completed(source).steps == 2


def test_a_card_asks_once_about_each_picture_held_out(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preparation = PicturePreprocessing(size=(8, 8))
    source = load_classified(open_classified(data), tmp_path, preparation, 0.2, 0)
    given = {"data": "x", "seed": 0, "preparation": preparation}
    recipe = ClassificationRecipe.model_validate(given)
    spec = recipe.network_spec(source)
    network = build_network(spec.name, spec.arguments)
    assert isinstance(network, EfficientCapsNet)
    asked: list[int] = []
    classify = network.classify_together

    def counted(image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        asked.append(len(image))
        return classify(image)

    monkeypatch.setattr(network, "classify_together", counted)
    found = recipe.calibration([(network, source)])["classification"]
    assert found.reconstruction_error is not None and found.temperature is not None
    assert sum(asked) == len(source.validation)
