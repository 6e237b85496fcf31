from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from sklearn.mixture import GaussianMixture
from typer.testing import CliRunner

import caps_med
from caps_med.bundles import ModelCard, NetworkSpec
from caps_med.cli.commands import app
from caps_med.errors import InvalidParameter
from caps_med.images import MedicalImage
from caps_med.inference import AnswerProvenance, Model, Segmentation
from caps_med.inference.provenance import as_answer
from caps_med.inference.refinement import Array, every, fit, refined
from caps_med.samples import T1
from tests.conftest import tiny_binary, tiny_card, write_tiny


def mixed(seed: int = 0, count: int = 4000) -> tuple[Array, NDArray[np.integer]]:
    """Intensities of two overlapping labels ``[1, N]``, and the true labels ``[N]``."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, count)
    return rng.normal(np.where(labels, 60, 100), 14)[None], labels


def posterior(values: Array, prior: Array) -> Array:
    """What the mixture that is fitted to all voxels says of them, ``[K, N]``."""
    return fit(values, prior[:, :: every(values.shape[1])]).posterior(values, prior)


def test_a_flat_prior_gives_the_mixture_of_scikit_learn() -> None:
    values, _ = mixed()
    hint = 0.5 + 0.02 * np.sign(values[0] - 80)  # which label is the brighter
    found = posterior(values, np.stack([hint, 1 - hint]))
    model = GaussianMixture(2, random_state=0, tol=1e-6).fit(values.T)
    theirs = model.predict_proba(values.T)[:, np.argsort(-model.means_[:, 0])].T
    assert np.abs(found - theirs).mean() < 0.03


def test_one_iteration_is_bayes_rule_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("caps_med.inference.refinement.ITERATIONS", 1)
    rng = np.random.default_rng(1)
    values, prior = rng.normal(size=(2, 30)), rng.dirichlet([3, 3, 3], 30).T
    prior = np.maximum(prior, 0.02)
    prior /= prior.sum(0)
    expected = np.zeros_like(prior)
    for k, weights in enumerate(prior * prior.max(0) ** 4):
        expected[k] = prior[k]
        for channel in values:
            mean = sum(w * x for w, x in zip(weights, channel, strict=True)) / weights.sum()
            spread = sum(w * (x - mean) ** 2 for w, x in zip(weights, channel, strict=True))
            variance = spread / weights.sum()
            density = [math.exp(-((x - mean) ** 2) / 2 / variance) for x in channel]
            expected[k] *= np.array(density) / math.sqrt(2 * math.pi * variance)
    np.testing.assert_allclose(posterior(values, prior), expected / expected.sum(0), atol=1e-9)


def test_it_mends_a_shifted_border_and_keeps_what_intensities_do_not_tell() -> None:
    truth = np.arange(100) >= 50
    values = np.where(truth, 100.0, 50.0) + np.random.default_rng(2).normal(0, 6, 100)
    near = np.where(np.arange(100) >= 58, 0.9, 0.1)  # 8 pixels too far
    found = posterior(values[None], np.stack([1 - near, near]))
    assert ((found[1] > 0.5) == truth).all()
    same = posterior(np.full((1, 100), 7.0), np.stack([1 - near, near]))
    np.testing.assert_allclose(same[1], near)


def test_what_the_network_doubts_hardly_moves_the_posterior() -> None:
    values, labels = mixed()
    sure = np.where(labels, 0.95, 0.05)
    doubted = np.random.default_rng(3).normal(200, 14, 1000)  # a face, taken for the brighter label
    told = np.stack(
        [np.append(1 - sure, np.full(1000, 0.55)), np.append(sure, np.full(1000, 0.05))]
    )
    alone = posterior(values, np.stack([1 - sure, sure]))
    beside = posterior(np.append(values, doubted[None], axis=1), told)[:, : len(labels)]
    assert (beside.argmax(0) == alone.argmax(0)).mean() > 0.995


def test_the_moments_of_many_voxels_are_those_of_some(monkeypatch: pytest.MonkeyPatch) -> None:
    values, labels = mixed(count=40_000)
    hint = np.where(labels, 0.7, 0.3)
    prior = np.stack([1 - hint, hint])
    whole = posterior(values, prior)
    monkeypatch.setattr("caps_med.inference.refinement.FITTED", 5000)
    some = posterior(values, prior)
    assert (some.argmax(0) == whole.argmax(0)).mean() > 0.99
    assert not np.array_equal(some, whole)


def refining_model(folder: Path, usual: float | None = None) -> Model:
    """A model whose card says that its answers are refined, and how unsure they usually are."""
    values = {"refine": "em", "refined_entropy": usual}
    card = tiny_card("segmentation").model_copy(update=values)
    write_tiny(folder / "models", "refining", card)
    return caps_med.load_model("refining", folder / "models")


@pytest.fixture
def refining(tmp_path: Path) -> Model:
    """A model whose card says that its answers are refined, and no more."""
    return refining_model(tmp_path)


def test_the_card_says_whether_answers_are_refined(refining: Model) -> None:
    plain, better = (refining.segment(T1, refine=choice) for choice in ("none", "em"))
    own = refining.segment(T1)
    assert (plain.array != better.array).any()
    np.testing.assert_array_equal(own.array, better.array)
    assert own.provenance.preprocessing.endswith("refined by em")
    assert "refined" not in plain.provenance.preprocessing
    assert refining.segment(T1, maps=()).maps.keys() == {"probabilities"}
    assert refining.segment(T1, refine="none", maps=()).maps == {}


@pytest.mark.parametrize("told", [False, True])
def test_a_refined_answer_that_is_less_certain_is_told(
    refining: Model, tmp_path: Path, told: bool
) -> None:
    entropy = refining.segment(T1).mean_entropy
    limit = entropy - 1e-3 if told else entropy + 1e-3
    model = refining_model(tmp_path / "limited", limit)
    answer = model.segment(T1)
    assert answer.mean_entropy == pytest.approx(entropy)
    if told:
        [warning] = answer.numbers()["warnings"]
        assert f"mean entropy {entropy:.2f} (of images that suit it at most {limit:.2f})" in warning
    else:
        assert answer.warnings == ()
    assert model.segment(T1, refine="none").warnings == ()


def test_only_refined_answers_have_a_limit() -> None:
    card = tiny_card("segmentation").model_dump()
    with pytest.raises(ValidationError, match="refined_entropy: only for refined answers"):
        ModelCard.model_validate({**card, "refined_entropy": 0.3})


def test_a_binary_model_cannot_be_refined_by_its_card() -> None:
    card = tiny_binary("SegCaps", "disc").model_dump()
    with pytest.raises(ValidationError, match="two labels besides the background"):
        ModelCard.model_validate({**card, "refine": "em"})


def test_rare_labels_and_the_background_stay_where_the_network_found_them() -> None:
    values, labels = mixed(count=4096)
    image = MedicalImage(values.reshape(1, 64, 64))
    classes = np.where(labels, 1, 2).reshape(64, 64)
    classes[0], classes[1, :3] = 0, 3  # three pixels are far less than a thousandth
    maps = np.moveaxis(np.eye(4)[classes], -1, 0) * 0.6 + 0.1
    names = {0: "background", 1: "dark", 2: "bright", 7: "lesion"}
    ids = np.array(list(names), np.uint8)
    answer = as_answer(
        Segmentation, image.with_array(ids[classes][None], kind="labels"), names=names,
        maps={"probabilities": image.with_array(maps, kind="image")},
        provenance=AnswerProvenance("model", 1, "", "ranks"),
    )  # fmt: skip
    found = refined(image, answer)
    assert (found.array[0, 0] == 0).all() and (found.array == 7).sum() == 3
    np.testing.assert_array_equal(found.array[0, 1, :3], 7)
    assert (found.array != answer.array).any()


def test_an_answer_is_refined_within_the_networks_foreground() -> None:
    model, image = caps_med.load_model("brain-t1-tissue"), T1
    plain, better = model.segment(image, refine="none"), model.segment(image)
    assert type(better) is type(plain) and better.provenance.preprocessing.endswith("by em")
    np.testing.assert_array_equal(better.array > 0, plain.array > 0)
    assert 0.5 < (better.array == plain.array)[plain.array > 0].mean() < 1
    inside = plain.array[0] > 0
    chosen = better.probabilities.array[1:, inside].argmax(0) + 1
    np.testing.assert_array_equal(chosen, better.array[0, inside])
    assert plain.probabilities.array.sum(0).max() > 1.5  # capsule lengths
    np.testing.assert_allclose(better.probabilities.array.sum(0), 1, atol=1e-5)
    assert all(one.confidence is not None and one.confidence < 1 for one in better.measures)

    def spread(labels: Segmentation) -> float:
        values = caps_med.read_image(image).array[0].astype(float)
        return float(
            sum(
                values[labels.array[0] == k].var() * (labels.array[0] == k).sum() for k in (1, 2, 3)
            )
        )

    assert spread(better) < spread(plain)


@pytest.mark.parametrize("exponent", [-100, 90])
def test_the_unit_of_the_intensities_does_not_matter(refining: Model, exponent: int) -> None:
    voxels = np.random.default_rng(0).uniform(0, 1, (12, 12, 4)).astype(np.float32)
    found, same = (
        refining.segment((np.ldexp(voxels, power), np.eye(4))) for power in (0, exponent)
    )
    np.testing.assert_array_equal(found.array, same.array)
    np.testing.assert_array_equal(found.probabilities.array, same.probabilities.array)


@pytest.mark.parametrize("axis", [0, -1])
def test_a_picture_of_several_channels_in_an_array_is_refined(tmp_path: Path, axis: int) -> None:
    spec = NetworkSpec(name="SegCaps", arguments={"in_channels": 4, "atoms": 4, "out_channels": 3})
    write_tiny(tmp_path, "four", tiny_card("segmentation", None, spec))
    pixels = np.kron(np.random.default_rng(0).uniform(0, 1, (4, 8, 8)), np.ones((1, 8, 8)))
    np.save(tmp_path / "picture.npy", np.moveaxis(pixels, 0, axis))
    model = caps_med.load_model("four", tmp_path)
    found = model.segment(tmp_path / "picture.npy", refine="em")
    wanted = model.segment(MedicalImage(pixels), refine="em")
    in_memory = model.segment(np.moveaxis(pixels, 0, axis), refine="em")
    np.testing.assert_array_equal(in_memory.array, wanted.array)
    tensor = model.segment(torch.from_numpy(pixels), refine="em")
    np.testing.assert_array_equal(tensor.array, wanted.array)
    assert found.provenance.preprocessing.endswith("refined by em")
    np.testing.assert_array_equal(found.array, wanted.array)


def test_what_cannot_be_refined_is_told() -> None:
    with pytest.raises(InvalidParameter, match="refine='magic': must be em or none"):
        caps_med.load_model("brain-t1-tissue").segment(T1, refine="magic")  # type: ignore[arg-type]
    axons = caps_med.load_model("axon-segmentation")
    picture = MedicalImage(np.zeros((1, 32, 32)), format="png")
    with pytest.raises(
        InvalidParameter, match="only one label besides the background: leave it out"
    ):
        axons.segment(picture, refine="em")


@pytest.mark.parametrize("many", [False, True])
def test_the_command_refines_one_image_and_a_folder(tmp_path: Path, many: bool) -> None:
    image = T1
    expected = caps_med.load_model("brain-t1-tissue").segment(image, refine="em").array
    if many:
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / T1.name).write_bytes(image.read_bytes())
    given = ["-i", str(tmp_path / "in"), "-o"] if many else [str(image), "--out"]
    out = tmp_path / ("out" if many else T1.name)
    command = ["segment", "--model", "brain-t1-tissue", "--refine", "em", *given, str(out)]
    said = CliRunner().invoke(app, command)
    assert said.exit_code == 0, said.output
    found = caps_med.read_image(out / T1.name if many else out, kind="labels").array
    np.testing.assert_array_equal(found, expected)
