"""Label maps that are unlike those of a generator's training are told; its own samples are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError
from typer.testing import CliRunner

import caps_med
from caps_med import samples
from caps_med.bundles import LabelMapStatistics, ModelCard
from caps_med.cli import commands
from caps_med.images import MedicalImage, encode_image, read_image
from caps_med.inference.label_suitability import (
    label_statistics,
    training_label_statistics,
    unlike_training_labels,
)
from tests.conftest import disc, tiny_card
from training.data.samples import Source
from training.tasks.overrides import build_recipe
from training.tasks.synthesis.recipe import SynthesisRecipe

EMPTY = "the label map is empty: all of it is background"
UNLIKE = "the label map is unlike those that the model was trained on: "
OWN = {
    "brain-synthesis": samples.HEAD_LABELS,
    "brain-t1-synthesis": samples.TISSUE,
    "axon-synthesis": samples.AXON_LABELS,
}


def told(model: str, ids: NDArray[np.uint8]) -> tuple[str, ...]:
    synthesizer = caps_med.load_model(model).synthesizer
    assert synthesizer.card.label_statistics is not None
    picture = MedicalImage(ids[None], kind="labels", format="png")
    return unlike_training_labels(synthesizer.card, synthesizer.prepare(picture).slices)


@pytest.mark.parametrize("model", OWN)
def test_the_samples_suit_and_what_is_made_of_them_does_not(model: str) -> None:
    ids = np.squeeze(read_image(OWN[model], kind="labels").array)
    assert told(model, ids) == ()
    assert told(model, np.zeros_like(ids)) == (EMPTY,)
    card = caps_med.load_model(model).bundle.card
    assert card.label_statistics is not None
    most = [high for _, high in card.label_statistics.shares]
    rarest = list(card.labels)[1:][int(np.argmin(most))]
    (outside,) = told(model, np.where(ids == 0, rarest, 0).astype(np.uint8))
    assert outside.startswith(UNLIKE)
    assert outside.endswith(f"; it takes {card.input_description}")


@pytest.mark.parametrize("model", OWN)
def test_another_scale_is_told(model: str) -> None:
    """Also by `brain-synthesis`, whose slices with and without skull differ much."""
    ids = np.squeeze(read_image(OWN[model], kind="labels").array)
    (enlarged,) = told(model, ids.repeat(4, 0).repeat(4, 1))
    assert "neighbours of another label for each pixel (in training" in enlarged
    described = caps_med.load_model(model).bundle.card.input_description
    assert enlarged.endswith(f"; it takes {described}")


def test_a_share_that_differs_is_told_by_the_name_of_its_label() -> None:
    labels = read_image(samples.TISSUE, kind="labels").array
    (warning,) = told("brain-t1-synthesis", np.where(np.squeeze(labels) > 0, 1, 0).astype(np.uint8))
    assert "100% of what is labelled is cerebrospinal fluid (in training" in warning


def test_statistics_of_a_label_map_worked_out_by_hand() -> None:
    ids = np.array([[0, 0, 1, 1], [0, 0, 1, 2]], np.float32)
    (found,) = label_statistics([ids], 3)
    np.testing.assert_allclose(found, [0.5, 4 / 4, 0.75, 0.25])  # 3 borders in rows, 1 in columns
    assert label_statistics([np.zeros((4, 4))], 3).shape == (0, 4)
    assert training_label_statistics([[np.zeros((4, 4))]], 3) is None


def test_the_ends_of_a_volume_do_not_count() -> None:
    full, end = np.zeros((20, 20)), np.zeros((20, 20))
    full[5:15, 5:15] = 1
    end[5:9, 5:10] = 2
    np.testing.assert_array_equal(label_statistics([full, end], 3), label_statistics([full], 3))
    alone = training_label_statistics([[full], [end]], 3)
    together = training_label_statistics([[full, end]], 3)
    assert alone is not None and together is not None
    assert together.shares == ((1.0, 1.0), (0.0, 0.0)) != alone.shares


@pytest.mark.parametrize(("dims", "spacing"), [(2, None), (2, (1.0, 1.0)), (3, (1.0, 1.0))])
def test_training_keeps_the_statistics_of_its_label_maps(
    dims: int, spacing: tuple[float, float] | None
) -> None:
    """A picture stands alone, however little it shows; of slices those at the ends are left out."""
    rng = np.random.default_rng(0)
    masks = [disc(rng, 48)[1] for _ in range(6)]
    masks[0] = np.where(np.arange(48) < 24, masks[0], 0).astype(np.uint8)
    masks[1] = np.eye(48, dtype=np.uint8)  # hardly anything is labelled
    labels = [np.stack([mask] * 3)[None] if dims == 3 else mask[None] for mask in masks]
    source: Any = Source(
        "discs", [{"image": one.astype(np.float32), "label": one} for one in labels],
        [f"{i}" for i in range(6)], frozenset(), {0: "background", 1: "disc"}, None, spacing,
        tiny_card("synthesis").normalization, "", spatial_dims=dims,
    )  # fmt: skip
    recipe = build_recipe(SynthesisRecipe, [{"data": "x", "seed": 0, "fibres": False}])
    known = recipe.card_values(None, source)["label_statistics"]  # type: ignore[arg-type]  # of no network
    shown = [mask.astype(np.float32) for mask in masks]
    stacks = [[one] * (3 if dims == 3 else 1) for one in shown]
    slices = dims == 2 and spacing is not None
    assert known == training_label_statistics([shown] if slices else stacks, 2)
    assert (known.labelled[0] < 0.05) is not slices


def test_a_card_has_a_share_for_each_of_its_labels() -> None:
    card, known = tiny_card("synthesis"), {"labelled": (0, 1), "borders": (0, 1)}
    given = {**known, "shares": ((0, 1),)}
    with pytest.raises(ValidationError, match="one per label except the background"):
        ModelCard.model_validate({**card.model_dump(), "label_statistics": given})
    fitting = LabelMapStatistics.model_validate({**known, "shares": ((0, 1), (0, 1))})
    other = card.model_copy(update={"label_statistics": fitting})
    assert ModelCard.model_validate(other.model_dump()).label_statistics == fitting


def test_answers_tell_empty_label_maps_coarse_voxels_and_labels_taken_by_their_ids(
    models: Path,
) -> None:
    model = caps_med.load_model("tiny-synthesis", models)
    empty = MedicalImage(np.zeros((1, 16, 24), np.uint8), kind="labels")
    assert model.synthesize(empty).warnings == (EMPTY,)
    assert [image.warnings for image in model.interpolate(empty, steps=2)] == [(EMPTY,)] * 2
    ids = np.zeros((1, 16, 24, 1), np.uint8)
    ids[0, 4:9, 5:15] = 2
    coarse = MedicalImage(ids, affine=np.diag([3.0, 3, 3, 1]), kind="labels", names={2: "spleen"})
    by_id, voxels = model.synthesize(coarse).warnings
    assert "spleen has a name that the model knows" in by_id
    assert "the voxels are 3 x 3 mm (rows, columns), those of the training were 1 x 1 mm" in voxels
    assert "borders come out in steps" in voxels


def test_the_command_and_its_tables_tell_it(models: Path, tmp_path: Path) -> None:
    empty = MedicalImage(np.zeros((1, 16, 24), np.uint8), format="png", kind="labels")
    (tmp_path / "in").mkdir()
    file = tmp_path / "in" / "empty.png"
    file.write_bytes(encode_image(empty, "png"))
    shared = ["--model", "tiny-synthesis", "--models", str(models), "--out"]
    for command in (
        ["synthesize", str(file), *shared, str(tmp_path / "one.png")],
        ["interpolate", str(file), *shared, str(tmp_path / "strip.png"), "--steps", "2"],
        ["synthesize", "-i", str(tmp_path / "in"), *shared, str(tmp_path / "out")],
    ):
        result = CliRunner().invoke(commands.app, command)
        assert result.exit_code == 0, result.output
        assert EMPTY in result.stderr
    assert EMPTY in (tmp_path / "out" / "cases.csv").read_text()
