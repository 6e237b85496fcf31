"""A model of several channels, from one file or several, in Python and on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from monai.data import MetaTensor
from numpy.typing import NDArray
from typer.testing import CliRunner

import caps_med
from caps_med.bundles import NetworkSpec
from caps_med.bundles.export import example_inputs, export_model
from caps_med.cli.commands import app
from caps_med.errors import InvalidBundle, InvalidInput, InvalidParameter, SeveralVolumes
from caps_med.images import (
    MedicalImage,
    count_pictures,
    encode_image,
    read_channels,
    read_image,
)
from caps_med.inference import Model
from tests.conftest import tiny_card, write_tiny
from tests.images.dicom_files import IDENTITY, slice_file

AFFINE = np.array([[-1.0, 0, 0, 4], [0, 1.2, 0, -7], [0, 0, 2, 1], [0, 0, 0, 1]])
NAMES = ("FLAIR", "T1")
SHAPE = (20, 28, 3)
Voxels = NDArray[np.int16]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`two`: a SegCaps of the channels FLAIR and T1, each with a scale of its own."""
    root = tmp_path_factory.mktemp("models")
    spec = NetworkSpec(name="SegCaps", arguments={"atoms": 4, "in_channels": 2, "out_channels": 3})
    card = tiny_card("segmentation", (1.2, 1.0), spec)
    scale = card.normalization.model_copy(update={"per_channel": True})
    write_tiny(
        root, "two", card.model_copy(update={"channel_names": NAMES, "normalization": scale})
    )
    return root


@pytest.fixture(scope="module")
def model(models: Path) -> Model:
    return caps_med.load_model("two", models)


@pytest.fixture(scope="module")
def flair() -> Voxels:
    return np.random.default_rng(0).integers(0, 3000, SHAPE, np.int16)


@pytest.fixture(scope="module")
def t1() -> Voxels:
    return np.random.default_rng(1).integers(0, 90, SHAPE, np.int16)


@pytest.fixture
def files(tmp_path: Path, flair: Voxels, t1: Voxels) -> list[Path]:
    """Two files, of the dtypes and names that nnU-Net's cases may have."""
    paths = [tmp_path / f"case_{c:04}.nii.gz" for c in range(2)]
    nib.save(nib.Nifti1Image(flair, AFFINE), paths[0])
    nib.save(nib.Nifti1Image(t1.astype(np.uint8), AFFINE), paths[1])
    return paths


@pytest.fixture
def one_file(tmp_path: Path, flair: Voxels, t1: Voxels) -> Path:
    path = tmp_path / "both.nii.gz"
    nib.save(nib.Nifti1Image(np.stack([flair, t1], -1), AFFINE), path)
    return path


def forms(
    files: list[Path], one_file: Path, flair: Voxels, t1: Voxels
) -> dict[str, Callable[[], object]]:
    """The same two channels in every form that is taken."""
    both = np.stack([flair, t1])
    return {
        "paths": lambda: files,
        "a tuple of text": lambda: tuple(map(str, files)),
        "one file": lambda: one_file,
        "bytes": lambda: [path.read_bytes() for path in files],
        "images": lambda: [read_image(path) for path in files],
        "read_channels": lambda: read_channels(files),
        "nibabel": lambda: (nib.load(files[0]), nib.load(files[1])),
        "one of nibabel": lambda: nib.load(one_file),
        "pairs": lambda: [(flair, AFFINE), (t1, AFFINE)],
        "one pair": lambda: (both, AFFINE),
        "MetaTensor": lambda: MetaTensor(both.astype(np.float32), affine=torch.tensor(AFFINE)),
        "a path and an image": lambda: [files[0], (t1, AFFINE)],
    }


def test_every_form_of_two_channels_is_segmented_alike(
    model: Model, files: list[Path], one_file: Path, flair: Voxels, t1: Voxels
) -> None:
    given = forms(files, one_file, flair, t1)
    expected = model.segment(given["paths"]())
    assert expected.array.shape == (1, *SHAPE)
    np.testing.assert_allclose(expected.affine, AFFINE, rtol=1e-6)
    for name, form in given.items():
        answer = model.segment(form())
        np.testing.assert_array_equal(
            answer.probabilities.array, expected.probabilities.array, err_msg=name
        )
    swapped = model.segment(files[::-1]).probabilities.array
    assert np.abs(swapped - expected.probabilities.array).max() > 1e-4


def test_the_channels_arrive_in_their_order(files: list[Path], flair: Voxels, t1: Voxels) -> None:
    image = read_channels(files)
    np.testing.assert_array_equal(image.array, np.stack([flair, t1]))
    assert image.header is not None and image.format == "nifti"
    again = read_image(encode_image(image, "nifti"))
    np.testing.assert_array_equal(again.array, image.array)
    np.testing.assert_allclose(np.asarray(nib.load(files[0]).affine), again.affine)


