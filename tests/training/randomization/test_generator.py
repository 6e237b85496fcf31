from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from torch import Tensor

from caps_med.images import MedicalImage, Normalization, Plane, SliceStack
from tests.training.randomization.maps import GREY, SCHEME, WHITE, ball, label_maps
from training.randomization import LabelScheme, RandomImages, Randomization
from training.randomization.geometry import Random, random_view
from training.randomization.intensity import blurred, random_contrast, sampled
from training.randomization.label_maps import LabelMaps
from training.randomization.scale import Scale

#: No change of shape; what is seen is the middle of the map, at its own spacing.
STILL = Randomization(
    rotation=0, scaling=0, shear=0, elastic=0, flip_columns=0, shift=0, anywhere=0,
    bias=0, noise=0, gamma=0, masked=0, resolution=(1, 1), thickness=(0, 0), other_planes=0,
)  # fmt: skip


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw(
    count: int = 3,
    seed: int = 0,
    **given: Any,  # noqa: ANN401 - of `RandomImages`
) -> tuple[Tensor, Tensor]:
    values: dict[str, Any] = {"size": (32, 32), "spacing": 2.0, **given}
    config = values.pop("config", Randomization())
    maps = values.pop("maps", label_maps())
    return RandomImages(maps, config, values.pop("size"), **values)(generator(seed), count)


def test_the_same_seed_draws_the_same_images_and_another_others() -> None:
    (one, labels), (again, _), (other, _) = draw(), draw(), draw(seed=1)
    assert one.shape == (3, 1, 32, 32) and labels.shape == (3, 1, 32, 32)
    assert labels.dtype == torch.uint8 and set(labels.unique().tolist()) <= {0, 1, 2}
    assert torch.equal(one, again) and not torch.equal(one, other)


@pytest.mark.parametrize("ranks", [True, False])
def test_normalized_images_lie_between_0_and_1(ranks: bool) -> None:
    image, _ = draw(32, normalization=Normalization(ranks=ranks))
    assert image.isfinite().all() and image.min() >= 0 and image.max() <= 1
    assert image.flatten(1).std(1).median() > 0.1


@pytest.mark.parametrize(
    ("given", "shape"),
    [({"neighbours": 2}, (3, 5, 32, 32)), ({"size": (16, 24, 32)}, (3, 1, 16, 24, 32))],
)
def test_neighbours_are_channels_and_volumes_have_depth(
    given: dict[str, Any], shape: tuple[int, ...]
) -> None:
    image, labels = draw(**given)
    assert image.shape == shape and labels.shape == (3, 1, *shape[2:])


def test_without_changes_a_volume_is_the_label_map() -> None:
    maps = label_maps(1)
    size = tuple(int(n) for n in maps.shape[0])
    _, labels = draw(1, maps=maps, config=STILL, size=size, slice_mm=2.5)
    expected = maps.classes[maps.indices.long()].view(size)
    assert torch.equal(labels[0, 0], expected)
    assert (expected == 2).sum() == (torch.from_numpy(ball()) == WHITE).sum()


