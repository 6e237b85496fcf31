"""Maps of any size, in two and three dimensions, and what is too large for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import caps_med
from caps_med import samples
from caps_med.bundles import ModelCard, ModelRepository, NetworkSpec
from caps_med.errors import InputTooLarge, InvalidInput, InvalidParameter
from caps_med.images import Limits, MedicalImage, SliceStack
from caps_med.inference import Model, passes
from caps_med.networks import CapsPix2Pix, SegCaps, one_hot
from caps_med.networks.padding import cropped, padded
from tests.conftest import tiny_card, write_tiny


def written(root: Path, task: str, **arguments: object) -> Model:
    """A tiny model with these arguments beside those of `tiny_card`."""
    card: ModelCard = tiny_card(task)
    spec = NetworkSpec(name=card.network.name, arguments={**card.network.arguments, **arguments})
    write_tiny(root, "mine", card.model_copy(update={"network": spec}))
    return caps_med.load_model("mine", root)


def volume(affine: np.ndarray | None = None) -> MedicalImage:
    array = np.random.default_rng(6).uniform(0, 1, (1, 18, 20, 13)).astype(np.float32)
    return MedicalImage(array, np.eye(4) if affine is None else affine, format="nifti")


def label_volume(shape: tuple[int, ...] = (18, 20, 13)) -> MedicalImage:
    ids = np.random.default_rng(7).choice([0, 2, 7], (1, *shape)).astype(np.uint8)
    return MedicalImage(ids, format="nifti", kind="labels")


@pytest.mark.parametrize("sizes", [(8, 16), (1, 9), (3, 8, 15)])
def test_padding_is_undone_by_cropping(sizes: tuple[int, ...]) -> None:
    maps, dims = torch.rand(2, 3, *sizes), len(sizes)
    for network in (SegCaps(dims, 3, atoms=2), CapsPix2Pix(dims, label_channels=3)):
        whole = padded(network, maps)
        assert all(size % 8 == 0 for size in whole.shape[2:])
        assert torch.equal(cropped(whole, maps.shape[2:]), maps)


def test_images_are_continued_by_their_edges_and_label_maps_by_the_first_class() -> None:
    maps = torch.arange(1.0, 7).reshape(1, 1, 2, 3)
    image = padded(SegCaps(2, 1, atoms=2), maps)
    assert image[0, 0, 5].tolist() == [4, 5, 6, 6, 6, 6, 6, 6]
    labels = padded(CapsPix2Pix(2), maps)
    assert labels.sum() == maps.sum()


@pytest.mark.parametrize("network", ["UNet", "Ensemble"])
@pytest.mark.parametrize("size", [(1, 1), (16, 3), (2, 9, 3)])
def test_the_smallest_images_fit_a_network_that_normalizes_its_coarsest_maps(
    network: str, size: tuple[int, ...], tmp_path: Path
) -> None:
    arguments = {"spatial_dims": len(size), "out_channels": 3, "features": [4, 4, 8, 8, 8, 4]}
    if network == "Ensemble":
        arguments = {"network": "UNet", "members": 2, "arguments": arguments}
    spec = NetworkSpec(name=network, arguments=arguments)
    spacing = (1.0, 1.0) if len(size) == 3 else None
    write_tiny(tmp_path, "tiny", tiny_card("segmentation", spacing, spec))
    image = np.random.default_rng(0).integers(0, 255, (1, *size)).astype(np.uint8)
    answer = caps_med.load_model("tiny", tmp_path).segment(MedicalImage(image))
    assert answer.spatial_shape == size
    assert np.isfinite(answer.probabilities.array).all()


def test_the_edge_of_a_tile_is_not_an_edge_in_the_image() -> None:
    """A tile whose size is no multiple of 8, against the same place of the whole image."""
    model = caps_med.load_model("axon-segmentation")
    image = model.read(samples.AXONS, "image")
    whole = model.segment(image)
    tile = MedicalImage(image.array[:, :, :83], format="png")
    cut = model.segment(tile).array[0, :, -8:] > 0
    wanted = whole.array[0, :, 75:83] > 0
    assert (cut & ~wanted).sum() < 40  # continued with zeros: 362 of 1024 pixels
    assert 2 * (cut & wanted).sum() / (cut.sum() + wanted.sum()) > 0.7


def test_a_three_dimensional_network_sees_the_volume(tmp_path: Path) -> None:
    affine = np.diag([-1.0, 1.0, 1.0, 1.0])
    model, image = written(tmp_path, "segmentation", spatial_dims=3), volume(affine)
    result = model.segment(image)
    scaled = model.bundle.card.normalization.apply(SliceStack.from_image(image).array)
    continued = np.pad(scaled[:, 0], ((0, 3), (0, 4), (0, 6)), mode="edge")
    maps = torch.from_numpy(continued)[None, None]
    with torch.inference_mode():
        wanted = model.segmenter.network(maps.to(passes.device_of(model.network))).cpu()
    found = SliceStack.from_image(result.probabilities).array
    np.testing.assert_allclose(found, wanted[0, :, :13, :20, :18].movedim(0, 1), atol=1e-5)
    np.testing.assert_array_equal(result.affine, affine)

    features = model.features(image, slice=5)
    np.testing.assert_allclose(features.lengths("seg_caps"), found[5], atol=1e-5)
    assert features.layers["conv_cap_3_2"].shape == (8, 16, 3, 3)
    assert features.contact_sheet().array.shape[0] == 3


def test_a_three_dimensional_generator_fills_the_volume(tmp_path: Path) -> None:
    model = written(tmp_path, "synthesis", spatial_dims=3)
    result = model.synthesize(label_volume(), seed=2)
    assert result.array.shape == (1, 18, 20, 13)
    assert np.isfinite(result.array).all()
    assert model.features(label_volume()).layers["convcaps10"].shape == (1, 4, 20, 18)


def test_a_large_volume_goes_in_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, image = written(tmp_path, "segmentation", spatial_dims=3), volume()
    whole = model.segment(image)
    monkeypatch.setattr(passes, "PASS_POSITIONS", 16**3)
    monkeypatch.setattr(passes, "WINDOW", {3: 16})
    windows = model.segment(image)
    assert windows.array.shape == whole.array.shape
    assert not np.array_equal(windows.probabilities.array, whole.probabilities.array)
    assert (windows.array == whole.array).mean() > 0.5


def test_a_picture_is_no_volume(tmp_path: Path) -> None:
    flat = MedicalImage(np.zeros((1, 16, 16), np.uint8), format="png")
    segmentation = written(tmp_path, "segmentation", spatial_dims=3)
    with pytest.raises(InvalidInput, match="the image is a picture, but mine takes volumes"):
        segmentation.segment(flat)
    synthesis = written(tmp_path / "s", "synthesis", spatial_dims=3)
    with pytest.raises(InvalidInput, match="the label map is a picture, but mine takes volumes"):
        synthesis.synthesize(MedicalImage(flat.array, format="png", kind="labels"))


def test_a_large_label_map_goes_in_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise is the same in all windows, which differ near their edges alone."""
    model = written(tmp_path, "synthesis", noise_source="broadcast_conv", noise_size=16)
    ids = np.zeros((1, 96, 112, 1), np.uint8)
    ids[:, 10:50, 20:90], ids[:, 40:80, 30:60] = 2, 7
    labels = MedicalImage(ids, format="nifti", kind="labels")
    whole, other = (model.synthesize(labels, seed=seed).array for seed in (3, 4))
    monkeypatch.setattr(passes, "PASS_POSITIONS", 48 * 48)
    monkeypatch.setattr(passes, "WINDOW", {2: 80})
    difference = np.abs(model.synthesize(labels, seed=3).array - whole)
    assert 0 < difference.mean() < 0.1 * np.abs(other - whole).mean()
    assert (difference == 0).mean() > 0.5


