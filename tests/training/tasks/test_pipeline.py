"""From a folder to a served model: what follows from the data, and what the user may wish."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nibabel
import numpy as np
import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

import caps_med
from caps_med.bundles import NetworkSpec
from caps_med.errors import InvalidInput, InvalidParameter
from caps_med.images import MedicalImage, Normalization, Plane, read_image
from tests.conftest import tiny_card, write_tiny
from tests.training.data.pairs import LAYOUTS, Pairs, draw_pairs
from training.cli.options import command_line
from training.cli.train import train as train_app
from training.data import Preparation, Source, open_dataset
from training.data.interpretation import Interpretation
from training.engine import collapse
from training.engine.recipe import check_taken
from training.evaluation.metrics.overlap import score_case
from training.evaluation.models import has_learned_from, members_of
from training.randomization.data import open_label_maps
from training.tasks import planning
from training.tasks.overrides import build_recipe, read_overrides
from training.tasks.pipeline import TrainRequest, prepare, train
from training.tasks.planning import plan, plan_for, plan_synthesis, plan_synthesis_for
from training.tasks.segmentation import SegmentationRecipe
from training.tasks.segmentation_networks import CHOICES, NetworkName
from training.tasks.synthesis.recipe import SynthesisRecipe

#: So little training that a test takes a second.
TINY = {"epochs": 1, "steps": 2, "batch_size": 2, "crop": 64, "atoms": 4, "seed": 1}
CPU = torch.device("cpu")
#: What a network is built for.
MOCK_SOURCE: Any = SimpleNamespace(spatial_dims=2, image_channels=1, class_channels=3)


def request(data: Path, tmp_path: Path, **changes: Any) -> TrainRequest:  # noqa: ANN401
    given = {**TINY, **changes.pop("overrides", {})}
    changes = {"models": tmp_path / "models", "runs": tmp_path / "runs", **changes}
    return TrainRequest("segmentation", open_dataset(data), "model", given, **changes)


@pytest.fixture(scope="module")
def pairs() -> Pairs:
    return draw_pairs(10)


@pytest.fixture(scope="module")
def expected(pairs: Pairs, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    root = tmp_path_factory.mktemp("expected")
    return scores(LAYOUTS["images and labels"], pairs, root)


def scores(layout: Callable[[Path, Pairs], Path], pairs: Pairs, root: Path) -> dict[str, object]:
    (root / "data").mkdir()
    data = layout(root / "data", pairs)
    bundle = train(request(data, root), Console(quiet=True))
    assert bundle is not None
    dice = next(iter(bundle.card.scores.values()))
    assert dice > 0.05, "a score of zero would equal any other"
    return {"dice": dice, "weights": bundle.metadata.weights.sha256}


@pytest.fixture
def _figures_undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matplotlib takes as long as a tiny training; `tests.training.reports` looks at figures."""

    def savefig(_: object, stream: io.StringIO, **__: object) -> None:
        stream.write("<svg></svg>")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", savefig)


@pytest.mark.usefixtures("_figures_undrawn")
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_every_layout_trains_to_the_same_score(
    layout: Callable[[Path, Pairs], Path],
    pairs: Pairs,
    expected: dict[str, object],
    tmp_path: Path,
) -> None:
    assert scores(layout, pairs, tmp_path) == expected


