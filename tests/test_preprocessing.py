"""What a network sees while it serves a file is what training prepared from that file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import nibabel
import numpy as np
import pytest
import tifffile
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn import functional

import caps_med
from caps_med.bundles import ModelRepository
from caps_med.errors import InputTooLarge, InvalidInput, InvalidParameter
from caps_med.images import Limits, MedicalImage, Normalization
from caps_med.networks import build_network, one_hot
from caps_med.preprocessing import (
    PicturePreprocessing,
    Preprocessing,
    single_slice_plane,
    with_neighbours,
)
from training.data import Preparation, Source, load_source, open_dataset
from training.engine.recipe import Recipe
from training.tasks.planning import plan
from training.tasks.publish import publish
from training.tasks.segmentation import SegmentationRecipe
from training.tasks.synthesis.recipe import SynthesisRecipe

OBLIQUE = np.array([[0, 0.2, 2.5, 3], [-1.1, 0.1, 0.3, 7], [0.1, -1.3, 0.2, -9], [0, 0, 0, 1.0]])
FINER = np.array([[-0.7, 0, 0, 0], [0, 0.9, 0, 0], [0, 0, 2, 0], [0, 0, 0, 1.0]])
STRAIGHT = np.diag([-1.0, 1.2, 2.0, 1.0])
THIN = np.diag([3.0, 0.5, 0.5, 1.0])


class Data(NamedTuple):
    """How cases are made, and how they are prepared."""

    shape: tuple[int, ...]
    affines: tuple[NDArray[np.float64] | None, ...]  # None: a picture
    preparation: Mapping[str, Any] = MappingProxyType({})


DATA = {
    "2-D": Data((21, 26), (None, None)),
    "RGB": Data((21, 26, 3), (None, None)),
    "window": Data((21, 26), (None, None), {"normalization": Normalization(window=(10, 150))}),
    "slices": Data((26, 34, 18), (STRAIGHT, STRAIGHT)),
    "2.5-D": Data((26, 34, 18), (STRAIGHT, STRAIGHT), {"neighbours": 2}),
    "3-D": Data((26, 34, 18), (STRAIGHT, STRAIGHT), {"spatial_dims": 3}),
    "coronal": Data((26, 34, 18), (STRAIGHT, STRAIGHT), {"plane": "coronal"}),
    "anisotropic": Data((26, 34, 18), (FINER, FINER), {"spacing_mm": (0.9, 0.7)}),
    "oblique": Data((26, 18, 34), (OBLIQUE, OBLIQUE)),
    "resampled": Data((26, 34, 18), (STRAIGHT, FINER)),
    "resampled 2.5-D": Data((26, 34, 18), (STRAIGHT, FINER), {"neighbours": 1}),
    "resampled 3-D": Data((26, 34, 18), (STRAIGHT, FINER), {"spatial_dims": 3}),
    "resampled in all directions": Data(
        (26, 34, 18), (STRAIGHT, FINER), {"spatial_dims": 3, "slice_mm": 1.5}
    ),
    "resampled to finer slices, 2.5-D": Data(
        (26, 34, 18), (STRAIGHT, FINER), {"neighbours": 1, "slice_mm": 1.5}
    ),
    "nearly equal": Data((26, 34, 18), (STRAIGHT, STRAIGHT @ np.diag([1.008, 1, 1, 1]))),
    "one sagittal slice": Data((1, 21, 18), (THIN, THIN)),
}
SERVED = "1"  # the second case: of another spacing where the data are resampled


def write_cases(root: Path, data: Data) -> Path:
    """Two cases, noise over labels 0 to 2 that every slice holds; the file of the second."""
    rng = np.random.default_rng(3)
    for kind in ("images", "labels"):
        (root / kind).mkdir(parents=True)
    for number, affine in enumerate(data.affines):
        label = rng.integers(0, 3, data.shape[:2] if affine is None else data.shape)
        noise = rng.integers(0, 200, data.shape)
        for kind, array in (("images", noise), ("labels", label)):
            file = root / kind / f"{number}"
            if affine is None:
                Image.fromarray(array.astype(np.uint8)).save(file.with_suffix(".png"))
            else:
                dtype = np.float32 if kind == "images" else np.uint8
                volume = nibabel.Nifti1Image(array.astype(dtype), affine)
                nibabel.save(volume, file.with_suffix(".nii.gz"))
    return next((root / "images").glob(f"{SERVED}.*"))


def prepared(source: Source, key: str) -> NDArray[np.generic]:
    """The second case's samples: `[D, C, H, W]`, or `[1, C, D, H, W]` for a 3-D network."""
    chosen = [i for i, group in enumerate(source.groups) if group == SERVED]
    return np.stack([source.samples[i][key] for i in chosen])