def test_noise_that_is_bound_to_its_place_is_never_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = written(tmp_path, "synthesis", noise_source="broadcast", noise_size=16)
    labels = label_volume((32, 40, 2))
    whole = model.synthesize(labels, seed=1).array
    monkeypatch.setattr(passes, "PASS_POSITIONS", 16 * 16)
    np.testing.assert_array_equal(model.synthesize(labels, seed=1).array, whole)
    monkeypatch.setattr(passes, "WHOLE_POSITIONS", 32 * 32)
    with pytest.raises(InputTooLarge, match="32 × 40 pixels cannot be processed whole"):
        model.synthesize(labels, seed=1)


def test_features_of_what_does_not_fit_the_memory(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "WHOLE_POSITIONS", 400)
    model = caps_med.load_model("tiny-segmentation", models)
    with pytest.raises(
        InputTooLarge,
        match=r"21 × 20 pixels cannot be processed whole.*at most 400 positions; crop",
    ):
        model.features(MedicalImage(np.zeros((1, 20, 21), np.uint8), format="png"))
    assert model.features(volume()).layers["conv1"].shape == (1, 4, 20, 18)


def test_huge_pixels_are_a_wrong_header(models: Path) -> None:
    """A header of a few bytes must not make the service compute for hours."""
    image = MedicalImage(np.zeros((1, 20, 20, 1), np.float32), np.diag([400.0, 400, 1, 1]))
    with pytest.raises(InvalidInput, match=r"pixels are 400 x 400 mm, over 10 times the 1 x 1 mm"):
        caps_med.load_model("tiny-segmentation", models).segment(image)