def test_runs_in_the_folder_of_the_data_are_none_of_them(
    pairs: Pairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of ``--data .``, which has a name. A second training took the arrays of the first for
    further cases, and its pictures for images without label maps.
    """
    LAYOUTS["one folder"](tmp_path, pairs)
    monkeypatch.chdir(tmp_path)
    here = {"models": Path("models"), "runs": Path("runs")}
    begun = prepare(request(Path(), tmp_path, **here), Console(quiet=True))
    assert list(tmp_path.glob("runs/model/data/*.npy"))
    dataset = open_dataset(Path())
    assert dataset.name == tmp_path.name and not dataset.unpaired
    assert len(dataset.cases) == len(pairs)
    begun.request.folder.write(begun.recipe)
    begun.request.folder.checkpoint.touch()
    prepare(request(Path(), tmp_path, **here, resume=True), Console(quiet=True))


def test_a_run_is_not_resumed_with_other_data(pairs: Pairs, tmp_path: Path) -> None:
    """Every fifth case is held out: with one more case, others are."""
    (tmp_path / "data").mkdir()
    data = LAYOUTS["images and labels"](tmp_path / "data", pairs)
    begun = prepare(request(data, tmp_path), Console(quiet=True))
    folder = begun.request.folder
    folder.write(begun.recipe)
    folder.checkpoint.touch()
    prepare(request(data, tmp_path, resume=True), Console(quiet=True))
    for part in ("images", "labels"):
        first = min((data / part).iterdir())
        shutil.copy(first, first.with_name(f"added{first.suffix}"))
    with pytest.raises(InvalidParameter, match="the data have changed since the run began"):
        prepare(request(data, tmp_path, resume=True), Console(quiet=True))
    folder.split.unlink()  # as of an older version
    folder.require_split({"another"}, 1, 1)


def write_volumes(
    root: Path, count: int, size: tuple[int, int, int] = (40, 36, 12), spacing: float = 1.0
) -> Path:
    """Volumes with a bright ball; the label is the ball."""
    rng = np.random.default_rng(4)
    grid = np.stack(np.meshgrid(*(np.arange(s) for s in size), indexing="ij"))
    for i in range(count):
        middle = np.array(size).reshape(3, 1, 1, 1) * rng.uniform(0.4, 0.6, (3, 1, 1, 1))
        ball = (((grid - middle) / np.array([1, 1, 0.5]).reshape(3, 1, 1, 1)) ** 2).sum(0) < 80
        image = (ball * 100 + rng.normal(50, 10, size)).astype(np.float32)
        affine = np.diag([-1.0, 1.0, spacing, 1.0])
        for kind, array in (("images", image), ("labels", ball.astype(np.uint8))):
            (root / kind).mkdir(parents=True, exist_ok=True)
            nibabel.save(nibabel.Nifti1Image(array, affine), root / kind / f"v{i}.nii.gz")
    return root


@pytest.mark.parametrize("dims", ["2d", "2.5d", "3d"])
def test_volumes_train_in_two_and_a_half_and_three_dimensions(dims: str, tmp_path: Path) -> None:
    data = write_volumes(tmp_path / "data", 3)
    given = {"crop": 32} if dims == "3d" else {}
    bundle = train(request(data, tmp_path, dims=dims, overrides=given), Console(quiet=True))
    assert bundle is not None
    card = bundle.card
    assert card.temperature is not None
    assert card.neighbours == (1 if dims == "2.5d" else 0)
    assert card.network.arguments["spatial_dims"] == (3 if dims == "3d" else 2)
    again = request(data, tmp_path, runs=tmp_path / "more", overrides={"start_from": "model@1"})
    recipe = prepare(again, Console(quiet=True)).recipe
    assert isinstance(recipe, SegmentationRecipe) and recipe.preparation is not None
    assert recipe.preparation.neighbours == card.neighbours
    assert recipe.preparation.spatial_dims == card.network.arguments["spatial_dims"]
    model = caps_med.load_model("model", tmp_path / "models")
    scan = read_image(data / "images" / "v0.nii.gz")
    answer = model.segment(scan)
    assert answer.spatial_shape == scan.spatial_shape
    np.testing.assert_array_equal(answer.affine, scan.affine)
    features = model.features(scan)
    assert next(iter(features.layers.values())).ndim == 4
    thin = MedicalImage(scan.array.repeat(2, axis=-1), scan.affine @ np.diag([1, 1, 0.5, 1]))
    assert card.resample_slices == (dims == "3d")
    found, seen = model.segment(thin), model.segmenter.prepare(thin).slices
    assert len(seen) == scan.spatial_shape[2] * (1 if dims == "3d" else 2)
    assert found.spatial_shape == thin.spatial_shape
    deepest = thin.spatial_shape[2] - 1
    assert model.features(thin, slice=deepest).layers.keys() == features.layers.keys()


def test_folds_answer_together_and_every_case_is_held_out_once(discs: Path, tmp_path: Path) -> None:
    bundle = train(request(discs, tmp_path, folds=3), Console(quiet=True))
    assert bundle is not None
    assert bundle.card.network.name == "Ensemble"
    assert bundle.card.temperature is None  # no case is new to all of them
    assert bundle.card.network.arguments["members"] == 3
    assert len(list((tmp_path / "runs" / "model").glob("fold-*/checkpoint.pt"))) == 3
    model = caps_med.load_model("model", tmp_path / "models")
    picture = discs / "images" / "case0.png"
    assert model.segment(picture).spatial_shape == (72, 80)
    assert "classes" in model.features(picture).layers
    report = (tmp_path / "runs" / "model" / "report.html").read_text()
    assert "model@1" in report
    assert "augmentation.noise" in report, "the recipe"
    assert "measured on 6 cases, each with the network that was trained without it" in report
    with (tmp_path / "runs" / "model" / "cases.csv").open() as file:
        dice = {row["case"]: float(row["dice"]) for row in csv.DictReader(file)}
    dataset, expected, members = open_dataset(discs), dict[str, float | None](), members_of(model)
    for number, case in enumerate(dataset.cases):
        image, truth = dataset.read(case)
        (found,) = score_case(members[number % 3].segment(image), truth, [1])
        expected[case.name] = found.dice
    assert dice == expected
    summary = json.loads((tmp_path / "runs" / "model" / "summary.json").read_text())
    assert summary["cases"] == 6 and "have seen it" in summary["notes"][0]
    again = train(request(discs, tmp_path, folds=3, resume=True), Console(quiet=True))
    assert again is not None
    assert again.card.scores == bundle.card.scores


def test_too_many_folds_are_refused_before_the_run_begins(discs: Path, tmp_path: Path) -> None:
    wanted = request(discs, tmp_path, folds=7)
    with pytest.raises(InvalidParameter, match="folds=7: 2 to 6 are possible"):
        prepare(wanted, Console(quiet=True))
    assert not wanted.folder.split.exists() and not wanted.folder.planned.exists()


def test_folds_that_start_again_answer_together_with_those_that_do_not(
    discs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A SegCaps starts again with normalized votes, which are weights that others do not have."""
    monkeypatch.setattr(collapse, "MIN_STEPS", 1)
    looked = iter([True, False, False, False])

    def collapsed(self: collapse.CollapseWatch, step: int, *_: object) -> bool:
        return step == self.deadline and next(looked)

    monkeypatch.setattr(collapse.CollapseWatch, "collapsed", collapsed)
    given = {"network": "segcaps", "variant": "r1", "steps": 5, "atoms": 2, "crop": 32}
    wanted = request(discs, tmp_path, folds=2, overrides=given)
    bundle = train(wanted, Console(quiet=True))
    assert bundle is not None
    assert bundle.card.network.arguments["own"] == [{"normalize": True}, {}]
    recipes = [wanted.folder.fold(k).read_recipe(SegmentationRecipe) for k in (1, 2)]
    assert [recipe.restarts for recipe in recipes] == [1, 0]
    model = caps_med.load_model("model", tmp_path / "models")
    picture = discs / "images" / "case0.png"
    assert model.segment(picture).spatial_shape == (72, 80)

    shutil.rmtree(wanted.folder.fold(2).path)  # as after a kill in the first fold
    again = train(replace(wanted, resume=True), Console(quiet=True))
    assert again is not None and again.reference == bundle.reference  # the same model again


def test_the_baseline_trains_and_serves_and_has_no_capsules(discs: Path, tmp_path: Path) -> None:
    given = {"network": "unet", "atoms": None, "features": [4, 4, 8, 8, 8, 4]}
    bundle = train(request(discs, tmp_path, overrides=given), Console(quiet=True))
    assert bundle is not None
    assert bundle.card.network.name == "UNet"
    model = caps_med.load_model("model", tmp_path / "models")
    picture = discs / "images" / "case0.png"
    assert model.segment(picture).spatial_shape == (72, 80)
    with pytest.raises(InvalidParameter, match="has no capsules"):
        model.features(picture)


def test_a_training_that_starts_from_a_model_has_its_network(discs: Path, tmp_path: Path) -> None:
    given = {"network": "segcaps", "variant": "r1", "atoms": 8}
    console = Console(quiet=True)
    assert train(request(discs, tmp_path, overrides=given), console) is not None
    later = request(discs, tmp_path, runs=tmp_path / "more", overrides={"start_from": "model@1"})
    del later.overrides["atoms"]  # type: ignore[attr-defined]
    bundle = train(later, console)
    assert bundle is not None
    assert bundle.card.network.arguments["variant"] == "r1"
    assert bundle.card.network.arguments["atoms"] == 8


@pytest.mark.parametrize(
    ("asked", "cut"),
    [
        ({}, ("coronal", 2)),
        ({"--dims": "2.5d"}, ("coronal", 2)),
        ({"--dims": "2d"}, ("axial", 0)),
        ({"preparation": {"plane": "sagittal", "neighbours": 1}}, ("sagittal", 1)),
    ],
)
def test_a_training_that_starts_from_a_model_cuts_volumes_as_it_does(
    asked: dict[str, Any], cut: tuple[str, int], tmp_path: Path
) -> None:
    spec = NetworkSpec(name="SegCaps", arguments={"atoms": 4, "in_channels": 5})
    card = tiny_card("segmentation", network=spec, labels={0: "background", 1: "ball"})
    card = card.model_copy(update={"plane": "coronal", "neighbours": 2})
    write_tiny(tmp_path / "models", "first", card)
    given = {"start_from": "first", **asked}
    dims = given.pop("--dims", None)
    data = write_volumes(tmp_path / "data", 3)
    wanted = request(data, tmp_path, overrides=given, dims=dims)
    found = prepare(wanted, Console(quiet=True)).recipe
    assert isinstance(found, SegmentationRecipe) and found.preparation is not None
    assert (found.preparation.plane, found.preparation.neighbours) == cut


@pytest.mark.parametrize("name", CHOICES)
def test_the_network_of_a_card_has_its_name_in_recipes(name: NetworkName) -> None:
    recipe = SegmentationRecipe(data="x", network=name, seed=0, learning_rate=1.0)
    assert SegmentationRecipe.values_of(recipe.network_spec(MOCK_SOURCE))["network"] == name


def test_training_on_broken_data_is_refused_with_all_that_is_wrong(
    discs: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    for kind in ("images", "labels"):
        (data / kind).mkdir(parents=True)
        for file in (discs / kind).iterdir():
            (data / kind / file.name).write_bytes(file.read_bytes())
    (data / "labels" / "case3.png").unlink()
    (data / "images" / "case1.png").write_bytes(b"no picture")
    console = Console(record=True, width=200, quiet=False, file=(tmp_path / "out").open("w"))
    with pytest.raises(InvalidInput, match=r"have errors, the first: error: \w+: .*case[13]"):
        train(request(data, tmp_path), console)
    told = console.export_text()
    assert "case3.png" in told
    assert "case1.png" in told


def test_the_recipe_is_kept_with_the_model_and_every_value_can_be_set(
    discs: Path, tmp_path: Path
) -> None:
    file = tmp_path / "recipe.yaml"
    file.write_text("steps: 1\nloss: margin\naugmentation: {rotation: 0.1, noise: 0.2}\n")
    arguments = ["segmentation", "--data", str(discs), "--name", "mine",
                 "--models", str(tmp_path / "models"), "--runs", str(tmp_path / "runs"),
                 "--recipe", str(file), "--epochs", "1", "--atoms", "4", "--batch-size", "2",
                 "--set", "augmentation.noise=0.3", "--set", "preparation.normalization.upper=90",
                 "--loss", "dice", "--licence", "CC-BY-4.0",
                 "--input-description", "discs on grey"]  # fmt: skip
    result = CliRunner().invoke(train_app, arguments)
    assert result.exit_code == 0, result.output
    card = caps_med.load_model("mine", tmp_path / "models").bundle.card
    assert (card.license, card.input_description) == ("CC-BY-4.0", "discs on grey")
    recipe = card.provenance.recipe
    assert (recipe["steps"], recipe["epochs"], recipe["loss"]) == (1, 1, "dice")
    assert recipe["augmentation"]["rotation"] == 0.1
    assert recipe["augmentation"]["noise"] == 0.3
    assert card.normalization == Normalization(upper=90)
    saved = json.loads((tmp_path / "runs" / "mine" / "recipe.json").read_text())
    assert saved["preparation"]["normalization"]["upper"] == 90


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": "many"}, "recipe: epochs: .*integer"),
        ({"dropout": 1}, "recipe: dropout: there is no such value; the values are data, epochs"),
        ({"augmentation": {"nois": 1}}, "recipe: augmentation.nois: there is .* are rotation, "),
        ({"augmentation": {"wiggle": 1}}, "recipe: augmentation.wiggle"),
        ({"crop": 50}, "recipe: crop: .*multiple of 8"),
        ({"network": "pix2pix"}, "recipe: network: .*segcaps"),
        ({"network": "unet", "crop": 40}, "unet needs a multiple of 16"),
        ({"augmentation": {"noise": -1}}, "recipe: augmentation.noise: .*greater than or equal"),
    ],
)
def test_a_wrong_value_is_named(values: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidParameter, match=message):
        build_recipe(SegmentationRecipe, [{"data": "x", "seed": 0}, values])


