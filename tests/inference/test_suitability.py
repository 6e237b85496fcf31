"""Images that are unlike those of the training are told; the samples that come along are not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from typer.testing import CliRunner

import caps_med
from caps_med import samples
from caps_med.cli import commands
from caps_med.images import MedicalImage, read_image
from caps_med.inference.classifier import Classifier
from caps_med.inference.suitability import (
    LIMIT,
    own_slices,
    reconstruction_limit,
    slice_statistics,
    training_statistics,
    unexplained,
    unlike_training,
)
from tests.conftest import disc, tiny_card
from training.data.samples import Source
from training.tasks.overrides import build_recipe
from training.tasks.segmentation import SegmentationRecipe

UNLIKE = "unlike those that the model was trained on"


@pytest.mark.parametrize("sample", ["t1", "colin27-slice", "colin27", "axons"])
def test_no_sample_is_told_to_the_model_that_it_suits(sample: str) -> None:
    one = samples.SAMPLES[sample]
    segmenter = caps_med.load_model(one.model).segmenter
    prepared = segmenter.prepare(read_image(one.path))
    assert segmenter.card.statistics is not None
    assert unlike_training(segmenter.card, prepared.slices) == ()


def head_with_skull() -> MedicalImage:
    """The slice of a brain in a head that fills the picture."""
    brain = read_image(samples.COLIN27_SLICE)
    rough = np.random.default_rng(0).normal(90, 25, brain.array.shape).clip(1, 255)
    return brain.with_array(np.where(brain.array > 0, brain.array, rough).astype(np.uint8))


@pytest.mark.parametrize(
    "image",
    [head_with_skull(), read_image(samples.AXONS), read_image(samples.DIGIT)],
    ids=["with skull", "axons", "digit"],
)
def test_what_does_not_suit_a_skull_stripped_t1_is_told(image: MedicalImage) -> None:
    answer = caps_med.load_model("brain-t1-tissue").segment(image)
    (warning,) = answer.warnings
    assert UNLIKE in warning and "in training" in warning
    assert "it takes T1-weighted MRI of an adult head, skull-stripped" in warning
    assert warning in answer.numbers()["warnings"]


@pytest.mark.parametrize(
    ("model", "suits", "others"),
    [
        ("digits", read_image(samples.DIGIT), [read_image(samples.CLOTHING)]),
        ("fashion", read_image(samples.CLOTHING), []),
        (
            "brain-slices",
            read_image(samples.COLIN27_SLICE),
            [head_with_skull(), read_image(samples.AXONS)],
        ),
    ],
)
def test_classifiers_tell_what_does_not_suit_them(
    model: str, suits: MedicalImage, others: list[MedicalImage]
) -> None:
    classifier = caps_med.load_model(model).classifier
    assert classifier.card.statistics is not None
    empty = MedicalImage(np.zeros((1, 16, 24), np.uint8))
    first, last, *rest = classifier.many([suits, empty, *others])
    assert first.warnings == ()
    assert last.warnings == ("the image is empty: all of it has one intensity",)
    assert all(any(UNLIKE in note for note in answer.warnings) for answer in rest)


def test_an_image_of_another_scale_is_told_the_scale_of_the_model() -> None:
    digit = read_image(samples.DIGIT).array
    of_one = MedicalImage(digit.astype(np.float32) / 255)
    (note, *_) = caps_med.load_model("digits").classify(of_one).warnings
    assert note == (
        "the image is empty: all of it has one intensity on the model's scale, 0 to 255; an image "
        "of another scale has to be brought to it"
    )


def test_an_empty_image_is_told_by_every_model(models: Path) -> None:
    model = caps_med.load_model("tiny-segmentation", models)
    assert model.bundle.card.statistics is None
    for value in (0, 7):
        answer = model.segment(MedicalImage(np.full((1, 16, 24), value, np.uint8)))
        assert answer.warnings == ("the image is empty: all of it has one intensity",)
    shown = np.full((1, 16, 24), 7, np.uint8)
    shown[0, 3:9, 4:9] = 9
    assert model.segment(MedicalImage(shown)).warnings == ()


@pytest.mark.parametrize(
    ("name", "image", "told"),
    [
        ("digits", read_image(samples.CLOTHING), UNLIKE),
        ("digits", read_image(samples.DIGIT), None),
        ("tiny-segmentation", MedicalImage(np.zeros((1, 16, 24), np.uint8)), "image is empty"),
        (
            "tiny-synthesis",
            MedicalImage(np.zeros((1, 16, 24), np.uint8), kind="labels"),
            "label map is empty",
        ),
    ],
    ids=["classification", "suits", "segmentation", "synthesis"],
)
def test_what_looks_inside_tells_what_the_answer_tells(
    models: Path, name: str, image: MedicalImage, told: str | None
) -> None:
    model = caps_med.load_model(name, models)
    warnings = model(image).warnings
    assert [told in warning for warning in warnings] == [True] if told else warnings == ()
    layer = model.layers[-1].name
    found: list[Any] = [model.features(image, layer), model.point(image, layer, 0, 0)]
    if model.task == "classification":
        found.append(model.inspect(image))
    if model.reconstructs:
        manipulator = model.manipulator(image)
        found += [manipulator, manipulator(0, 0, [0.0])]
    assert [one.warnings for one in found] == [warnings] * len(found)


def test_the_commands_on_capsules_tell_it(models: Path, tmp_path: Path) -> None:
    empty, told = tmp_path / "empty.png", "the image is empty"
    MedicalImage(np.zeros((1, 16, 24), np.uint8), format="png").save(empty)
    shared = ["--model", "tiny-segmentation", "--models", str(models), "--out"]
    for command in (
        ["manipulate", str(empty), *shared, str(tmp_path / "atoms.png")],
        ["features", str(empty), *shared, str(tmp_path / "capsules")],
        ["features", "-i", str(empty), *shared, str(tmp_path / "many")],
    ):
        result = CliRunner().invoke(commands.app, command)
        assert result.exit_code == 0, result.output
        assert told in result.stderr
    (warning,) = json.loads((tmp_path / "capsules" / "statistics.json").read_text())["warnings"]
    assert told in warning and told in (tmp_path / "many" / "cases.csv").read_text()


def test_statistics_of_a_slice_worked_out_by_hand() -> None:
    picture = np.zeros((2, 4), np.float32)
    picture[:, 2:] = [[0.5, 1.0], [0.5, 1.0]]
    ((background, dark, middle, bright, contrast, roughness),) = slice_statistics([picture])
    assert background == 0.5
    assert (dark, middle, bright) == (0.5, 0.75, 1.0)
    assert contrast == pytest.approx(0.25)
    steps = np.mean([0, np.mean([0, 0.5, 0.5])])
    assert roughness == pytest.approx(steps / picture.std(), abs=1e-6)


def test_slices_that_show_next_to_nothing_do_not_count() -> None:
    shown, bare = np.tile(np.linspace(0, 1, 32), (32, 1)), np.zeros((32, 32))
    bare[0, :3] = 0.4
    np.testing.assert_array_equal(slice_statistics([shown, bare]), slice_statistics([shown]))
    assert len(slice_statistics([bare])) == 1  # there is nothing else
    assert slice_statistics([np.zeros((4, 4))]).shape == (0, 6)
    assert training_statistics([np.zeros((4, 4))]) is None


def test_own_slices_are_without_neighbours_and_bounded() -> None:
    stack = torch.arange(200).float().reshape(200, 1, 1, 1).expand(200, 3, 2, 1500)
    joined = torch.cat([stack - 1, stack, stack + 1], 1)
    found = list(own_slices(joined, neighbours=1))
    assert len(found) == 64 and found[0].shape == (2, 1024)
    assert [found[0][0, 0], found[-1][0, 0]] == [1, 198]


def pictures(seed: int, count: int = 5) -> list[NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    return [disc(rng, 48)[0].astype(np.float32)[None] / np.float32(255) for _ in range(count)]


@pytest.mark.parametrize("dims", [2, 3])
def test_training_keeps_the_statistics_of_its_images(dims: int) -> None:
    shown = pictures(0)
    if dims == 3:
        shown = [np.stack([image[0]] * 4)[None] for image in shown]
    source: Any = Source(
        "discs", [{"image": image} for image in shown], [f"{i}" for i in range(5)], frozenset(),
        {0: "background", 1: "disc"}, None, None, tiny_card("segmentation").normalization, "",
        spatial_dims=dims,
    )  # fmt: skip
    recipe = build_recipe(SegmentationRecipe, [{"data": "x", "seed": 0}])
    values = recipe.card_values(None, source)  # type: ignore[arg-type]  # of no network
    slices = [image[0] for image in pictures(0) for _ in range(4 if dims == 3 else 1)]
    assert values["statistics"] == training_statistics(slices)
    card = tiny_card("segmentation").model_copy(update={"statistics": values["statistics"]})
    like, unlike = (torch.from_numpy(np.stack(images)) for images in (
        pictures(1), [np.random.default_rng(i).random((1, 48, 48), np.float32) for i in range(3)]
    ))  # fmt: skip
    assert unlike_training(card, like) == ()
    (warning,) = unlike_training(card, unlike)
    assert UNLIKE in warning


def test_the_limit_is_counted_in_widths_of_the_range() -> None:
    card = tiny_card("segmentation")
    known = training_statistics(image[0] for image in pictures(0))
    assert known is not None and LIMIT == 1
    slices = torch.from_numpy(np.stack(pictures(0)))
    (value,) = np.median(slice_statistics(own_slices(slices)), 0)[[0]]
    for outside, told in ((0.9, False), (1.1, True)):
        low = float(value) + outside * 0.2
        moved = known.model_copy(update={"background": (low, low + 0.2)})
        found = unlike_training(card.model_copy(update={"statistics": moved}), slices)
        assert bool(found) is told


def test_what_a_reconstruction_lacks_worked_out_by_hand() -> None:
    picture = torch.tensor([0.0, 0.0, 1.0, 1.0]).view(1, 1, 2, 2)
    drawn = torch.cat([picture, torch.full_like(picture, 0.5), picture / 2])
    found = unexplained(picture.expand(3, 1, 2, 2), drawn)
    torch.testing.assert_close(found, torch.tensor([0.0, 1.0, 0.5]))
    assert torch.isfinite(unexplained(torch.zeros(1, 1, 2, 2), drawn[:1])).all()
    assert reconstruction_limit(torch.linspace(0, 1, 101)) == pytest.approx(0.99)
    assert reconstruction_limit(torch.linspace(0, 1, 29)) is None, "too few to say"


@pytest.mark.parametrize(("usual", "told"), [(None, False), (10.0, False), (1e-3, True)])
def test_a_picture_that_the_capsules_do_not_explain_is_told(
    usual: float | None, told: bool
) -> None:
    classifier = caps_med.load_model("digits").classifier
    spec = classifier.spec.model_copy(update={"reconstruction_error": usual})
    card = classifier.card.model_copy(update={"classification": spec, "statistics": None})
    (answer,) = Classifier(classifier.network, card, classifier.provenance).many(
        [read_image(samples.DIGIT)]
    )
    assert any("times its variation" in note for note in answer.warnings) is told
    assert all(UNLIKE in note for note in answer.warnings)


def test_no_statistics_are_computed_where_the_card_has_none(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = caps_med.load_model("tiny-segmentation", models)
    assert model.bundle.card.statistics is None

    def computed(*_: object) -> None:
        raise AssertionError("statistics were computed")

    monkeypatch.setattr(np, "quantile", computed)
    picture, _ = disc(np.random.default_rng(0), 32)
    assert model.segment(MedicalImage(picture[None])).warnings == ()
