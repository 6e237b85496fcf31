"""Test-time augmentation: the mean over mirror images, the same by every way to ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from typer.testing import CliRunner

import caps_med
from api.app import create_app
from api.settings import Settings
from caps_med.batch import SegmentFiles, run_batch
from caps_med.bundles import NetworkSpec
from caps_med.cli.commands import app
from caps_med.errors import InvalidParameter, WrongTask
from caps_med.images import MedicalImage, read_image
from caps_med.inference import Model
from caps_med.inference.mirrors import Axes, mirror_images
from caps_med.networks import predicted_classes
from tests.conftest import LABELS, tiny_card, write_tiny

ARGUMENTS = {"atoms": 4, "out_channels": 3}
ENSEMBLE = {"network": "SegCaps", "members": 2, "arguments": ARGUMENTS}
NETWORKS = {
    "picture": NetworkSpec(name="SegCaps", arguments=ARGUMENTS),
    "volumes": NetworkSpec(name="SegCaps", arguments={"spatial_dims": 3, **ARGUMENTS}),
    "ensemble": NetworkSpec(name="Ensemble", arguments=ENSEMBLE),
    "normalized": NetworkSpec(name="ConvCaps", arguments=ARGUMENTS),
}
BOTH = {"augmentation": {"flip_columns": 0.5, "flip_rows": 0.5}}
FOUR: tuple[Axes, ...] = ((), (-2,), (-1,), (-2, -1))


def write(
    root: Path,
    name: str,
    recipe: dict[str, Any],
    network: NetworkSpec | None = None,
    labels: Mapping[int, str] = LABELS,
) -> Model:
    made = tiny_card("segmentation", network=network, labels=labels)
    provenance = made.provenance.model_copy(update={"recipe": recipe})
    write_tiny(root, name, made.model_copy(update={"provenance": provenance}))
    return caps_med.load_model(name, root)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models that were mirrored in training as `mirrored`, and one that was not."""
    root = tmp_path_factory.mktemp("models")
    for name, spec in NETWORKS.items():
        write(root, name, BOTH, spec)
    write(root, "unmirrored", {"augmentation": {"flip_columns": 0.0, "flip_rows": 0.0}})
    return root


def image(*shape: int) -> MedicalImage:
    values = np.random.default_rng(2).uniform(0, 1, (1, *shape)).astype(np.float32)
    return MedicalImage(values, format="nifti" if len(shape) == 3 else "npy")


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("picture", (16, 24)),
        ("picture", (16, 24, 3)),
        ("ensemble", (16, 24)),
        ("normalized", (16, 24, 3)),
        ("volumes", (16, 8, 16)),
    ],
)
def test_the_answer_is_the_mean_over_the_image_and_its_mirror_images(
    root: Path, name: str, shape: tuple[int, ...]
) -> None:
    model = caps_med.load_model(name, root)
    given = image(*shape)
    found = model.segment(given, tta=True)
    views = []
    # pictures are [rows, columns], volumes [x, y, z], whose rows run along y
    along = {-2: -2, -1: -1} if len(shape) == 2 else {-2: -2, -1: -3}
    for axes in FOUR:
        flipped = tuple(along[axis] for axis in axes)
        mirrored = given.with_array(np.flip(given.array, flipped).copy(), kind="image")
        views.append(np.flip(model.segment(mirrored).probabilities.array, flipped))
    probabilities = found.probabilities.array
    np.testing.assert_allclose(probabilities, np.mean(views, axis=0), atol=2e-6)
    assert not np.array_equal(probabilities, views[0])
    classes = predicted_classes(torch.from_numpy(probabilities)[None])[0].numpy()
    np.testing.assert_array_equal(found.array, np.array([0, 2, 7])[classes])
    assert found.provenance.tta_views == 4
    assert found.provenance.headers()["Caps-Med-TTA-Views"] == "4"


def test_a_symmetric_image_has_a_symmetric_answer(root: Path) -> None:
    model = caps_med.load_model("normalized", root)
    left = image(16, 12).array
    found = model.segment(image(16, 24).with_array(np.concatenate([left, left[..., ::-1]], -1)),
                          tta=True)  # fmt: skip
    answer = found.probabilities.array
    np.testing.assert_allclose(answer, answer[..., ::-1], atol=2e-6)


SIDED = {0: "background", 2: "left lung", 7: "right lung"}


@pytest.mark.parametrize(
    ("recipe", "labels", "axes"),
    [
        ({}, LABELS, (-1,)),
        (BOTH, LABELS, (-2, -1)),
        (BOTH, SIDED, (-2,)),
        ({"augmentation": {"flip_columns": 0.5, "flip_rows": 0.0}}, LABELS, (-1,)),
        ({"augmentation": {"flip_columns": 0.0, "flip_rows": 0.5}}, LABELS, (-2,)),
        ({"randomization": {"flip_columns": 0.5, "flip_rows": 0.5}}, LABELS, (-2, -1)),
        ({"augmentation": "none of ours"}, LABELS, (-1,)),
    ],
)
def test_the_mirror_images_are_those_of_the_training(
    tmp_path: Path, recipe: dict[str, Any], labels: dict[int, str], axes: Axes
) -> None:
    model = write(tmp_path, "trained", recipe, labels=labels)
    assert model.bundle.card.mirrored_axes == axes and model.bundle.card.tta_views == 2 ** len(axes)
    views = 1 + len(mirror_images(axes))
    assert model.segmenter.with_tta().passes_over() == views
    assert model.segment(image(8, 8), tta=True).provenance.tta_views == views