@pytest.mark.parametrize(
    ("task", "values", "message"),
    [
        ("segmentation", {"network": "unet", "atoms": 8}, "atoms=8: .* network=unet: .* segcaps"),
        ("segmentation", {"variant": "r1"}, "variant=r1: .* network=convcaps: .*one of segcaps, "),
        (
            "synthesis",
            {"network": "pix2pix", "noise_size": 8},
            "noise_size=8: .*network=pix2pix",
        ),
        ("synthesis", {"network": "spade", "noise_source": "input"}, "noise_source=input: .*spade"),
    ],
)
def test_values_that_the_network_does_not_take_are_refused(
    discs: Path, tmp_path: Path, task: str, values: dict[str, object], message: str
) -> None:
    asked = replace(request(discs, tmp_path), task=task, overrides={"seed": 0, **values})
    with pytest.raises(InvalidParameter, match=message):
        prepare(asked, Console(quiet=True))
    assert not asked.folder.path.exists()


def test_a_recipe_file_may_have_planned_values_that_the_network_does_not_take() -> None:
    values = {"data": "x", "seed": 0, "network": "spade", "atoms": 8}
    recipe = build_recipe(SynthesisRecipe, [values])
    check_taken(recipe, values, {"atoms": 8})
    with pytest.raises(InvalidParameter, match="atoms=8"):
        check_taken(recipe, values, {})