def published(source: Source, task: str, models: Path) -> None:
    """A version of the model `tiny`, untrained."""
    recipe: Recipe = (
        SynthesisRecipe(data="x", seed=0, atoms=2)
        if task == "synthesis"
        else SegmentationRecipe(
            data="x", seed=0, learning_rate=0.1, network="unet", features=(4,) * 6
        )
    )
    spec = recipe.network_spec(source)
    network = build_network(spec.name, spec.arguments)
    publish(ModelRepository(models), "tiny", [(network, source)], recipe, "pytest")


def served(models: Path, task: str, file: Path | list[Path]) -> Tensor:
    """The inputs of the network while it answers to a file, or to one for each channel."""
    model, seen = caps_med.load_model("tiny", models), []
    with model.network.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0])):
        model.segment(file) if task == "segmentation" else model.synthesize(file)
    return torch.cat([torch.as_tensor(one) for one in seen])


def check_equal(seen: Tensor, trained: Tensor) -> None:
    """Equal to the last bit; the last pixels are repeated up to the network's divisor."""
    axes = reversed(range(2, seen.dim()))
    widths = [n for axis in axes for n in (0, seen.shape[axis] - trained.shape[axis])]
    assert torch.equal(seen, functional.pad(trained, widths, mode="replicate"))


@pytest.mark.parametrize("name", DATA)
def test_a_served_image_is_what_training_prepared(name: str, tmp_path: Path) -> None:
    file = write_cases(tmp_path / "data", DATA[name])
    preparation = Preparation(**DATA[name].preparation)
    source = load_source(open_dataset(tmp_path / "data"), tmp_path / "store", preparation)
    published(source, "segmentation", tmp_path / "models")
    seen = served(tmp_path / "models", "segmentation", file)
    trained = torch.from_numpy(prepared(source, "image"))
    assert trained.shape[1] == (3 if name == "RGB" else 1 + 2 * preparation.neighbours)
    assert trained.std() > 0.1
    check_equal(seen, trained)


def write_channels(root: Path, layout: str) -> list[Path]:
    """Two cases of two channels that differ in scale and dtype; the files of the second."""
    rng = np.random.default_rng(4)
    shape, names = (26, 34, 18), {"channel_names": {"0": "FLAIR", "1": "T1"}}
    for folder in ("imagesTr", "labelsTr"):
        (root / folder).mkdir(parents=True)
    (root / "dataset.json").write_text(json.dumps(names))
    for number, affine in enumerate((STRAIGHT, FINER)):
        flair, t1 = rng.integers(0, 3000, shape, np.int16), rng.integers(0, 90, shape, np.uint8)
        files = {f"{number}_0000": flair, f"{number}_0001": t1}
        if layout == "one file":
            files = {f"{number}": np.stack([flair, t1], -1)}
        for name, array in files.items():
            image = nibabel.Nifti1Image(array, affine)
            image.header.set_slope_inter(0.7, 3)  # as scanners scale
            nibabel.save(image, root / "imagesTr" / f"{name}.nii.gz")
        label = nibabel.Nifti1Image(rng.integers(0, 3, shape, np.uint8), affine)
        nibabel.save(label, root / "labelsTr" / f"{number}.nii.gz")
    return sorted((root / "imagesTr").glob(f"{SERVED}*"))


@pytest.mark.parametrize("dims", ["2d", "2.5d", "3d"])
@pytest.mark.parametrize("layout", ["files", "one file"])
def test_served_channels_are_what_training_prepared(layout: str, dims: str, tmp_path: Path) -> None:
    files = write_channels(tmp_path / "data", layout)
    dataset = open_dataset(tmp_path / "data")
    assert dataset.card is not None
    preparation = plan(dataset.card, torch.device("cpu"), dims)["preparation"]
    assert preparation.normalization.per_channel
    source = load_source(dataset, tmp_path / "store", preparation)
    published(source, "segmentation", tmp_path / "models")
    trained = torch.from_numpy(prepared(source, "image"))
    assert trained.shape[1] == 2 * (2 * preparation.neighbours + 1)
    assert trained.std(trained.dim() - 1).min() > 0.1  # every channel shows something
    check_equal(served(tmp_path / "models", "segmentation", files), trained)
    card = caps_med.load_model("tiny", tmp_path / "models").bundle.card
    assert card.channel_names == ("FLAIR", "T1")