def test_each_channel_has_a_scale_of_its_own(model: Model, files: list[Path]) -> None:
    slices = model.segmenter.prepare(read_channels(files)).slices
    assert slices.amax((0, 2, 3)).tolist() == [1, 1]
    assert slices[:, 1].std() > 0.2  # of FLAIR's scale it would be nearly 0


def test_features_and_manipulation_take_channels_too(model: Model, files: list[Path]) -> None:
    assert model.features(files).layers["seg_caps"].shape == (3, 4, 28, 20)
    shifted = model.manipulator(files)(1, 0, [0.1, 0.2])
    assert shifted.reconstructions.shape == (2, 2, 28, 20)
    assert shifted.strip().array.shape == (1, 2 * 28, 2 * 20)  # a row for each channel


def other_size(files: list[Path]) -> None:
    nib.save(nib.Nifti1Image(np.zeros((20, 28, 4), np.int16), AFFINE), files[1])


def other_affine(files: list[Path]) -> None:
    moved = AFFINE.copy()
    moved[0, 3] += 0.1
    nib.save(nib.Nifti1Image(np.zeros(SHAPE, np.int16), moved), files[1])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (other_size, r"case_0001.* has the size 20 x 28 x 4, case_0000\.nii\.gz 20 x 28 x 3"),
        (other_affine, r"case_0001\.nii\.gz has another affine than case_0000\.nii\.gz: resample"),
        (lambda files: files.pop(), r"two takes 2 channels: FLAIR, T1; got 1: give one image for"),
        (lambda files: files.append(files[0]), r"two takes 2 channels: FLAIR, T1; got 3"),
        (lambda files: files.clear(), "no image given"),
    ],
)
def test_what_is_wrong_with_the_channels_is_said(
    change: Callable[[list[Path]], object], message: str, model: Model, files: list[Path]
) -> None:
    change(files)
    with pytest.raises(InvalidInput, match=message):
        model.segment(files)


def test_slices_and_channels_are_told_apart(model: Model, tmp_path: Path, flair: Voxels) -> None:
    slices = []
    for z in range(3):
        slices.append(tmp_path / f"{z}.dcm")
        slices[-1].write_bytes(slice_file(z, **IDENTITY))
    assert read_image(slices).array.shape == (1, 7, 5, 3)
    with pytest.raises(InvalidInput, match=r"takes 2 channels: FLAIR, T1; got 1"):
        model.segment(slices)
    series = tmp_path / "series"
    series.mkdir()
    for file in slices:
        file.rename(series / file.name)
    assert read_image([series, series]).array.shape[0] == 2
    other = tmp_path / "t1.npy"
    np.save(other, flair)
    with pytest.raises(InvalidInput, match=r"holds DICOM files \(0\.dcm\) and others \(t1\.npy\)"):
        read_image([*sorted(series.iterdir()), other])


def test_a_label_map_is_no_list(files: list[Path]) -> None:
    assert read_image(files[1:], kind="labels").kind == "labels"
    with pytest.raises(InvalidInput, match="a label map is a single image, got a list of 2"):
        read_image(files, kind="labels")


def test_three_grey_pictures_are_no_colours_of_one(models: Path, tmp_path: Path) -> None:
    """Whoever gives several files to a model of one channel wants an answer to each."""
    write_tiny(models, "one", tiny_card("segmentation"))
    pictures = [tmp_path / f"{k}.png" for k in range(3)]
    for k, file in enumerate(pictures):
        MedicalImage(np.full((1, 16, 16), 60 * k, np.uint8), format="png").save(file)
    told = r"takes 1 channel.*; got 3: .*one by one \(on the command line with --input\)"
    with pytest.raises(InvalidInput, match=told):
        caps_med.load_model("one", models).segment(pictures)
    with pytest.raises(InvalidInput, match=told):
        caps_med.load_model("digits").classify(pictures)


def test_volumes_have_no_colours(models: Path) -> None:
    write_tiny(models, "grey", tiny_card("segmentation"))
    volume = MedicalImage(np.zeros((3, *SHAPE), np.uint8), AFFINE)
    model = caps_med.load_model("grey", models)
    told = r"grey takes 1 channel, and the image has 3 volumes .*choose one .* --volume N \(Python"
    with pytest.raises(SeveralVolumes, match=told) as caught:
        model.segment(volume)
    assert caught.value.count == 3
    with pytest.raises(SeveralVolumes, match="1 channel is needed, and the image has 3 volumes"):
        caps_med.load_model("brain-slices").classify(volume)