def test_overrides_are_read_from_file_and_settings(tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="--set epochs: must be NAME=VALUE"):
        read_overrides(None, ["epochs"])
    with pytest.raises(InvalidInput, match="No such file"):
        read_overrides(tmp_path / "none.yaml", [])
    (tmp_path / "list.yaml").write_text("- a\n")
    with pytest.raises(InvalidInput, match="must be a mapping of names to values"):
        read_overrides(tmp_path / "list.yaml", [])
    (tmp_path / "picture.yaml").write_bytes(b"\x89PNG\xff")
    with pytest.raises(InvalidInput, match="as YAML: it is not UTF-8 text"):
        read_overrides(tmp_path / "picture.yaml", [])
    for text, told in (("a: 1\nb: [", "line 2: expected the node"), ("\0", "special char")):
        (tmp_path / "broken.yaml").write_text(text)
        with pytest.raises(InvalidInput, match=rf"broken\.yaml: .* as YAML: {told}") as refused:
            read_overrides(tmp_path / "broken.yaml", [])
        assert "\n" not in str(refused.value)
    for text in ("[1", "2001-02-30", "[" * 5000, "9" * 5000):
        with pytest.raises(InvalidParameter, match="--set epochs: cannot be read as YAML: "):
            read_overrides(None, [f"epochs={text}"])
    for text, told in [
        ("&x {a: *x}", "an alias refers to what it is a part of"),
        ("&x [*x]", "an alias refers to what it is a part of"),
        ("{a: 1, b: 2, a: 3}", "line 1: a is given twice: leave one out"),
    ]:
        with pytest.raises(InvalidParameter, match=f"--set arguments: cannot.*{told}"):
            read_overrides(None, [f"arguments={text}"])
    (tmp_path / "twice.yaml").write_text("epochs: 3\nsteps: 2\nepochs: 4\n")
    with pytest.raises(InvalidInput, match=r"twice.yaml: cannot .* line 3: epochs is given twice"):
        read_overrides(tmp_path / "twice.yaml", [])
    text = "{a: &x {b: 1, c: 2}, d: *x, e: {<<: *x, b: 3}}"
    assert read_overrides(None, [f"f={text}"]) == {
        "f": {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 2}, "e": {"b": 3, "c": 2}}
    }
    assert read_overrides(None, ["a.b=1", "a.c=x"]) == {"a": {"b": 1, "c": "x"}}


def test_what_cannot_be_trained_is_refused_before_the_data_are_prepared(
    discs: Path, tmp_path: Path
) -> None:
    wanted = TrainRequest(
        "segmentation", open_dataset(discs), "mine", {}, models=tmp_path, runs=tmp_path / "runs"
    )
    for dims, message in (("3D", "must be one of 2d, 2.5d, 3d"), ("3d", "the data are pictures")):
        with pytest.raises(InvalidParameter, match=message):
            train(replace(wanted, dims=dims), Console(quiet=True))
    small = replace(wanted, task="synthesis", overrides={"crop": 48, "seed": 0})
    needed = "^recipe: crop 48: discriminator=convolutional needs at least 64$"
    with pytest.raises(InvalidParameter, match=needed):
        train(small, Console(quiet=True))
    (tmp_path / "file").touch()
    with pytest.raises(InvalidParameter, match=r"--models .*file"):
        train(replace(wanted, models=tmp_path / "file"), Console(quiet=True))
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("share", "planned"), [(2.0, (4, False)), (0.6, (4, True)), (0.3, (2, True)), (0.0, (1, True))]
)
def test_votes_are_recomputed_before_the_batch_is_smaller(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    share: float,
    planned: tuple[int, bool],
) -> None:
    """`share`: of the memory that four crops with all votes take."""
    card = open_dataset(write_volumes(tmp_path, 3)).card
    assert card is not None
    whole = 4 * 48**2 * planning.BYTES_A_POSITION[2] / planning.MEMORY_SHARE
    monkeypatch.setattr(planning, "_memory", lambda device: share * whole)
    found = plan(card, CPU)
    assert (found["batch_size"], found["recompute_votes"]) == planned