@pytest.mark.parametrize("form", ["npy, last", "npy, first", "pages", "samples", "grey as RGB"])
def test_served_channels_of_a_picture_are_what_training_prepared(form: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    for kind in ("images", "labels"):
        (tmp_path / "data" / kind).mkdir(parents=True)
    for number in range(2):
        channels = rng.integers(0, 200, (2, 21, 26), np.uint8) * np.array(
            [[[1]], [[20]]], np.uint16
        )
        file = tmp_path / "data" / "images" / f"{number}"
        if form == "grey as RGB":
            Image.fromarray(channels[0].astype(np.uint8)).convert("RGB").save(f"{file}.png")
        elif form == "npy, last":
            np.save(f"{file}.npy", np.moveaxis(channels, 0, -1))
        elif form == "npy, first":
            np.save(f"{file}.npy", channels)
        elif form == "pages":
            tifffile.imwrite(f"{file}.tif", channels, imagej=True, metadata={"axes": "CYX"})
        else:
            tifffile.imwrite(
                f"{file}.tif", np.moveaxis(channels, 0, -1), photometric="minisblack",
                planarconfig="contig", extrasamples=[0],
            )  # fmt: skip
        label = rng.integers(0, 3, (21, 26), np.uint8)
        Image.fromarray(label).save(tmp_path / "data" / "labels" / f"{number}.png")
    dataset = open_dataset(tmp_path / "data")
    assert dataset.findings == () and dataset.card is not None
    preparation = plan(dataset.card, torch.device("cpu"))["preparation"]
    source = load_source(dataset, tmp_path / "store", preparation)
    published(source, "segmentation", tmp_path / "models")
    trained = torch.from_numpy(prepared(source, "image"))
    assert trained.shape[1] == (1 if form == "grey as RGB" else 2)
    (served_file,) = (tmp_path / "data" / "images").glob(f"{SERVED}.*")
    check_equal(served(tmp_path / "models", "segmentation", served_file), trained)


@pytest.mark.parametrize("name", ["2-D", "slices", "oblique", "resampled", "one sagittal slice"])
def test_a_served_label_map_is_what_training_prepared(name: str, tmp_path: Path) -> None:
    file = write_cases(tmp_path / "data", DATA[name])
    source = load_source(open_dataset(tmp_path / "data"), tmp_path / "store")
    published(source, "synthesis", tmp_path / "models")
    label = tmp_path / "data" / "labels" / file.name
    seen = served(tmp_path / "models", "synthesis", label)
    trained = one_hot(torch.from_numpy(prepared(source, "label")), source.class_channels)
    assert len(trained.unique()) == 2
    padding = torch.zeros_like(seen)
    padding[:, 0] = 1  # what is padded is background
    padding[tuple(slice(n) for n in trained.shape)] = trained
    assert torch.equal(seen, padding)


def test_wrong_spacings_are_found_in_training_too(tmp_path: Path) -> None:
    write_cases(tmp_path / "data", Data((26, 34, 18), (STRAIGHT, np.diag([40.0, 40, 2, 1]))))
    with pytest.raises(InvalidInput, match=r"1\.nii\.gz: .* 40 x 40 mm, over 10 times the 1\.2 x"):
        load_source(open_dataset(tmp_path / "data"), tmp_path / "store")


def test_maps_return_to_the_voxels_they_came_from() -> None:
    x, y, z = np.indices((9, 8, 7)) / 10
    image = MedicalImage(np.asarray((x * y + z)[None], np.float32), OBLIQUE)
    kept = Normalization(window=(0, 2))
    same = Preprocessing(normalization=kept).image(image)
    np.testing.assert_array_equal(2 * same.restore(same.slices), image.array)
    finer = Preprocessing(normalization=kept, spacing_mm=(0.6, 0.6)).image(image)
    assert finer.slices.shape[2] > same.slices.shape[2]
    assert np.abs(2 * finer.restore(finer.slices) - image.array).max() < 0.04


def test_ends_repeat_the_last_slice() -> None:
    slices = np.arange(3)[:, None, None, None] * np.ones((1, 2, 2))
    assert with_neighbours(slices, 0, 2)[:, 0, 0].tolist() == [0, 0, 0, 1, 2]
    assert with_neighbours(slices, 2, 1)[:, 0, 0].tolist() == [1, 2, 2]


@pytest.mark.parametrize(
    ("shape", "plane"),
    [((1, 4, 5), "sagittal"), ((4, 1, 5), "coronal"), ((4, 5, 1), "axial"), ((4, 5, 6), None)],
)
def test_the_plane_of_a_single_slice(shape: tuple[int, ...], plane: str | None) -> None:
    assert single_slice_plane(MedicalImage(np.zeros((1, *shape)))) == plane
    assert single_slice_plane(MedicalImage(np.zeros((1, 4, 5)))) is None


@pytest.mark.parametrize("shape", [(6, 6, 1), (1, 6, 6), (5, 6, 1), (1, 5, 6), (5, 1, 6)])
def test_an_array_of_a_single_slice_is_the_picture_that_it_holds(shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    image, picture = caps_med.read_image(array), caps_med.read_image(array.squeeze())
    seen, expected = Preprocessing().image(image), Preprocessing().image(picture)
    assert torch.equal(seen.slices, expected.slices)
    assert Preprocessing().grid(image) == Preprocessing().grid(picture)
    np.testing.assert_array_equal(
        seen.restore(seen.slices)[0].squeeze(), expected.restore(expected.slices)[0]
    )
    pictures = PicturePreprocessing(size=(8, 8))
    np.testing.assert_array_equal(pictures(image), pictures(picture))
    given = MedicalImage(image.array, np.eye(4), format="nifti")  # with a geometry: as displayed
    turned = Preprocessing().image(given).slices[0, 0]
    assert not torch.equal(turned, expected.slices[0, 0])


@pytest.mark.parametrize("slice_mm", [0.8, 2.5, 7.0])
def test_between_slices_values_are_interpolated_and_come_back_to_their_place(
    slice_mm: float,
) -> None:
    ramp = np.broadcast_to(np.arange(60.0, dtype=np.float32), (1, 8, 9, 60))
    image = MedicalImage(ramp, affine=np.diag([1.0, 1.0, -2.5, 1.0]))  # from above downwards
    preparation = Preprocessing(
        normalization=Normalization(window=(0, 100)), spacing_mm=(1.0, 1.0), slice_mm=slice_mm
    )
    prepared = preparation.image(image)
    count = round(60 * 2.5 / slice_mm)
    assert prepared.slices.shape == (count, 1, 9, 8)
    assert preparation.grid(image) == (count, 9, 8)
    centres = 59.5 - (np.arange(count) + 0.5) * 60 / count  # slices run upwards
    inner = slice(3 * count // 60 + 1, -3 * count // 60 - 1)
    np.testing.assert_allclose(prepared.slices[inner, 0, 4, 4] * 100, centres[inner], atol=0.05)
    restored = prepared.restore(prepared.slices) * 100
    assert restored.shape == image.array.shape
    np.testing.assert_allclose(restored[..., 6:-6], ramp[..., 6:-6], atol=0.05)
    places = {None: count // 2, 0: 0, 30: count // 2, 59: 59 * count // 60}
    assert {z: preparation.slice_index(image, z) for z in places} == places
    with pytest.raises(InvalidParameter, match="slice=60: must be from 0 to 59"):
        preparation.slice_index(image, 60)


def test_labels_between_slices_are_those_of_the_nearest() -> None:
    labels = np.zeros((1, 4, 5, 6), np.uint8)
    labels[..., :3] = 7
    image = MedicalImage(labels, affine=np.diag([1.0, 1.0, 3.0, 1.0]), kind="labels")
    preparation = Preprocessing(spacing_mm=(1.0, 1.0), slice_mm=1.0)
    found = preparation.labels(image).slices
    assert found.shape == (18, 1, 5, 4)
    assert found[:9].unique().tolist() == [7] and found[9:].unique().tolist() == [0]


def test_resampling_between_slices_keeps_to_the_limits() -> None:
    image = MedicalImage(np.zeros((1, 8, 8, 8), np.uint8), affine=np.diag([1.0, 1.0, 9.0, 1.0]))
    fine = Preprocessing(spacing_mm=(1.0, 1.0), slice_mm=1.0)
    with pytest.raises(InputTooLarge):
        fine.image(image, Limits(max_voxels=4000))
    wrong = Preprocessing(spacing_mm=(1.0, 1.0), slice_mm=0.5)
    with pytest.raises(InvalidInput, match="the voxels are 9 x 1 x 1 mm, over 10 times"):
        wrong.image(image)