@pytest.mark.parametrize(("plane", "number"), [("axial", 0), ("coronal", 1), ("sagittal", 2)])
def test_slices_lie_as_those_that_a_model_is_given(plane: Plane, number: int) -> None:
    """A map without any symmetry, seen in its middle slice, as `SliceStack` shows it."""
    labels = np.zeros((9, 11, 13), np.uint8)
    labels[1:8, 1:10, 1:12] = WHITE
    labels[4:8, 5:9, 6:12], labels[0, 0, 0], labels[-1, -1, -1] = GREY, WHITE, WHITE
    maps = LabelMaps.from_arrays([labels], [(1, 1, 1)], SCHEME)
    axial = SliceStack.from_image(MedicalImage(np.zeros((1, 13, 11, 9)), affine=np.eye(4)))
    stack = SliceStack.from_image(
        MedicalImage(axial.restore(labels[:, None]), affine=np.eye(4)), plane
    )
    middle = stack.array[len(stack.array) // 2, 0]
    view = random_view(
        maps, torch.tensor([0]), torch.tensor([number]), torch.zeros(1, 1), middle.shape,
        (1.0, 1.0), STILL, Random(generator()),
    )  # fmt: skip
    view.points[..., (0, 1, 2)[number]] = labels.shape[number] // 2  # not at random
    seen = np.array(maps.ids)[view.indices(maps)[0][0, 0]]
    np.testing.assert_array_equal(seen, middle)


def test_the_labels_of_a_thick_slice_are_those_of_its_middle() -> None:
    """A border that is oblique to the slices: as much of the blurred one lies on either side."""
    depth, _, column = np.meshgrid(*(np.arange(64),) * 3, indexing="ij")
    labels = np.where(column > depth, WHITE, GREY).astype(np.uint8)
    maps = LabelMaps.from_arrays([labels], [(1, 1, 1)], SCHEME)
    own = {"thickness": (10, 10), "deviation": (0, 0), "plain_background": 0}
    config = STILL.model_copy(update=own)
    images, drawn = draw(32, config=config, maps=maps, size=(64, 64), spacing=1.0)
    right = (drawn[:, 0] == 2).float().mean(1)
    profile = images[:, 0].mean(1)
    first, last = profile[:, :1], profile[:, -1:]
    seen = (right.sum(1) > 16) & (right.sum(1) < 48) & ((last - first).abs() > 0.1)[:, 0]
    assert seen.sum() > 3
    share = ((profile - first) / (last - first))[seen]
    torch.testing.assert_close(share.sum(1), right[seen].sum(1), atol=0.01, rtol=0)


def test_rows_and_columns_have_their_own_distances() -> None:
    maps = label_maps(1)
    extents = []
    for spacing in ((2.0, 2.0), (2.0, 4.0)):
        _, labels = draw(1, maps=maps, config=STILL, size=(24, 30, 28), slice_mm=2.5,
                         spacing=spacing)  # fmt: skip
        there = labels[0, 0].sum(0) > 0
        extents.append((int(there.any(1).sum()), int(there.any(0).sum())))
    (rows, columns), (same, half) = extents
    assert same == rows and abs(half - columns / 2) <= 1


@pytest.mark.parametrize("neighbours", [1, 2, 3])
def test_slices_go_through_the_labels_whatever_their_neighbours_are(neighbours: int) -> None:
    labels = np.full((80, 40, 40), GREY, np.uint8)
    labels[38:42] = WHITE
    scheme = LabelScheme.model_validate({"labels": {1: {"name": "w", "ids": [WHITE]}}})
    maps = LabelMaps.from_arrays([labels], [(1, 1, 1)], scheme)
    config = STILL.model_copy(update={"thickness": (6.0, 6.0)})
    _, drawn = draw(16, config=config, maps=maps, spacing=1.0, neighbours=neighbours)
    assert (drawn == 1).flatten(1).any(1).all()


def points_of(
    size: tuple[int, int], offsets: Tensor, config: Randomization, slice_mm: float | None
) -> Tensor:
    view = random_view(
        label_maps(1), torch.tensor([0]), torch.tensor([0]), offsets[None], size, (1.0, 1.0),
        config, Random(generator(2)), slice_mm,
    )  # fmt: skip
    return view.points[0]


def test_the_layers_of_a_slice_are_displaced_alike_and_those_of_a_deep_volume_are_not() -> None:
    config = STILL.model_copy(update={"elastic": 8.0, "elastic_spacing": 20.0})
    offsets = torch.arange(25.0)
    flat = points_of((96, 96), offsets, config, None)
    assert torch.allclose(flat[:1, ..., 1:], flat[..., 1:])  # within its plane
    for slice_mm, knots in ((0.1, 0), (1.0, 1), (4.0, 5)):
        volume = points_of((96, 96), slice_mm * offsets, config, slice_mm)
        bends = volume[:, 48, 48, 1].diff(n=2).abs() > 1e-3
        assert bool(volume[:, 48, 48, 1].std() > 0.01) == bool(knots)
        # trilinear: straight but at the knots between both ends, each within two slices
        assert (knots == 5) == bool(bends.any()) and bends.sum() <= 2 * max(0, knots - 1)


@pytest.mark.parametrize("slice_mm", [1.0, 4.0])
def test_volumes_are_as_blurred_across_slices_as_along_them(slice_mm: float) -> None:
    """In millimetres: two halves, the border between them across the slices or along them."""
    size = {"across": (round(64 / slice_mm), 8, 64), "along": (8, 64, 64)}
    config = STILL.model_copy(
        update={"resolution": (8.0, 8.0), "deviation": (0, 0), "plain_background": 0, "related": 0}
    )
    scheme = LabelScheme.of_ids([1, 2])
    widths = {}
    for number, (way, shape) in enumerate(size.items()):
        labels = np.ones(shape, np.uint8)
        labels[(slice(None),) * number + (slice(shape[number] // 2, None),)] = 2
        maps = LabelMaps.from_arrays([labels], [(slice_mm, 1, 1)], scheme)
        images, _ = draw(12, config=config, maps=maps, size=shape, spacing=1.0, slice_mm=slice_mm)
        profile = images[:, 0].movedim(1 + number, 1)[:, :, 2, 32]
        change = (profile.diff(dim=1) / (profile[:, -1:] - profile[:, :1])).abs()
        step = (slice_mm, 1.0)[number]
        widths[way] = float((step / change.amax(1)).median())
    assert widths["across"] == pytest.approx(widths["along"], rel=0.35)


def test_a_label_has_the_mean_and_deviation_that_were_drawn() -> None:
    maps = label_maps(1)
    masked = torch.zeros(4000, dtype=torch.bool)
    config = Randomization(related=0, mean=(0.2, 0.8), deviation=(0.02, 0.05), plain_background=0)
    found = random_contrast(maps, masked, config, Random(generator()))
    own = found.mean[:, 1:]
    assert own.min() >= 0.2 and own.max() <= 0.8
    assert abs(own.mean() - 0.5) < 0.02
    assert found.deviation[:, 1:].min() >= 0.02 and found.deviation[:, 1:].max() <= 0.05
    together = random_contrast(
        maps, masked, config.model_copy(update={"related": 1.0}), Random(generator())
    )
    grey, white = (maps.ids.index(i) for i in (GREY, WHITE))
    assert (together.mean[:, grey] - together.mean[:, white]).abs().mean() > 0.1  # two classes


def test_a_mask_leaves_nothing_of_the_outside_but_what_is_within_its_margin() -> None:
    config = Randomization(
        masked=1, margin=(0, 0), plain_background=0, noise=0, bias=0, resolution=(1, 1),
        thickness=(0, 0),
    )  # fmt: skip
    image, labels = draw(24, config=config)
    unmasked, more = draw(24, config=config.model_copy(update={"masked": 0.0}))
    background = image.flatten(1)[:, :1].view(-1, 1, 1, 1)
    constant = (image - background).abs() < 1e-6
    assert (constant | (labels > 0)).float().mean() > 0.95
    assert (labels == more).all()  # the mask hides no label here
    assert (
        (unmasked - unmasked.flatten(1)[:, :1].view(-1, 1, 1, 1)).abs() < 1e-6
    ).float().mean() < 0.5


def test_blur_is_gaussian_along_each_axis() -> None:
    image = torch.rand(2, 1, 20, 30, generator=generator())
    sigma = torch.tensor([[0.8, 1.6], [1.2, 0.001]])
    found = blurred(image, sigma, radius=8)
    for one, blur, (rows, columns) in zip(image, found, sigma.tolist(), strict=True):
        expected = gaussian_filter(one[0].numpy(), (rows, columns), mode="nearest", radius=8)
        np.testing.assert_allclose(blur[0], expected, atol=1e-5)


def test_coarse_pixels_are_interpolated_from_every_other() -> None:
    ramp = torch.arange(12.0).view(1, 1, 1, 12).repeat(2, 1, 4, 1)
    width = torch.tensor([[1.0, 1.0], [1.0, 3.0]])
    found = sampled(ramp, width, Random(generator()))
    assert torch.allclose(found[0], ramp[0])
    np.testing.assert_allclose(found[1, 0, 0, 3:9], ramp[1, 0, 0, 3:9], atol=1.0)
    steps = found[1, 0, 0].diff()
    assert (steps[3:8] > 0).all()
    noise = torch.randn(1, 1, 40, 40, generator=generator(1))
    coarse = sampled(noise, torch.tensor([[1.0, 4.0]]), Random(generator(3)))
    assert (coarse[..., 1:] * coarse[..., :-1]).mean() > 0.5 * coarse.square().mean()
    assert abs((coarse[:, :, 1:] * coarse[:, :, :-1]).mean()) < 0.2 * coarse.square().mean()


@pytest.mark.parametrize("ranks", [True, False])
def test_the_scale_is_that_of_the_whole_image(ranks: bool) -> None:
    """Of slices that show all there is, the tabulated scale is that of `Normalization`."""
    maps, normalization = label_maps(1), Normalization(ranks=ranks)
    random = Random(generator(4))
    masked = torch.tensor([False, True])
    contrast = random_contrast(maps, masked, Randomization(plain_background=0), random)
    contrast.mean[:, 0] = torch.tensor([0.02, 0.0])
    contrast.deviation[:, 0] = torch.tensor([0.01, 0.0])
    shares = torch.full((2, len(maps.ids)), 1 / len(maps.ids))
    index = torch.arange(len(maps.ids)).repeat(20_000)
    images = contrast.mean[:, index] + contrast.deviation[:, index] * random.normal(2, len(index))
    scale = Scale.of(normalization, contrast, shares, torch.zeros(2, 1, 2, 2))
    found = scale.apply(images.view(2, 1, 1, -1)).view(2, -1)
    for one, scaled in zip(images, found, strict=True):
        expected = normalization.apply(one.numpy()[None])[0]
        assert np.abs(expected - scaled.numpy()).mean() < 0.02


def test_a_picture_has_nothing_in_front_of_it_or_behind() -> None:
    picture = ball()[12:13]
    maps = LabelMaps.from_arrays([picture], [(1.0, 1.0, 1.0)], SCHEME)
    config = STILL.model_copy(update={"rotation": 0.3, "elastic": 5.0, "thickness": (6.0, 6.0)})
    _, labels = draw(8, maps=maps, config=config, spacing=1.0)
    inside = (labels == 2).flatten(1).sum(1)
    true = (torch.from_numpy(picture) == WHITE).sum()
    assert ((inside - true).abs() < 0.35 * true).all()
