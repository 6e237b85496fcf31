"""CapsNet from the weights of CapsNet-Keras computes what that network computes."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.nn.functional import one_hot
from typer.testing import CliRunner

import caps_med
from caps_med.cli.commands import app
from caps_med.errors import InvalidInput
from caps_med.importers import read_capsnet
from caps_med.networks import CapsNet
from tests.importers.reference import Array, Weights, fill
from tests.importers.reference_capsnet import Outputs, capsnet
from tests.importers.upstream import capsnet_shapes, write_keras

ATOL = 1e-5


def picture(edge: int, channels: int) -> Array:
    exact = np.random.default_rng(5).random((edge, edge, channels)).astype(np.float32)
    return exact.astype(np.float64)


@pytest.fixture(scope="module")
def weights() -> Weights:
    """Scaled so that capsules and pixels are neither all small nor all saturated."""
    filled = fill(capsnet_shapes())
    return {name: _scaled(name, values) for name, values in filled.items()}


def _scaled(name: str, values: NDArray[np.float32]) -> NDArray[np.float32]:
    shape = values.shape
    inputs = {4: int(np.prod(shape[:3])), 2: shape[0]}.get(len(shape), 1)
    if name.endswith("W:0"):
        inputs = 256
    wanted = 0.05 if len(shape) == 1 else 1.5 / np.sqrt(inputs)
    result: NDArray[np.float32] = (values / np.abs(values).max() * wanted * 1.7).astype(np.float32)
    return result


@pytest.fixture(scope="module")
def file(weights: Weights, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_keras(tmp_path_factory.mktemp("capsnet") / "trained_model.h5", weights)


def run(network: torch.nn.Module, image: Array) -> Outputs:
    assert isinstance(network, CapsNet)
    maps = torch.from_numpy(image).float().permute(2, 0, 1)[None]
    with torch.no_grad():
        lengths, capsules = network.classify(maps)
        present = one_hot(lengths.argmax(1), lengths.shape[1])
        rebuilt = network.reconstruct(capsules, present)
        primary = network.capsules(maps)["primarycaps"]  # [1, types, 8, rows, columns]
    by_position = primary[0].permute(2, 3, 0, 1).reshape(-1, 8)
    arrays = (by_position, capsules[0], rebuilt[0].permute(1, 2, 0))
    return Outputs(*(array.double().numpy() for array in arrays))


def assert_equal(found: Outputs, expected: Outputs) -> None:
    for array, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(array, wanted, atol=ATOL, rtol=0)


@pytest.mark.parametrize("iterations", [1, 3])
def test_equals_the_reference(file: Path, weights: Weights, iterations: int) -> None:
    image = picture(28, 1)
    expected = capsnet(weights, image, iterations)
    lengths = np.linalg.norm(expected.capsules, axis=1)
    assert lengths.min() > 0.05 and lengths.max() < 0.99 and lengths.std() > 0.01
    assert expected.reconstruction.std() > 0.02
    for found, wanted in zip(
        run(read_capsnet(file, iterations).network, image), expected, strict=True
    ):
        np.testing.assert_allclose(found, wanted, atol=ATOL, rtol=0)


def test_colours_other_sizes_and_other_names_of_layers(tmp_path: Path) -> None:
    """Keras goes on counting dense layers, and older versions nest them less deeply."""
    filled = fill(capsnet_shapes(edge=21, channels=3, classes=4))
    weights = {name: _scaled(name, values) for name, values in filled.items()}
    renamed = {
        name.replace("decoder/decoder/dense_3", "decoder/dense_12")
        .replace("decoder/decoder/dense_2", "decoder/dense_11")
        .replace("decoder/decoder/dense_1", "decoder/dense_9"): values
        for name, values in weights.items()
    }
    imported = read_capsnet(write_keras(tmp_path / "colour.h5", renamed, full_model=True))
    assert imported.arguments["image_size"] == (21, 21)
    image = picture(21, 3)
    assert_equal(run(imported.network, image), capsnet(weights, image))


def test_the_command_imports_a_model_that_classifies(
    file: Path, weights: Weights, tmp_path: Path
) -> None:
    image = picture(28, 1)
    levels = np.round(image[..., 0] * 255).astype(np.uint8)
    Image.fromarray(levels).save(tmp_path / "digit.png")
    models = tmp_path / "models"
    arguments = ["import", "capsnet", str(file), "--name", "digits", "--models", str(models)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "8,215,568 parameters" in result.output
    model = caps_med.load_model("digits", models)
    answer = model.classify(tmp_path / "digit.png")
    expected = np.linalg.norm(capsnet(weights, levels[..., None] / 255.0).capsules, axis=1)
    assert list(answer.lengths) == [str(digit) for digit in range(10)]
    np.testing.assert_allclose(list(answer.lengths.values()), expected, atol=ATOL)


def test_names_of_the_classes_are_counted(file: Path, tmp_path: Path) -> None:
    arguments = ["import", "capsnet", str(file), "--name", "d", "--labels", "a,b", "--models",
                 str(tmp_path)]  # fmt: skip
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code and "2 names for 10 classes" in str(result.exception or result.output)


@pytest.mark.parametrize("names", ["a,b,c,d,e,f,g,h,i,a", "a,b,c,d,e,,g,h,i,j"])
def test_each_class_has_a_name_of_its_own(file: Path, tmp_path: Path, names: str) -> None:
    """Probabilities are told by name: one of two equal ones would be lost."""
    arguments = ["import", "capsnet", str(file), "--name", "d", "--labels", names, "--models",
                 str(tmp_path)]  # fmt: skip
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code and "a name of its own" in str(result.exception or result.output)
    assert not (tmp_path / "d").exists()


def test_a_file_whose_tensors_lie_at_its_top_is_another_project(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["conv1"] = np.zeros(3, np.float32)
    with pytest.raises(InvalidInput, match=r"none of its tensors.*conv1 \[3\]"):
        read_capsnet(tmp_path / "other.h5")


def test_other_files_are_refused(weights: Weights, segcaps_file: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="not the tensors of CapsNet-Keras"):
        read_capsnet(segcaps_file)
    without = {name: values for name, values in weights.items() if "digitcaps" not in name}
    with pytest.raises(InvalidInput, match=r"missing: digitcaps/W:0: needed \[10, 1152, 16, 8\]"):
        read_capsnet(write_keras(tmp_path / "without.h5", without))
    odd = {**weights, "decoder/decoder/dense_3/bias:0": np.zeros(785, np.float32)}
    with pytest.raises(InvalidInput, match="draws 785 values: no square image"):
        read_capsnet(write_keras(tmp_path / "odd.h5", odd))
    large = {**weights, "decoder/decoder/dense_3/bias:0": np.zeros(64 * 64, np.float32)}
    with pytest.raises(InvalidInput, match="of 64 x 64 pixels: only those for 20 to 48 pixels"):
        read_capsnet(write_keras(tmp_path / "large.h5", large))