def test_a_model_without_mirror_images_in_training_says_so(root: Path, models: Path) -> None:
    model = caps_med.load_model("unmirrored", root)
    with pytest.raises(InvalidParameter, match="tta: unmirrored was trained without mirror images"):
        model.segment(image(8, 8), tta=True)
    with pytest.raises(InvalidParameter, match="leave it out"):
        model.with_tta()
    with pytest.raises(WrongTask):
        caps_med.load_model("tiny-synthesis", models).with_tta()
    assert model.segment(image(8, 8)).provenance.tta_views is None


def test_a_model_keeps_the_choice_until_a_call_makes_another(root: Path) -> None:
    plain = caps_med.load_model("picture", root)
    model, given = plain.with_tta(), image(16, 16)
    assert model.reference == "picture@1 with TTA" and plain.reference == "picture@1"
    assert "with TTA" in repr(model) and model.network is plain.network
    mean, once = plain.segment(given, tta=True), plain.segment(given)
    np.testing.assert_array_equal(model.segment(given).array, mean.array)
    np.testing.assert_array_equal(
        model.segment(given, tta=False).probabilities.array, once.probabilities.array
    )


@pytest.mark.parametrize("name", ["picture", "ensemble"])
def test_the_disagreement_is_that_of_single_views(root: Path, name: str) -> None:
    model, given = caps_med.load_model(name, root), image(16, 24)
    plain = model.segment(given, disagreement=True)
    steps: list[tuple[int, int]] = []
    mean = model.segment(
        given, tta=True, maps=["disagreement", "entropy"],
        progress=lambda done, total: steps.append((done, total)),
    )  # fmt: skip
    assert plain.disagreement and mean.disagreement
    assert mean.disagreement.as_dict() == plain.disagreement.as_dict()
    np.testing.assert_array_equal(mean.disagreement.map.array, plain.disagreement.map.array)
    np.testing.assert_array_equal(mean.array, model.segment(given, tta=True).array)
    assert "entropy" in mean.maps and mean.provenance.tta_views == 4
    assert steps[-1][0] == steps[-1][1]
    passes = model.segmenter.with_tta().passes_over(disagreement=True)
    assert passes == 4 + model.segmenter.views


def test_the_command_a_folder_and_the_service_give_the_same(root: Path, tmp_path: Path) -> None:
    pixels = np.random.default_rng(3).integers(0, 255, (1, 20, 28), dtype=np.uint8)
    file = tmp_path / "scans" / "a.png"
    file.parent.mkdir()
    MedicalImage(pixels, format="png").save(file)
    model = caps_med.load_model("picture", root)
    wanted, plain = (model.segment(file, tta=tta).array for tta in (True, False))
    assert (wanted != plain).any()
    one, many = tmp_path / "one.png", tmp_path / "many"
    options = ["--model", "picture", "--models", str(root), "--tta"]
    for arguments in ([str(file), "--out", str(one)], ["-i", str(file.parent), "-o", str(many)]):
        answer = CliRunner().invoke(app, ["segment", *options, *arguments])
        assert answer.exit_code == 0, answer.output
    for found in (one, many / "a.png"):
        np.testing.assert_array_equal(read_image(found, kind="labels").array, wanted)
    settings = Settings(models=root, preload=(), training=False, projects=False)
    with TestClient(create_app(settings)) as client:
        for tta, expected in (("true", wanted), ("false", plain)):
            reply = client.post(
                "/v1/models/picture/segment",
                files={"image": ("a.png", file.read_bytes())},
                data={"tta": tta},
            )
            assert reply.status_code == 200, reply.text
            np.testing.assert_array_equal(read_image(reply.content, kind="labels").array, expected)
            assert reply.headers.get("Caps-Med-TTA-Views") == ("4" if tta == "true" else None)
        refused = client.post(
            "/v1/models/unmirrored/segment",
            files={"image": ("a.png", file.read_bytes())},
            data={"tta": "true"},
        )
    assert refused.status_code == 422 and "trained without mirror images" in refused.text


def test_a_folder_is_not_resumed_with_another_choice(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "scans" / "a.png"
    file.parent.mkdir()
    MedicalImage(np.zeros((1, 8, 8), np.uint8), format="png").save(file)
    actions = [SegmentFiles("picture", root, tta=tta) for tta in (False, True)]
    assert [one.settings().get("tta") for one in actions] == [None, True]
    refused = SegmentFiles("unmirrored", root, tta=True)
    with pytest.raises(InvalidParameter, match="mirror images"):
        run_batch(refused, [str(file.parent)], tmp_path / "out")
