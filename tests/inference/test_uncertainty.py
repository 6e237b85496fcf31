from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import entropy
from torch import Tensor, nn

import caps_med
from caps_med.bundles import NetworkSpec
from caps_med.images import MedicalImage
from caps_med.inference import Model, uncertainty
from caps_med.inference.passes import input_of_slice
from caps_med.inference.uncertainty_maps import Votes, confidence_of, entropy_of
from caps_med.networks import CapsuleNetwork, Ensemble
from tests.conftest import tiny_card, write_tiny


@pytest.fixture(scope="module")
def model(models: Path) -> Model:
    return caps_med.load_model("tiny-segmentation", models)


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An ensemble of three networks, a network without capsules, and one of volumes."""
    root = tmp_path_factory.mktemp("several")
    arguments = {"atoms": 4, "out_channels": 3}
    networks: dict[str, tuple[str, dict[str, Any]]] = {
        "ensemble": ("Ensemble", {"network": "SegCaps", "members": 3, "arguments": arguments}),
        "unet": ("UNet", {"out_channels": 3, "features": [4, 4, 8, 8, 8, 4]}),
        "volumes": ("SegCaps", {"spatial_dims": 3, **arguments}),
    }
    for name, (network, settings) in networks.items():
        spec = NetworkSpec(name=network, arguments=settings)
        write_tiny(root, name, tiny_card("segmentation", (1.0, 1.0), spec))
    return root


def picture(rows: int = 21, columns: int = 33, seed: int = 0) -> MedicalImage:
    pixels = np.random.default_rng(seed).integers(0, 255, (1, rows, columns), dtype=np.uint8)
    return MedicalImage(pixels, format="png")


def volume(*shape: int) -> MedicalImage:
    values = np.random.default_rng(1).uniform(0, 1, (1, *shape)).astype(np.float32)
    return MedicalImage(values, format="nifti")


def test_entropy_is_that_of_scipy_between_sure_and_undecided() -> None:
    lengths = np.random.default_rng(0).uniform(0, 1, (4, 5, 6)).astype(np.float32)
    expected = entropy(lengths, axis=0, base=4)
    np.testing.assert_allclose(entropy_of(lengths), expected, atol=1e-6)
    sure, undecided = np.eye(4, dtype=np.float32)[:, :1], np.full((4, 1), 0.3, np.float32)
    assert (entropy_of(sure) == 0).all()
    np.testing.assert_allclose(entropy_of(undecided), 1, atol=1e-6)
    np.testing.assert_allclose(entropy_of(np.zeros((3, 1), np.float32)), 0)


def test_a_binary_model_is_least_sure_at_one_half() -> None:
    foreground = np.array([[0, 0.25, 0.5, 0.75, 1]], np.float32)
    np.testing.assert_allclose(confidence_of(foreground), [1, 0.75, 0.5, 0.75, 1])
    np.testing.assert_allclose(entropy_of(foreground), entropy_of(foreground)[::-1], atol=1e-6)
    np.testing.assert_allclose(entropy_of(foreground)[[0, 2, 4]], [0, 1, 0], atol=1e-6)


def test_confidence_is_of_probabilities_that_add_up_to_one() -> None:
    np.testing.assert_allclose(confidence_of(np.array([[0.9], [0.6], [0.3]])), [0.5])


def test_disagreement_is_the_share_of_views_outside_the_majority() -> None:
    found = [[0, 1, 2, 0], [0, 1, 1, 0], [0, 1, 0, 0], [0, 1, 1, 2]]
    views = [torch.tensor(classes).reshape(1, 1, 1, 4) for classes in found]
    votes = Votes.of(views, 3)
    np.testing.assert_allclose(votes.disagreement()[0, 0], [[0, 0, 0.5, 0.25]])
    assert votes.mean_disagreement() == pytest.approx((0 + 0.5 + 0.25) / 3)  # not of background
    assert (votes + votes).mean_disagreement() == votes.mean_disagreement()
    assert Votes.of([torch.zeros(1, 1, 2, 2)], 2).mean_disagreement() == 0


class Brightness(nn.Module):
    """Foreground where the pixel is bright, which no mirror image changes."""

    def forward(self, image: Tensor) -> Tensor:
        return torch.cat([1 - image, image, torch.zeros_like(image)], 1)


class LeftHalf(nn.Module):
    """Foreground in the left half, whatever the image shows."""

    def forward(self, image: Tensor) -> Tensor:
        left = torch.zeros_like(image)
        left[..., : image.shape[-1] // 2] = 1
        return torch.cat([1 - left, left, torch.zeros_like(image)], 1)


@pytest.mark.parametrize(("answers", "share"), [(Brightness(), 0), (LeftHalf(), 0.5)])
def test_flips_agree_exactly_where_the_network_is_equivariant(
    model: Model, monkeypatch: pytest.MonkeyPatch, answers: nn.Module, share: float
) -> None:
    monkeypatch.setattr(type(model.network), "forward", lambda _, image: answers(image))
    found = model.segment(picture(16, 32), disagreement=True).disagreement
    assert found is not None and found.members is None
    assert found.flips == share
    np.testing.assert_array_equal(found.map.array, np.full((1, 16, 32), share))


def test_labels_of_one_side_are_not_mirrored_to_the_other(tmp_path: Path) -> None:
    """They would be those of the other side, and the network would seem to contradict itself."""
    sided = {0: "background", 1: "left lung", 2: "right lung"}
    write_tiny(tmp_path, "sided", tiny_card("segmentation", labels=sided))
    model = caps_med.load_model("sided", tmp_path)
    assert model.segmenter.views == 2
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(model.network), "forward", lambda _, image: LeftHalf()(image))
        found = model.segment(picture(16, 32), disagreement=True).disagreement
    assert found is not None and found.flips == 0


@pytest.mark.parametrize(
    ("recipe", "views"),
    [
        ({}, 4),
        ({"augmentation": {"flip_columns": 0.5}, "randomization": None}, 4),
        ({"augmentation": {"flip_columns": 0.0}}, 2),
        ({"augmentation": {"flip_columns": 0.5}, "randomization": {"flip_columns": 0.0}}, 2),
        ({"augmentation": "none of ours"}, 4),
    ],
)
def test_a_network_that_has_learned_from_no_mirror_images_is_shown_none(
    tmp_path: Path, recipe: dict[str, Any], views: int
) -> None:
    card = tiny_card("segmentation")
    provenance = card.provenance.model_copy(update={"recipe": recipe})
    write_tiny(tmp_path, "learned", card.model_copy(update={"provenance": provenance}))
    assert caps_med.load_model("learned", tmp_path).segmenter.views == views


def test_disagreement_changes_no_answer(model: Model) -> None:
    for image in (picture(), volume(9, 14, 5)):
        plain, asked = model.segment(image), model.segment(image, disagreement=True)
        np.testing.assert_array_equal(plain.array, asked.array)
        np.testing.assert_array_equal(plain.probabilities.array, asked.probabilities.array)
        assert plain.disagreement is None and asked.disagreement is not None
        assert asked.disagreement.map.array.shape == (1, *image.spatial_shape)
        assert plain.numbers()["uncertainty"] == {"entropy": round(plain.mean_entropy, 4)}
        assert set(asked.numbers()["uncertainty"]) == {"entropy", "flips", "members"}


def test_networks_of_an_ensemble_are_asked_one_by_one(several: Path) -> None:
    model = caps_med.load_model("ensemble", several)
    found = model.uncertainty(picture())
    assert found.members is not None and 0 < found.members <= 2 / 3
    assert isinstance(model.network, Ensemble)
    first, *others = model.network.networks
    for other in others:
        other.load_state_dict(first.state_dict())
    assert model.uncertainty(picture()).members == 0


def test_the_mean_entropy_is_of_the_foreground_or_else_of_all(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = torch.tensor([[0.9, 0.3], [0.1, 0.4], [0.0, 0.3]]).reshape(1, 3, 1, 2)
    each = entropy_of(maps[0].numpy())
    monkeypatch.setattr(type(model.segmenter), "_passes", lambda *_: iter([maps]))
    assert model.segment(picture(1, 2)).mean_entropy == pytest.approx(each[0, 1])
    maps[0, 0, 0, 1] = 0.8
    everywhere = entropy_of(maps[0].numpy()).mean()
    assert model.segment(picture(1, 2)).mean_entropy == pytest.approx(everywhere)


def test_the_descriptor_is_the_mean_pose_of_the_last_layer(model: Model) -> None:
    image = picture(19, 27)  # both are padded
    found = model.uncertainty(image, disagreement=False)
    last = model.layers[-1]
    capsules = model.features(image).layers[last.name]
    assert found.flips is None and found.members is None
    assert found.descriptor.shape == (last.types * last.atoms,)
    np.testing.assert_allclose(found.descriptor, capsules.mean((2, 3)).ravel(), atol=1e-6)


def test_descriptors_are_near_for_like_images(model: Model) -> None:
    def describe(image: MedicalImage) -> NDArray[np.float32]:
        return model.uncertainty(image, disagreement=False).descriptor

    y, x = np.mgrid[:24, :24]
    stripes = (127 + 120 * np.sin(x)).astype(np.uint8)
    noise = np.random.default_rng(0).integers(-8, 8, stripes.shape)
    like = (stripes + noise).clip(0, 255).astype(np.uint8)
    other = (10 * (y + x)).clip(0, 255).astype(np.uint8)
    base, near, far = (describe(MedicalImage(a[None])) for a in (stripes, like, other))
    assert np.linalg.norm(base - near) < np.linalg.norm(base - far)


def test_a_volume_is_described_by_some_slices_or_by_its_middle(
    several: Path, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, ...]] = []

    def counted(network: CapsuleNetwork, slices: Tensor, index: int) -> Tensor:
        seen.append((index, *slices.shape))
        return input_of_slice(network, slices, index)

    monkeypatch.setattr(uncertainty, "input_of_slice", counted)
    model.uncertainty(volume(9, 8, 20), disagreement=False)
    assert [index for index, *_ in seen] == [1, 3, 6, 8, 11, 13, 16, 18]
    seen.clear()
    monkeypatch.setattr(uncertainty, "WINDOW", {2: 768, 3: 8})
    cubes = caps_med.load_model("volumes", several)
    found = cubes.uncertainty(volume(9, 12, 20), disagreement=False)
    assert seen == [(0, 8, 1, 8, 8)]
    assert np.isfinite(found.descriptor).all()


def test_a_network_without_capsules_is_described_by_its_classes(several: Path) -> None:
    found = caps_med.load_model("unet", several).uncertainty(picture(32, 48), disagreement=False)
    maps = found.segmentation.probabilities.array
    np.testing.assert_allclose(found.descriptor, maps.mean((1, 2)), atol=1e-6)


def test_progress_counts_all_views(several: Path) -> None:
    model = caps_med.load_model("ensemble", several)
    steps: list[tuple[int, int]] = []
    model.segment(picture(), disagreement=True, progress=lambda *step: steps.append(step))
    assert steps[0] == (0, 7) and steps[-1] == (7, 7)
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)
