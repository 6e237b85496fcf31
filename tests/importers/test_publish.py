"""Imported models are models like any other: listed, served, explained layer by layer."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from fastapi.testclient import TestClient
from typer.testing import CliRunner

import caps_med
from api.app import create_app
from api.settings import Settings
from caps_med.bundles import ModelRepository
from caps_med.cli.commands import app
from caps_med.errors import CapsMedError, InvalidBundle, InvalidInput, InvalidParameter
from caps_med.images import MedicalImage, encode_image
from caps_med.importers import import_bundle
from tests.importers.reference import Array, Weights
from tests.importers.reference_capspix2pix import capspix2pix
from tests.importers.reference_segcaps import Outputs, segcaps

ATOL = 1e-5
#: No multiple of 8: the service pads to 56x40 and crops.
HEIGHT, WIDTH = 53, 37


def caps_med_command(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def imported(
    segcaps_file: Path, generator_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A repository with both models, imported by the commands."""
    root = tmp_path_factory.mktemp("imported")
    common = ["--models", root]
    window = ["--window", "0", "1"]
    caps_med_command("import", "segcaps", segcaps_file, "--name", "lung-ct", *window, *common)
    caps_med_command("import", "capspix2pix", generator_file, "--name", "axons", *common)
    return root


@pytest.fixture(scope="module")
def image() -> MedicalImage:
    values = np.random.default_rng(3).random((1, HEIGHT, WIDTH)).astype(np.float32)
    return MedicalImage(values, format="npy")


@pytest.fixture(scope="module")
def expected(segcaps_weights: Weights, image: MedicalImage) -> Outputs:
    padded = np.pad(image.array[0].astype(np.float64), ((0, 3), (0, 3)), mode="edge")
    return segcaps(segcaps_weights, padded, "r3")


@pytest.fixture(scope="module")
def labels() -> MedicalImage:
    disc = np.hypot(*(np.mgrid[:HEIGHT, :WIDTH] - 20)) < 12
    return MedicalImage(disc[None].astype(np.uint8), kind="labels", format="npy")


def test_the_command_is_recorded_as_it_was_typed(
    imported: Path, segcaps_file: Path, generator_file: Path
) -> None:
    """With the options that the numbers depend on, and without the folders of this machine."""
    commands = {
        name: caps_med.load_model(name, imported).bundle.card.provenance.command
        for name in ("lung-ct", "axons")
    }
    assert commands == {
        "lung-ct": f"caps-med import segcaps {segcaps_file.name} --name lung-ct --window 0.0 1.0",
        "axons": f"caps-med import capspix2pix {generator_file.name} --name axons",
    }


def test_they_are_listed_and_shown_with_their_layers(imported: Path) -> None:
    listed = caps_med_command("models", "list", "--models", imported)
    assert "lung-ct" in listed and "axons" in listed
    assert "sha256" in caps_med_command("models", "show", "lung-ct", "--models", imported)
    shown = caps_med_command("models", "show", "axons", "--models", imported)
    assert "convcaps10" in shown and "import capspix2pix" in shown


def test_segmentation_through_python_equals_the_reference(
    imported: Path, image: MedicalImage, expected: Outputs
) -> None:
    model = caps_med.load_model("lung-ct", models=imported)
    answer = model.segment(image)
    assert answer.probabilities is not None
    lengths = expected.lengths[:HEIGHT, :WIDTH]
    np.testing.assert_allclose(answer.probabilities.array[0], lengths, atol=ATOL, rtol=0)
    np.testing.assert_array_equal(answer.array[0], lengths > 0.5)


def test_synthesis_through_python_equals_the_reference(
    imported: Path, labels: MedicalImage, generator_weights: Weights
) -> None:
    model = caps_med.load_model("axons", models=imported)
    synthetic = model.synthesize(labels, seed=7).array[0]
    z = torch.randn(1, 16, generator=torch.Generator().manual_seed(7)).double().numpy()[0]
    mask: Array = np.pad(labels.array[0].astype(np.float64), ((0, 3), (0, 3)))
    image = capspix2pix(generator_weights, mask, z, "broadcast_conv").image
    np.testing.assert_allclose(synthetic, image[:HEIGHT, :WIDTH], atol=ATOL, rtol=0)


def test_they_serve_over_http_with_their_feature_maps_by_layer(
    imported: Path, image: MedicalImage, labels: MedicalImage, expected: Outputs
) -> None:
    with TestClient(create_app(Settings(models=imported, preload=()))) as client:
        names = [model["name"] for model in client.get("/v1/models").json()["models"]]
        assert {"lung-ct", "axons"} <= set(names)
        layers = client.get("/v1/models/lung-ct").json()["layers"]
        assert [layer["name"] for layer in layers] == list(expected.layers)

        upload = {"image": ("image.npy", encode_image(image, "npy"))}
        answer = client.post("/v1/models/lung-ct/segment?format=npy", files=upload)
        assert answer.status_code == 200 and answer.headers["caps-med-model"] == "lung-ct"
        mask = np.load(io.BytesIO(answer.content)).squeeze()
        np.testing.assert_array_equal(mask, expected.lengths[:HEIGHT, :WIDTH] > 0.5)

        answer = client.post("/v1/models/lung-ct/features?format=npz", files=upload)
        arrays = np.load(io.BytesIO(answer.content))
        for name, capsules in expected.layers.items():
            found = arrays[name].transpose(2, 3, 0, 1)
            height, width = found.shape[:2]
            np.testing.assert_allclose(found, capsules[:height, :width], atol=ATOL, rtol=0)

        upload = {"labels": ("labels.npy", encode_image(labels, "npy"))}
        answer = client.post("/v1/models/axons/features?format=npz", files=upload)
        assert "convcaps10" in np.load(io.BytesIO(answer.content))
        answer = client.post("/v1/models/axons/synthesize?format=npy", files=upload)
        assert answer.status_code == 200