def test_micrometres_in_place_of_millimetres_are_a_wrong_header(models: Path) -> None:
    """It was told to be empty, for all of it came to one pixel."""
    image = MedicalImage(np.zeros((1, 20, 20, 1), np.float32), np.diag([0.001, 0.001, 0.001, 1]))
    with pytest.raises(
        InvalidInput,
        match=r"pixels are 0.001 x 0.001 mm, so that a slice has 1 x 1 at the 1 x 1 mm",
    ):
        caps_med.load_model("tiny-segmentation", models).segment(image)


def test_limits_hold_at_the_networks_spacing(models: Path) -> None:
    bundle = ModelRepository(models).find("tiny-segmentation")
    image = MedicalImage(np.zeros((1, 20, 20, 2), np.float32), np.diag([3.0, 3, 1, 1]))
    with pytest.raises(InputTooLarge, match=r"2 x 60 x 60 are 7200 voxels, allowed are 7000"):
        Model(bundle, Limits(max_voxels=7000)).segment(image)
    assert Model(bundle, Limits(max_voxels=7200)).segment(image).array.shape == (1, 20, 20, 2)


def test_a_tanh_generator_uses_its_whole_range(tmp_path: Path) -> None:
    model = written(tmp_path, "synthesis", output="tanh")
    labels = MedicalImage(label_volume((24, 32, 1)).array[..., 0], format="npy", kind="labels")
    classes, z = model.synthesizer.prepare(labels).slices, model.synthesizer.noise(4)
    device = passes.device_of(model.network)
    with torch.inference_mode():
        raw = model.network(one_hot(classes, 3).to(device), z.to(device)).cpu()
    assert raw.min() < -0.1
    found = model.synthesize(labels, seed=4).array
    np.testing.assert_allclose(found, (raw[0].numpy() + 1) / 2, atol=1e-6)


def test_images_that_are_no_batch(tmp_path: Path, models: Path) -> None:
    """Of two volumes, a 3-D network took the second for the next slices of the first."""
    segmenter = caps_med.load_model("tiny-segmentation", models).segmenter
    pictures = [MedicalImage(np.ones((1, rows, 16), np.float32)) for rows in (16, 24)]
    with pytest.raises(InvalidParameter, match="slices of 16 × 16 pixels, 16 × 24 pixels at"):
        segmenter.many(pictures)
    synthesizer = caps_med.load_model("tiny-synthesis", models).synthesizer
    labels = [label_volume(size) for size in ((16, 16, 2), (16, 24, 2))]
    with pytest.raises(InvalidParameter, match="at the network's spacing: give equal sizes"):
        synthesizer.many(labels, [1, 2])
    with pytest.raises(InvalidParameter, match="2 label maps, 1 seeds: give one each"):
        synthesizer.many(labels, [1])
    with pytest.raises(InvalidParameter, match="2 volumes: a 3-D network takes one at a time"):
        written(tmp_path, "segmentation", spatial_dims=3).segmenter.many([volume(), volume()])


def test_a_number_of_a_device_is_pytorch_s(models: Path) -> None:
    """0 was taken for no device at all."""
    if torch.accelerator.is_available():
        found = caps_med.load_model("tiny-segmentation", models, device=0)
        assert next(found.network.parameters()).device == torch.empty(0, device=0).device
        return
    with pytest.raises(InvalidParameter, match="device='0': this machine has no such device"):
        caps_med.load_model("tiny-segmentation", models, device=0)