@pytest.mark.parametrize("suffix", [".nii.gz", ".nii"])
def test_a_volume_of_a_fourth_axis_is_chosen(tmp_path: Path, suffix: str) -> None:
    array = np.random.default_rng(0).integers(0, 200, (3, *SHAPE)).astype(np.int16)
    MedicalImage(array, AFFINE).save(file := tmp_path / f"series{suffix}")
    for index in range(3):
        one = read_image(file, index=index)
        np.testing.assert_array_equal(one.array, array[[index]])
        np.testing.assert_allclose(one.affine, AFFINE, atol=1e-5)
    one.save(tmp_path / f"one{suffix}")
    np.testing.assert_array_equal(read_image(tmp_path / f"one{suffix}").array, array[[2]])
    assert count_pictures(file) == 1  # it is one image of three channels
    with pytest.raises(InvalidInput, match=r"no volume 3, there are 3: 0 to 2"):
        read_image(file, index=3)
    told = r"a label map is one volume of ids, and the image has 3 volumes .*--volume N"
    with pytest.raises(SeveralVolumes, match=told) as caught:
        read_image(file, kind="labels")
    assert caught.value.members == {"volumes": 3}
    assert read_image(file, kind="labels", index=1).kind == "labels"


def test_a_volume_of_an_image_in_memory_is_chosen(models: Path) -> None:
    write_tiny(models, "chosen", tiny_card("segmentation"))
    model = caps_med.load_model("chosen", models)
    array = np.random.default_rng(0).integers(0, 200, (3, *SHAPE)).astype(np.int16)
    several = MedicalImage(array, AFFINE)
    for source in (several, nib.Nifti1Image(array.transpose(1, 2, 3, 0), AFFINE), (array, AFFINE)):
        one = model.read(source, "image", index=2)
        np.testing.assert_array_equal(one.array, array[[2]])
        np.testing.assert_allclose(one.affine, AFFINE, atol=1e-5)
        assert model.segment(one).spatial_shape == SHAPE
        assert read_image(source, kind="labels", index=1).kind == "labels"
        with pytest.raises(InvalidInput, match=r"no volume 3, there are 3: 0 to 2"):
            read_image(source, index=3)
    with pytest.raises(InvalidInput, match="no picture 1, it is one image"):
        read_image(one, index=1)


def test_names_of_channels_are_as_many_as_the_network_takes(models: Path, tmp_path: Path) -> None:
    card = caps_med.load_model("two", models).bundle.card
    wrong = card.model_copy(update={"channel_names": ("FLAIR", "T1", "T2")})
    with pytest.raises(InvalidParameter, match="3 names of channels, the network takes 2"):
        write_tiny(tmp_path, "wrong", wrong)
    write_tiny(tmp_path, "two", card)
    file = tmp_path / "two" / "1" / "configs" / "metadata.json"
    content = json.loads(file.read_text())
    content["caps_med"]["channel_names"] = ["FLAIR"]
    file.write_text(json.dumps(content))
    with pytest.raises(InvalidBundle, match="1 name of channels, the network takes 2"):
        caps_med.load_model("two", tmp_path)


def test_cards_of_before_have_no_names(models: Path) -> None:
    card = caps_med.load_model("two", models).bundle.card
    older = {k: v for k, v in card.model_dump(mode="json").items() if k != "channel_names"}
    read = type(card).model_validate(older)
    assert read.channel_names == () and read.shown_channels == ["channel 1", "channel 2"]


def test_commands_take_several_files(models: Path, files: list[Path], tmp_path: Path) -> None:
    def run(*arguments: object) -> str:
        answer = CliRunner().invoke(app, [str(one) for one in arguments])
        assert answer.exit_code == 0, answer.output
        return answer.output

    options = ("--model", "two", "--models", models)
    out = tmp_path / "out"
    run("segment", *options, *files, "--out", f"{out}.nii.gz")
    assert read_image(f"{out}.nii.gz").spatial_shape == SHAPE
    run("features", *options, *files, "--out", f"{out}.npz")
    with np.load(f"{out}.npz") as arrays:
        assert arrays["seg_caps"].shape == (3, 4, 28, 20)
    run("manipulate", *options, *files, "--out", f"{out}.png")
    rows, columns = read_image(f"{out}.png").spatial_shape
    assert rows > 4 * 2 * 28 and columns > 7 * 20  # with captions
    assert "channels: FLAIR, T1" in run("models", "show", "two", "--models", models)
    answer = CliRunner().invoke(
        app, ["segment", "--model", "two", "--models", str(models), str(files[0]), "--out", "a.nii"]
    )
    assert isinstance(answer.exception, InvalidInput)
    assert "two takes 2 channels: FLAIR, T1; got 1" in str(answer.exception)


def test_the_export_names_its_channels(model: Model, tmp_path: Path) -> None:
    folder = export_model(model.bundle, "bundle", tmp_path / "bundle")
    described = json.loads((folder / "configs" / "metadata.json").read_text())
    image = described["network_data_format"]["inputs"]["image"]
    assert image["num_channels"] == 2 and image["channel_def"] == {"0": "FLAIR", "1": "T1"}
    (traced,) = example_inputs(model.network)
    assert traced.shape[1] == 2