def test_what_the_file_cannot_say_is_recorded_as_told(imported: Path, segcaps_file: Path) -> None:
    caps_med_command(
        *("import", "segcaps", segcaps_file, "--name", "scan", "--variant", "r1"),
        *("--foreground", "lung", "--license", "CC0-1.0", "--models", imported),
    )
    card = ModelRepository(imported).find("scan").card
    assert card.network.arguments["variant"] == "r1"
    assert card.labels == {0: "background", 1: "lung"} and card.license == "CC0-1.0"
    assert str(card.normalization) == "-1024..3072"
    assert len(card.provenance.recipe["sha256"]) == 64
    caps_med_command(
        *("import", "segcaps", segcaps_file, "--name", "scan", "--percentiles"),
        *("--models", imported),
    )
    assert ModelRepository(imported).find("scan@2").card.normalization.window is None


def test_unused_layers_and_warnings_are_reported(
    imported: Path, generator_file: Path, tmp_path: Path
) -> None:
    output = caps_med_command(
        *("import", "capspix2pix", generator_file, "--name", "axons", "--models", tmp_path)
    )
    assert "unused by the forward pass: 73 tensors" in output
    assert "recon2.weight [128, 64, 1, 1]" in output
    recipe = ModelRepository(imported).find("axons").card.provenance.recipe
    assert recipe["unused tensors"]["recon2.weight"] == [128, 64, 1, 1]


def refused(error: type[CapsMedError], message: str, *arguments: object) -> None:
    with pytest.raises(error, match=message):
        caps_med_command(*arguments)


def test_nothing_is_written_on_failure(
    segcaps_file: Path, generator_file: Path, tmp_path: Path
) -> None:
    models = tmp_path / "models"
    common = ("--name", "new", "--models", models)
    cut = tmp_path / "cut.h5"
    cut.write_bytes(segcaps_file.read_bytes()[:-1000])
    refused(InvalidInput, "broken or truncated", "import", "segcaps", cut, *common)
    refused(
        InvalidParameter,
        "--image-size '256': must be HEIGHTxWIDTH",
        *("import", "capspix2pix", generator_file, "--image-size", "256", *common),
    )
    for window in (("5", "5"), ("-inf", "5"), ("5", "inf"), ("nan", "5")):
        refused(
            InvalidParameter,
            f"--window {' '.join(window)}: the second number must be larger than the first, and",
            *("import", "segcaps", segcaps_file, "--window", *window, *common),
        )
    refused(
        InvalidParameter,
        "model name 'No Name'",
        *("import", "segcaps", segcaps_file, "--name", "No Name", "--models", models),
    )
    assert not models.exists()


def test_the_command_line_names_the_tensor_in_one_line_and_exits_with_2(
    preloaded: Path, generator_file: Path, tmp_path: Path
) -> None:
    state = torch.load(generator_file, weights_only=True)
    state["convcaps2.conv2d.bias"] = torch.zeros(65)
    torch.save(state, tmp_path / "G.pt")
    arguments = ["import", "capspix2pix", "G.pt", "--name", "axons", "--models", "models"]
    done = subprocess.run(
        [preloaded, *arguments],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "convcaps2.conv2d.bias: needed [64], found [65]" in done.stderr
    assert not (tmp_path / "models").exists()


def test_an_exported_model_comes_back_bit_by_bit(imported: Path, tmp_path: Path) -> None:
    folder, models = tmp_path / "exported", tmp_path / "models"
    caps_med_command(
        *("export", "--model", "axons", "--format", "bundle"),
        *("--out", folder, "--models", imported),
    )
    caps_med_command("import", "bundle", folder, "--name", "mine", "--models", models)
    before, after = ModelRepository(imported).find("axons"), ModelRepository(models).find("mine")
    assert after.weights.read_bytes() == before.weights.read_bytes()
    assert after.card == before.card


def test_a_folder_that_is_no_bundle_is_refused(tmp_path: Path) -> None:
    repository = ModelRepository(tmp_path / "models")
    for folder in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(InvalidBundle, match=rf"{folder.name} is not a bundle folder.*configs"):
            import_bundle(folder, repository, "new")
    metadata = tmp_path / "configs" / "metadata.json"
    metadata.parent.mkdir()
    metadata.write_text("{")
    with pytest.raises(InvalidBundle):
        import_bundle(tmp_path, repository, "new")
    assert not repository.root.exists()