def test_what_follows_from_volumes(tmp_path: Path) -> None:
    card = open_dataset(write_volumes(tmp_path / "thin", 3)).card
    assert card is not None
    planned = plan(card, CPU)
    assert planned["preparation"].neighbours == 1
    assert planned["preparation"].spacing_mm == (1.0, 1.0)
    assert planned["crop"] == 48
    assert planned["augmentation"]["flip_rows"] == 0
    (weight,) = planned["class_weights"]
    assert weight > 1, "the ball is rarer than what surrounds it"
    thick = open_dataset(write_volumes(tmp_path / "thick", 3, spacing=5.0)).card
    assert thick is not None
    assert plan(thick, CPU)["preparation"].neighbours == 0
    assert plan(card, CPU, "3d")["preparation"].spatial_dims == 3


@pytest.mark.parametrize(
    ("size", "on_cpu", "on_gpu"),
    [
        ((35, 50, 35), (3, 0), (3, 0)),
        ((20, 50, 35), (2, 1), (2, 1)),
        ((60, 80, 60), (2, 1), (2, 1)),
        ((180, 220, 180), (2, 1), (3, 0)),
    ],
)
def test_small_volumes_are_learned_in_three_dimensions_and_on_a_gpu_large_ones(
    size: tuple[int, int, int],
    on_cpu: tuple[int, int],
    on_gpu: tuple[int, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    card = open_dataset(write_volumes(tmp_path, 3)).card
    assert card is not None
    card = card.model_copy(update={"sizes": card.sizes.model_copy(update={"median": size})})
    monkeypatch.setattr(planning, "_memory", lambda device: 2**33)
    for device, expected in ((CPU, on_cpu), (torch.device("cuda"), on_gpu)):
        planned = plan(card, device)["preparation"]
        assert (planned.spatial_dims, planned.neighbours) == expected


def test_a_training_that_starts_from_a_model_is_shorter(discs: Path, tmp_path: Path) -> None:
    assert train(request(discs, tmp_path), Console(quiet=True)) is not None
    length = planning.LENGTH["cpu", 2]
    for values, planned in (({}, length), ({"start_from": "model@1"}, (25, 25))):
        asked = request(discs, tmp_path, runs=tmp_path / str(planned))
        kept = {k: v for k, v in asked.overrides.items() if k not in ("epochs", "steps")}
        recipe = prepare(replace(asked, overrides=kept | values), Console(quiet=True)).recipe
        assert (recipe.epochs, recipe.steps) == planned


@pytest.mark.parametrize(
    ("plane", "spacing", "edges"),
    [
        ("axial", (1.0, 1.0), (36, 40)),
        ("coronal", (5.0, 1.0), (12, 40)),
        ("sagittal", (5.0, 1.0), (12, 36)),
    ],
)
def test_what_follows_from_volumes_is_that_of_slices_in_the_chosen_plane(
    tmp_path: Path, plane: Plane, spacing: tuple[float, float], edges: tuple[int, int]
) -> None:
    data = write_volumes(tmp_path / "data", 3, spacing=5.0)
    asked = request(data, tmp_path, overrides={"preparation": {"plane": plane}})
    prepared = prepare(asked, Console(quiet=True))
    assert isinstance(prepared.recipe, SegmentationRecipe)
    assert prepared.recipe.preparation is not None
    assert prepared.recipe.preparation.spacing_mm == spacing
    assert isinstance(prepared.source, Source)
    first = prepared.source.training[0]
    assert first["image"].shape[1:] == edges, "they were resampled"
    dataset = open_dataset(data)
    assert plan_synthesis_for(dataset, CPU, None, plane)["preparation"].spacing_mm == spacing
    wrong = request(data, tmp_path / "wrong", overrides={"preparation": {"plane": "oblique"}})
    with pytest.raises(InvalidParameter, match=r"preparation\.plane: .*'sagittal'"):
        prepare(wrong, Console(quiet=True))


@pytest.mark.parametrize("whole", [False, True])
def test_the_crop_is_that_of_the_chosen_plane_however_it_is_given(
    tmp_path: Path, whole: bool
) -> None:
    """From Python, a preparation may be an object; it then takes the place of the planned one."""
    data = write_volumes(tmp_path / "data", 3, size=(96, 80, 12))
    given = Preparation(plane="coronal") if whole else {"plane": "coronal"}
    asked = request(data, tmp_path, overrides={"preparation": given})
    without = {name: value for name, value in asked.overrides.items() if name != "crop"}
    recipe = prepare(replace(asked, overrides=without), Console(quiet=True)).recipe
    assert isinstance(recipe, SegmentationRecipe)
    assert recipe.crop == 48, "axial slices have room for 80"


def test_how_volumes_are_taken_may_be_a_recipe_value(pairs: Pairs, tmp_path: Path) -> None:
    """What is planned for volumes follows from it, and slices beside whole volumes are refused."""
    data = write_volumes(tmp_path / "volumes", 3)

    def planned(data: Path, values: dict[str, int], dims: str | None = None) -> Preparation:
        overrides = {"preparation": values, "crop": 32}
        asked = replace(request(data, tmp_path, overrides=overrides), dims=dims)
        recipe = prepare(asked, Console(quiet=True)).recipe
        assert isinstance(recipe, SegmentationRecipe) and recipe.preparation is not None
        return recipe.preparation

    volumes = {"spatial_dims": 3}
    assert planned(data, volumes) == planned(data, {}, "3d")
    assert planned(data, volumes).neighbours == 0
    with pytest.raises(InvalidParameter, match=r"neighbours=1: .* whole volumes .* have none"):
        planned(data, {**volumes, "neighbours": 1})
    for values, dims in (({"spatial_dims": 2, "neighbours": 1}, "3d"), (volumes, "2.5d"),
                         ({"spatial_dims": 2, "neighbours": 1}, "2d")):  # fmt: skip
        assert planned(data, values, dims) == planned(data, {}, dims), "as of another run's recipe"
    assert planned(data, {"neighbours": 2}, "2.5d").neighbours == 2
    LAYOUTS["images and labels"](tmp_path / "pictures", pairs)
    for values in (volumes, {"neighbours": 1}):
        with pytest.raises(InvalidParameter, match="the data are pictures"):
            planned(tmp_path / "pictures", values)


@pytest.mark.parametrize(("share", "foreground"), [(0.02, 0.5), (0.3, 0.0)])
def test_half_of_the_crops_lie_around_what_is_rare(
    tmp_path: Path, share: float, foreground: float
) -> None:
    card = open_dataset(write_volumes(tmp_path, 3)).card
    assert card is not None
    first, second = card.classes
    classes = (first.model_copy(update={"share": 1 - share}),
               second.model_copy(update={"share": share}))  # fmt: skip
    card = card.model_copy(update={"classes": classes})
    assert plan(card, CPU)["foreground"] == foreground


@pytest.mark.parametrize(
    ("labels", "weights"), [((1,), (1.0,)), ((1, 2), (1.0, 0.667, 1.333)), ((0, 1), (2.0,))]
)
def test_the_background_has_a_weight_where_everything_is_labelled(
    tmp_path: Path, labels: tuple[int, ...], weights: tuple[float, ...]
) -> None:
    for name, size in (("a", 8), ("b", 12)):
        image = np.random.default_rng(size).integers(0, 99, (size, 10), np.uint8)
        label = np.full((size, 10), labels[0], np.uint8)
        label[:, :2] = labels[-1]  # a fifth
        for kind, array in (("images", image), ("labels", label)):
            (tmp_path / kind).mkdir(exist_ok=True)
            np.save(tmp_path / kind / f"{name}.npy", array)
    card = open_dataset(tmp_path).card
    assert card is not None
    planned = plan(card, CPU)
    assert planned["class_weights"] == weights
    assert planned["foreground"] == 0


@pytest.mark.parametrize(("edge", "crop"), [(20, 48), (50, 48), (64, 64), (90, 80), (512, 128)])
def test_crops_are_hardly_larger_than_the_images(tmp_path: Path, edge: int, crop: int) -> None:
    card = open_dataset(write_volumes(tmp_path, 3)).card
    assert card is not None
    sizes = card.sizes.model_copy(update={"median": (30, edge, 2 * edge)})
    card = card.model_copy(update={"sizes": sizes})
    assert plan(card, CPU)["crop"] == crop
    assert plan_synthesis(card, CPU)["crop"] == max(64, crop), "its discriminator needs 64"


def test_hounsfield_units_get_one_window_and_masked_heads_their_foreground(tmp_path: Path) -> None:
    for name, air, tissue in (("ct", -1000.0, 40.0), ("head", 0.0, 300.0)):
        data = write_volumes(tmp_path / name, 2)
        for file in (data / "images").iterdir():
            scan = nibabel.load(file)
            values = np.asarray(scan.dataobj)
            values = np.where(values > 100, tissue, air).astype(np.float32)
            nibabel.save(nibabel.Nifti1Image(values, scan.affine), file)
    cards = [open_dataset(tmp_path / name).card for name in ("ct", "head")]
    found = [plan(card, CPU)["preparation"].normalization for card in cards if card]
    assert found[0].window is not None
    assert found[1].foreground_only


@pytest.mark.parametrize(("names", "flipped"), [(["1=left eye"], 0.0), (["1=ball"], 0.5)])
def test_what_has_a_side_is_not_mirrored(tmp_path: Path, names: list[str], flipped: float) -> None:
    """Else each side would be learned as the other one in half of the crops."""
    write_volumes(tmp_path, 2)
    dataset = open_dataset(tmp_path, interpretation=Interpretation.parse(labels=names))
    recipe = build_recipe(SegmentationRecipe, [plan_for(dataset, CPU), {"data": "d", "seed": 0}])
    assert isinstance(recipe, SegmentationRecipe)
    assert recipe.augmentation.flip_columns == flipped
    drawn = plan_for(open_label_maps(tmp_path / "labels", names), CPU)
    assert drawn["randomization"].flip_columns == flipped


def write_twins(root: Path, turned: bool) -> Path:
    """Volumes with two balls beside each other, with labels 1 and 2; or in front of each other."""
    for name, first, second in (("a", 11, 29), ("b", 10, 30), ("c", 12, 29)):
        x, y, z = np.indices((40, 40, 12))
        balls = [(x - at) ** 2 + (y - 20) ** 2 + (z - 6) ** 2 < 50 for at in (first, second)]
        labels = (balls[0] + 2 * balls[1]).astype(np.uint8)
        labels = labels.swapaxes(0, 1) if turned else labels
        for kind, array in (("images", 100.0 * (labels > 0) + x + first), ("labels", labels)):
            (root / kind).mkdir(parents=True, exist_ok=True)
            volume = nibabel.Nifti1Image(array.astype(np.uint8), np.diag([-1.0, 1, 1, 1]))
            nibabel.save(volume, root / kind / f"{name}.nii.gz")
    return root


@pytest.mark.parametrize(("turned", "flipped"), [(False, 0.0), (True, 0.5)])
def test_numbers_of_left_and_right_are_not_mirrored_either(
    tmp_path: Path, turned: bool, flipped: float
) -> None:
    """Data sets whose labels have no names are common."""
    data = write_twins(tmp_path / "data", turned)
    printed = Console(width=500, record=True, file=io.StringIO())
    prepared = prepare(request(data, tmp_path), printed)
    assert isinstance(prepared.recipe, SegmentationRecipe)
    assert prepared.recipe.augmentation.flip_columns == flipped
    said = "labels 1 and 2 are mirror images of each other" in printed.export_text()
    assert said != turned
    drawn = plan_for(open_label_maps(data / "labels"), CPU)
    assert drawn["randomization"].flip_columns == flipped


def test_a_model_of_left_and_right_is_not_shown_mirror_images(tmp_path: Path) -> None:
    """Their labels would be exchanged, and count as doubts, see `caps-med segment --disagreement`.

    The user may know better.
    """
    data = write_twins(tmp_path / "data", turned=False)
    views = {}
    for runs, given in (("planned", {}), ("chosen", {"augmentation": {"flip_columns": 0.5}})):
        asked = request(data, tmp_path, runs=tmp_path / runs, overrides={"crop": 32, **given})
        bundle = train(asked, Console(quiet=True))
        assert bundle is not None
        views[runs] = caps_med.load_model(bundle.reference, tmp_path / "models").segmenter.views
    assert views == {"planned": 2, "chosen": 4}


@pytest.mark.parametrize("colours", [1, 3])
@pytest.mark.parametrize(
    ("factor", "offset", "dtype", "window"),
    [
        (200, 0, np.uint8, (0, 255)),
        (4000, 0, np.uint16, (0, 4000)),
        (1, 0, np.float32, (0, 1)),
        (4, 0, np.float32, (0, 4)),
        (4, -1, np.float32, (-1, 3)),
        (0, 0, np.uint8, (0, 1)),
    ],
)
def test_pictures_of_floats_are_not_taken_for_bytes(
    tmp_path: Path, colours: int, factor: float, offset: float, dtype: type, window: object
) -> None:
    """On the scale of bytes, pictures of floats in [0, 1] are black."""
    rng = np.random.default_rng(0)
    for number in range(2):
        shares = rng.uniform(0, 1, (9, 9, colours))
        shares[0, 0], shares[0, 1] = 0, 1
        for kind, values in (
            ("images", shares * factor + offset),
            ("labels", shares[..., 0] > 0.5),
        ):
            (tmp_path / kind).mkdir(exist_ok=True)
            stored = np.dtype(dtype if kind == "images" else np.uint8)
            np.save(tmp_path / kind / f"{number}.npy", values.squeeze().astype(stored))
    card = open_dataset(tmp_path).card
    assert card is not None
    assert plan_synthesis(card, CPU)["preparation"].normalization.window == window
    kept = (0, 255) if (colours, dtype, factor) == (3, np.uint8, 200) else None
    assert plan(card, CPU)["preparation"].normalization.window == kept


def test_what_torchrun_starts_again_goes_on(
    discs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command, without --resume, in the same run folder."""
    tiny = [text for name, value in TINY.items() for text in ("--set", f"{name}={value}")]
    options = {"--data": discs, "--models": tmp_path / "m", "--runs": tmp_path / "r", "--name": "a"}
    command = ["segmentation", *(str(x) for pair in options.items() for x in pair), *tiny]

    def call() -> object:
        result = CliRunner().invoke(train_app, command)
        return result.exception or result.output

    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert "a@1: held-out" in str(call()), "it had ended before its first checkpoint"
    assert "a@1: held-out" in str(call())
    monkeypatch.delenv("TORCHELASTIC_RESTART_COUNT")
    assert "already holds a run: add --resume" in str(call())


def test_the_same_command_resumes_a_run_that_went_on_with_less_memory(
    discs: Path, tmp_path: Path
) -> None:
    """It is what Ctrl-C prints; the batch size that it names is not the folder's any more."""
    begun = prepare(request(discs, tmp_path), Console(quiet=True))
    folder = begun.request.folder
    smaller = begun.recipe.model_copy(update={"batch_size": 1})
    folder.write(smaller)
    folder.checkpoint.touch()
    for given in ({}, {"batch_size": 1}):
        again = request(discs, tmp_path, overrides=given, resume=True)
        assert prepare(again, Console(quiet=True)).recipe == smaller
    with pytest.raises(InvalidParameter, match=r"another recipe \(batch_size: 1 -> 3\)"):
        prepare(
            request(discs, tmp_path, overrides={"batch_size": 3}, resume=True),
            Console(quiet=True),
        )
    with pytest.raises(InvalidParameter, match=r"\(augmentation.noise: 0.04 -> 0.1\)"):
        nested = {"augmentation": {"noise": 0.1}}
        prepare(request(discs, tmp_path, overrides=nested, resume=True), Console(quiet=True))


def test_a_cross_validation_is_not_resumed_with_another_number_of_folds(
    discs: Path, tmp_path: Path
) -> None:
    """Its first fold would be scored on cases that it was trained on."""
    train(request(discs, tmp_path, folds=3), Console(quiet=True))
    with pytest.raises(InvalidParameter, match="was started with --folds 3: resume with it"):
        train(request(discs, tmp_path, folds=2, resume=True), Console(quiet=True))


def test_folds_that_the_data_give_are_told_and_must_stay_those_of_the_run(
    discs: Path, tmp_path: Path
) -> None:
    entries = [
        {"image": str(image), "label": str(discs / "labels" / image.name), "fold": k % 3}
        for k, image in enumerate(sorted((discs / "images").iterdir()))
    ]
    path = tmp_path / "list.json"
    path.write_text(json.dumps(entries))
    printed = Console(width=500, record=True, file=io.StringIO())
    begun = prepare(request(path, tmp_path, folds=3), printed)
    assert "the 3 folds are those that the data define" in printed.export_text()
    prepare(request(path, tmp_path, runs=tmp_path / "other", folds=2), printed)
    assert "divided again into 2 folds: the data define 3 folds, which --" in printed.export_text()
    single = tmp_path / "single.json"
    single.write_text(json.dumps([{**entry, "fold": 0} for entry in entries]))
    prepare(request(single, tmp_path, runs=tmp_path / "third", folds=2), printed)
    assert printed.export_text().endswith("divided again into 2 folds: the data define 1 fold\n")
    begun.request.folder.fold(1).write(begun.recipe)
    begun.request.folder.fold(1).checkpoint.touch()
    again = {"folds": 3, "resume": True}
    assert prepare(request(path, tmp_path, **again), Console(quiet=True)).recipe == begun.recipe
    path.write_text(json.dumps([*entries[:-2], *({**e, "fold": 1} for e in entries[-2:])]))
    with pytest.raises(InvalidParameter, match="others are held out"):
        prepare(request(path, tmp_path, **again), Console(quiet=True))


def test_volumes_are_not_resumed_in_other_dimensions(tmp_path: Path) -> None:
    data = write_volumes(tmp_path / "data", 3)
    begun = prepare(request(data, tmp_path, dims="2.5d"), Console(quiet=True))
    begun.request.folder.write(begun.recipe)
    begun.request.folder.checkpoint.touch()
    for dims in (None, "2.5d"):
        again = request(data, tmp_path, dims=dims, resume=True)
        assert prepare(again, Console(quiet=True)).recipe == begun.recipe
    with pytest.raises(InvalidParameter, match=r"preparation.spatial_dims: 2 -> 3"):
        prepare(request(data, tmp_path, dims="3d", resume=True), Console(quiet=True))


def test_the_recipe_of_other_data_does_not_name_them(discs: Path, tmp_path: Path) -> None:
    """As of ``--recipe runs/OTHER/recipe.json``: the model's card would tell of data not seen."""
    overrides = {"data": "elsewhere", "ignored": 7}
    asked = request(discs, tmp_path, overrides=overrides)
    recipe = prepare(asked, Console(quiet=True)).recipe
    assert isinstance(recipe, SegmentationRecipe)
    assert (recipe.data, recipe.ignored) == (str(discs), None)


def test_data_in_a_folder_whose_name_is_not_utf_8_are_learned_from(
    discs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / os.fsdecode(b"d\xe9")
    shutil.copytree(discs, data)
    monkeypatch.setattr("sys.argv", ["caps-med", "train", "--data", str(data)])
    asked = request(data, tmp_path, command=command_line())
    bundle = train(asked, Console(quiet=True))
    assert bundle is not None
    provenance = bundle.card.provenance
    assert provenance.recipe["data"] == str(tmp_path / "d\\udce9")
    assert provenance.command == f"caps-med train --data $'{tmp_path}/d\\xe9'"
    model = caps_med.load_model("model", tmp_path / "models")
    other = replace(open_dataset(discs), data=str(data), root=data)  # other files at that path
    assert has_learned_from(model, other)
    again = prepare(replace(asked, resume=True), Console(quiet=True))
    assert again.recipe.data == provenance.recipe["data"]


def test_what_one_fold_has_trained_is_not_mixed_with_a_new_start(
    discs: Path, tmp_path: Path
) -> None:
    """On a cluster the second fold may have a checkpoint before the first."""
    begun = prepare(request(discs, tmp_path, folds=2), Console(quiet=True))
    second = begun.request.folder.fold(2)
    second.write(begun.recipe)
    second.checkpoint.touch()
    with pytest.raises(InvalidParameter, match="model already holds a run: add --resume"):
        prepare(request(discs, tmp_path, folds=2), Console(quiet=True))
    again = prepare(request(discs, tmp_path, folds=2, resume=True), Console(quiet=True))
    assert again.recipe == begun.recipe


def test_an_unknown_value_is_named_when_a_run_is_resumed(discs: Path, tmp_path: Path) -> None:
    begun = prepare(request(discs, tmp_path), Console(quiet=True))
    begun.request.folder.write(begun.recipe)
    begun.request.folder.checkpoint.touch()
    again = request(discs, tmp_path, overrides={"lerning_rate": 1}, resume=True)
    with pytest.raises(InvalidParameter, match="lerning_rate: there is no such value"):
        prepare(again, Console(quiet=True))


def test_two_processes_do_not_train_in_one_folder(
    python: Path, discs: Path, tmp_path: Path
) -> None:
    """They would write the same files: one ended in the middle, as a file of its own was gone."""
    run = tmp_path / "r" / "a"
    holds = (
        "import sys; from pathlib import Path\n"
        "from training.engine.run_folder import RunFolder\n"
        f"with RunFolder(Path({str(run)!r})).claimed(): print('held', flush=True); sys.stdin.read()"
    )
    tiny = [text for name, value in TINY.items() for text in ("--set", f"{name}={value}")]
    options = {"--data": discs, "--models": tmp_path / "m", "--runs": run.parent, "--name": "a"}
    command = ["segmentation", *(str(x) for pair in options.items() for x in pair), *tiny]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([python, "-c", holds], **pipes) as other:  # type: ignore[call-overload]  # pipes alone
        assert other.stdout.readline() == b"held\n"
        result = CliRunner().invoke(train_app, command)
        assert "another process is training there" in str(result.exception)
        other.stdin.close()
    assert not run.exists(), "nothing was trained"
    wrong = CliRunner().invoke(train_app, [*command, "--name", "../d"])
    assert "model name '../d'" in str(wrong.exception) and not (tmp_path / "d").exists()
    assert CliRunner().invoke(train_app, command).exit_code == 0
    assert "already holds a run" in str(CliRunner().invoke(train_app, command).exception)