@pytest.mark.parametrize("device", [-7, 2**70, 1.5])
def test_what_is_no_device(models: Path, device: Any) -> None:  # noqa: ANN401
    with pytest.raises(InvalidParameter, match="this machine has no such device"):
        caps_med.load_model("tiny-segmentation", models, device=device)


def test_a_device_that_is_not_there(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPS_MED_DEVICE", "cuda:99")
    with pytest.raises(
        InvalidParameter, match="CAPS_MED_DEVICE='cuda:99': this machine has no such device"
    ):
        caps_med.load_model("tiny-segmentation", models)
    for device in ("cuda:99", "gpu", torch.device("cuda:99"), "meta", "hpu"):
        with pytest.raises(InvalidParameter, match=f"device='{device}': this machine has no such"):
            caps_med.load_model("tiny-segmentation", models, device)
    caps_med.load_model("tiny-segmentation", models, "cpu")  # whatever the variable says
    monkeypatch.setenv("CAPS_MED_DEVICE", "cpu")
    assert passes.device_of(caps_med.load_model("tiny-synthesis", models).network).type == "cpu"


@pytest.mark.parametrize("spatial_dims", [2, 3])
@pytest.mark.parametrize("divisor", [8, 16])
def test_windows_cover_an_axis_with_little_to_spare(spatial_dims: int, divisor: int) -> None:
    largest = passes.WINDOW[spatial_dims]
    for size in range(divisor, 6 * largest, divisor):
        edge, distance = passes._windows(size, spatial_dims, divisor)
        assert edge <= max(largest + divisor, size if size <= largest else 0)
        assert edge % divisor == 0 and distance % divisor == 0
        count = 1 + max(0, -(-(size - edge) // distance))
        assert (count - 1) * distance + edge >= size
        if size > largest:
            assert edge - distance >= largest * passes.OVERLAP[spatial_dims]


def test_a_large_picture_is_not_computed_twice() -> None:
    """Positions of all windows over those of the picture, along one axis."""
    for size, most in ((1024, 1.05), (2048, 1.09)):
        edge, distance = passes._windows(size, 2, 8)
        count = 1 + -(-(size - edge) // distance)
        assert count * edge / size <= most


def test_many_tiny_slices_are_many_passes(models: Path) -> None:
    """A slice of one pixel is padded to a whole tile: 300 of them are no single pass."""
    model, asked = caps_med.load_model("tiny-segmentation", models), 0

    def wanted() -> bool:
        nonlocal asked
        asked += 1
        return asked < 3

    thin = MedicalImage(np.zeros((1, 1, 1, 300), np.uint8), np.eye(4))
    with passes.cancelled_unless(wanted), pytest.raises(passes.Cancelled):
        model.segment(thin)


def test_a_long_thin_picture_is_padded_in_parts(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padded to the divisor it is eight times as large, and over the limit of what is whole."""
    monkeypatch.setattr(passes, "PASS_POSITIONS", 64 * 64)
    monkeypatch.setattr(passes, "WHOLE_POSITIONS", 64 * 64)
    model = caps_med.load_model("tiny-segmentation", models)
    line = MedicalImage(np.zeros((1, 1, 4000), np.uint8))
    grid = model.bundle.card.preprocessing.grid(line)
    assert passes.pass_positions(model.network, grid) < 8 * 800
    assert model.segment(line).spatial_shape == (1, 4000)
    with pytest.raises(InputTooLarge, match="cannot be processed whole"):
        model.features(line)


def test_work_that_is_not_wanted_ends_before_the_next_layer(models: Path) -> None:
    model = caps_med.load_model("tiny-segmentation", models)
    ran: list[str] = []
    for name, module in model.network.named_children():
        module.register_forward_hook(lambda *_, name=name: ran.append(name))
    image = MedicalImage(np.zeros((1, 32, 32), np.uint8))
    with passes.cancelled_unless(lambda: len(ran) < 3), pytest.raises(passes.Cancelled):
        model.features(image)
    assert len(ran) == 3


def test_of_nested_layers_the_innermost_ask_whether_the_answer_is_wanted() -> None:
    inner = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Sequential(torch.nn.ReLU()))
    network, asked = passes.cancellable(inner), 0

    def wanted() -> bool:
        nonlocal asked
        asked += 1
        return True

    with passes.cancelled_unless(wanted):
        network(torch.zeros(1))
    assert asked == 2
