"""Training on label maps alone, from the folder to a model that segments."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console

import caps_med
from caps_med.bundles import Bundle, ModelRepository
from caps_med.errors import InvalidParameter
from caps_med.images import MedicalImage
from tests.training.randomization.maps import (
    FLUID,
    GREY,
    SKULL,
    WHITE,
    ball,
    write_pictures,
    write_volumes,
)
from training.data.prepare import Preparation
from training.randomization import Randomization
from training.randomization.batches import RandomBatches
from training.randomization.data import open_label_maps
from training.randomization.source import RandomSource, load_random_source
from training.tasks.overrides import build_recipe
from training.tasks.pipeline import TrainRequest, train
from training.tasks.planning import load_segmentation, plan_for
from training.tasks.segmentation import SegmentationRecipe

SHORT = {"epochs": 1, "steps": 2, "batch_size": 2, "crop": 32, "atoms": 4, "seed": 1}
SCHEME = f"""
labels:
  1: {{name: grey, ids: [{GREY}]}}
  2: {{name: white, ids: [{WHITE}]}}
outside: [{SKULL}]
rim: [{FLUID}]
"""


@pytest.fixture
def volumes(tmp_path: Path) -> Path:
    folder = write_volumes(tmp_path / "balls")
    (folder / "labels.yaml").write_text(SCHEME)
    return folder


def run(data: Path, place: Path, dims: str | None = None, **values: Any) -> tuple[Bundle, str]:  # noqa: ANN401
    said = io.StringIO()
    folds = values.pop("folds", 0)
    request = TrainRequest(
        "segmentation", open_label_maps(data), "model", {**SHORT, **values}, dims, folds=folds,
        models=place / "models", runs=place / "runs",
    )  # fmt: skip
    bundle = train(request, Console(file=said, width=200))
    assert bundle is not None
    return bundle, said.getvalue()


def source_of(data: Path, dims: str | None = None, **values: Any) -> RandomSource:  # noqa: ANN401
    opened = open_label_maps(data)
    planned = plan_for(opened, torch.device("cpu"), dims)
    recipe = build_recipe(
        SegmentationRecipe, [planned, {**SHORT, **opened.recipe_values, **values}]
    )
    found = load_segmentation(opened, data / "unused", recipe)  # type: ignore[arg-type]
    assert isinstance(found, RandomSource)
    return found


@pytest.mark.parametrize("dims", ["2d", "2.5d", "3d"])
def test_label_maps_alone_become_a_model_for_images(
    volumes: Path, tmp_path: Path, dims: str
) -> None:
    unet = {"network": "unet", "atoms": None, "features": [4, 4, 4, 4, 8, 4]}
    changes = unet if dims == "3d" else {}
    bundle, said = run(volumes, tmp_path, dims, **changes)
    card = bundle.card
    assert card.labels == {0: "background", 1: "grey", 2: "white"}
    assert card.normalization.ranks
    assert (card.spacing_mm, card.slice_mm) == ((2.0, 2.0), 2.5)
    assert card.provenance.recipe["scheme"]["outside"] == [SKULL]
    assert card.provenance.recipe["randomization"]["masked"] == 0.5
    assert "random images of 2 label maps to train on, 1 held out" in said
    sheet = caps_med.read_image(tmp_path / "runs" / "model" / "images.png")
    assert sheet.array.shape[0] == 3 and sheet.array.std() > 20
    head = MedicalImage(np.moveaxis(ball(7), 0, -1)[None] * 30, affine=np.diag([2, 2, 2.5, 1]))
    answer = caps_med.load_model("model", tmp_path / "models").segment(head)
    assert answer.array.shape == head.array.shape


def test_pictures_are_drawn_from_pictures_of_labels(tmp_path: Path) -> None:
    bundle, _ = run(write_pictures(tmp_path / "labels"), tmp_path)
    assert bundle.card.spacing_mm is None
    assert bundle.card.labels[GREY] == f"label {GREY}" and len(bundle.card.labels) == 5


def test_it_learns(volumes: Path, tmp_path: Path) -> None:
    bundle, _ = run(
        volumes, tmp_path, network="unet", atoms=None, features=[8, 8, 8, 8, 8, 8], steps=120,
        learning_rate=1e-2, randomization={"elastic": 2.0, "bias": 0.2, "related": 1.0},
    )  # fmt: skip
    scores = bundle.card.scores
    assert min(scores["held-out dice grey"], scores["held-out dice white"]) > 0.3


def test_folds_hold_out_each_label_map_once(volumes: Path) -> None:
    folds = source_of(volumes).folds(3)
    assert [fold.trained_on for fold in folds] == [[1, 2], [0, 2], [0, 1]]
    with pytest.raises(
        InvalidParameter, match="folds=4: at most 3 are possible, one per label map"
    ):
        source_of(volumes).folds(4)


def test_batches_follow_from_seed_epoch_and_step(volumes: Path) -> None:
    def batches(seed: int, rank: int = 0) -> RandomBatches:
        return source_of(volumes).batches(32, 2, 3, seed, rank, torch.device("cpu"))

    first, again = list(batches(5)), list(batches(5))
    assert all(torch.equal(a["image"], b["image"]) for a, b in zip(first, again, strict=True))
    assert {int(i) for drawn in first for i in drawn["index"]} <= {0, 1}  # the third is held out
    later = batches(5)
    later.sampler.epoch = 1
    for others in (later, batches(6), batches(5, rank=1), [first[1]]):
        assert not torch.equal(next(iter(others))["image"], first[0]["image"])


def test_validation_images_never_change_and_are_of_held_out_maps(volumes: Path) -> None:
    one, other = source_of(volumes), source_of(volumes, seed=9)
    assert one.held_out == {"ball2"} and len(one.validation) == 12
    for a, b in zip(one.validation, other.validation, strict=True):
        np.testing.assert_array_equal(a["image"], b["image"])
    assert one.training_name(1) == "ball1"


def test_a_single_label_map_is_validated_on_other_images(tmp_path: Path) -> None:
    source = source_of(write_pictures(tmp_path / "one", 1))
    assert source.trained_on == [0] and source.held_out == {"disc0, other images"}


@pytest.mark.parametrize("dims", ["2.5d", "3d", "4d"])
def test_dims_that_are_not_there_are_refused(tmp_path: Path, dims: str) -> None:
    data = open_label_maps(write_pictures(tmp_path))
    message = "must be one of 2d" if dims == "4d" else "the data are pictures"
    with pytest.raises(InvalidParameter, match=message):
        plan_for(data, torch.device("cpu"), dims)


def test_volumes_in_another_plane_are_refused(volumes: Path) -> None:
    preparation = Preparation(spatial_dims=3, plane="coronal")
    with pytest.raises(InvalidParameter, match=r"preparation\.plane=coronal: volumes .* are axial"):
        load_random_source(open_label_maps(volumes), Randomization(), preparation, 32)


def test_a_finished_run_is_resumed_to_the_same_model(volumes: Path, tmp_path: Path) -> None:
    bundle, _ = run(volumes, tmp_path)
    request = TrainRequest(
        "segmentation", open_label_maps(volumes), "model", {}, models=tmp_path / "models",
        runs=tmp_path / "runs", resume=True,
    )  # fmt: skip
    again = train(request, Console(quiet=True))
    assert again is not None and again.reference == bundle.reference
    assert ModelRepository(tmp_path / "models").versions("model") == [1]
