"""Exported models are the models: in MONAI, in ONNX Runtime, as `torch.export` programs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
import torch._dynamo.config as config
from monai.bundle import create_workflow, verify_net_in_out
from torch import Tensor

from caps_med.bundles import (
    Bundle,
    ModelCard,
    ModelRepository,
    NetworkSpec,
    WeightsProvenance,
    write_bundle,
)
from caps_med.bundles.bundle import CANDIDATE
from caps_med.bundles.export import CARD, export_model, export_program
from caps_med.bundles.seeded import SeededGenerator
from caps_med.errors import InvalidBundle, InvalidParameter
from caps_med.importers import import_bundle
from caps_med.networks import CapsPix2Pix, build_network
from caps_med.networks.padding import cropped, padded
from tests.importers.reference import fill

#: The issue asks for 1e-4; float32 reaches this.
ATOL = 1e-5
SIZES = [(16, 24), (64, 64), (40, 16)]
ODD_SIZES = [(17, 30), (41, 23), (5, 7), (1, 9)]


def formula_bundle(
    root: Path, name: str, network: str, arguments: Mapping[str, object], half: bool = False
) -> Bundle:
    """A model whose weights are a formula of their names, which keeps its layers alive."""
    built = build_network(network, arguments)
    weights = fill({key: list(value.shape) for key, value in built.state_dict().items()})
    built.load_state_dict({key: torch.from_numpy(value) for key, value in weights.items()})
    card = ModelCard(
        task="synthesis" if network == "CapsPix2Pix" else "segmentation",
        network=NetworkSpec(name=network, arguments=dict(arguments)),
        labels={0: "background", 1: "lung"},
        provenance=WeightsProvenance(command="pytest", data="none"),
    )
    return write_bundle(ModelRepository(root), name, built, card, half)


@pytest.fixture(scope="module")
def segmenter(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """As imported, with TensorFlow's padding; of its layers some route once, some three times."""
    root = tmp_path_factory.mktemp("models")
    small = {"padding": "tensorflow", "variant": "r1", "atoms": 4}
    return formula_bundle(root, "lung", "SegCaps", small)


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    root = tmp_path_factory.mktemp("models")
    return formula_bundle(root, "axons", "CapsPix2Pix", {"noise_size": 16})


@pytest.fixture(scope="module")
def smooth_generator(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    root = tmp_path_factory.mktemp("models")
    smooth = {"upsampling": "smoothed", "padding": "replicate"}
    return formula_bundle(root, "axons", "CapsPix2Pix", {"noise_size": 16, "atoms": 4, **smooth})


@pytest.fixture(scope="module")
def normalizing(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """Normalizes its coarsest maps, so that one position there is too few."""
    root = tmp_path_factory.mktemp("models")
    return formula_bundle(root, "lung", "UNet", {"features": [4, 4, 8, 8, 8, 4]})


def inputs_of(bundle: Bundle, batch: int, size: tuple[int, int]) -> tuple[Tensor, ...]:
    random = torch.Generator().manual_seed(size[0])
    maps = torch.rand(batch, 1, *size, generator=random)
    if bundle.card.task == "segmentation":
        return (maps,)
    return (maps > 0.6).float(), torch.randn(batch, 16, generator=random)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["segmenter", "smooth_generator", "normalizing"])
def test_onnx_agrees_at_every_size_and_batch(
    name: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Odd ones too, and smaller than the divisor: the graph pads them and crops its answer."""
    bundle: Bundle = request.getfixturevalue(name)
    path = export_model(bundle, "onnx", tmp_path / "model.onnx")
    assert capfd.readouterr() == ("", "")
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    network = bundle.load_network()
    for batch, size in enumerate([*SIZES, *ODD_SIZES], start=1):
        inputs = inputs_of(bundle, batch, size)
        named = {i.name: x.numpy() for i, x in zip(session.get_inputs(), inputs, strict=True)}
        (answer,) = session.run(None, named)
        with torch.no_grad():
            wanted = network(padded(network, inputs[0]), *inputs[1:])
        np.testing.assert_allclose(answer, cropped(wanted, size), atol=ATOL, rtol=0)
    metadata = session.get_modelmeta().custom_metadata_map
    assert json.loads(metadata[CARD])["weights_sha256"] == bundle.metadata.weights.sha256


@pytest.mark.slow
def test_a_torch_program_agrees_at_every_size_and_refuses_others(
    segmenter: Bundle, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = export_model(segmenter, "torch", tmp_path / "model.program")
    assert not [record.message for record in caplog.records if "archive" in record.message]
    files = {CARD: ""}
    with path.open("rb") as file:
        program = torch.export.load(file, extra_files=files).module()
    assert json.loads(files[CARD])["labels"] == {"0": "background", "1": "lung"}
    network = segmenter.load_network()
    for batch, size in enumerate(SIZES, start=1):
        (image,) = inputs_of(segmenter, batch, size)
        with torch.no_grad():
            torch.testing.assert_close(program(image), network(image), atol=ATOL, rtol=0)
    with pytest.raises(AssertionError, match=r"image\.size\(\)\[2\] % 8 == 0"):
        program(torch.zeros(1, 1, 20, 16))


def test_shapes_are_not_cached_while_a_network_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    cached: list[bool] = []
    monkeypatch.setattr(
        torch.export, "export", lambda *_, **__: cached.append(config.fake_tensor_cache_enabled)
    )
    export_program(CapsPix2Pix(atoms=4))
    assert (cached, config.fake_tensor_cache_enabled) == ([False], True)


@pytest.mark.parametrize(
    ("network", "arguments"),
    [
        ("SegCaps", {"padding": "tensorflow", "atoms": 4}),
        ("UNet", {"features": [4] * 6, "spatial_dims": 3}),
        ("Ensemble", {"network": "UNet", "members": 2, "arguments": {"features": [4] * 6}}),
        ("CapsPix2Pix", {"atoms": 4}),
        ("CapsPix2Pix", {"noise_source": "input", "image_size": [16, 24], "atoms": 4}),
        ("CapsPix2Pix", {"noise_source": "dropout", "atoms": 4}),
    ],
)
def test_monai_verifies_an_exported_bundle(
    network: str, arguments: dict[str, object], tmp_path: Path
) -> None:
    bundle = formula_bundle(tmp_path, "axons", network, arguments)
    folder = export_model(bundle, "bundle", tmp_path / "exported")
    configs = folder / "configs"
    verify_net_in_out(
        net_id="network_def",
        meta_file=str(configs / "metadata.json"),
        config_file=str(configs / "inference.json"),
        device="cpu",
    )


@pytest.mark.parametrize("fixture", ["segmenter", "generator"])
def test_monai_runs_an_exported_bundle(
    fixture: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    bundle: Bundle = request.getfixturevalue(fixture)
    folder = export_model(bundle, "bundle", tmp_path / "exported")
    config = str(folder / "configs" / "inference.json")
    workflow = create_workflow(config_file=config, bundle_root=str(folder), run_id="run")
    workflow.run()
    network = workflow.parser.get_parsed_content("network")
    assert not network.training
    for key, tensor in bundle.load_network().state_dict().items():
        assert torch.equal(network.state_dict()[key], tensor)


def test_a_seeded_generator_is_the_generator_with_the_seeds_noise() -> None:
    seeded = SeededGenerator(seed=7, atoms=4)
    plain = CapsPix2Pix(atoms=4)
    plain.load_state_dict(seeded.state_dict())
    label = torch.rand(2, 1, 16, 16)
    z = torch.randn(1, 64, generator=torch.Generator().manual_seed(7)).expand(2, -1)
    with torch.no_grad():
        torch.testing.assert_close(seeded(label), plain(label, z))


def test_the_checkpoint_for_monai_holds_the_same_weights(generator: Bundle, tmp_path: Path) -> None:
    folder = export_model(generator, "bundle", tmp_path / "exported")
    state = torch.load(folder / "models" / "model.pt", weights_only=True)
    for key, tensor in generator.load_network().state_dict().items():
        assert torch.equal(state.pop(key), tensor)
    assert not state


@pytest.mark.parametrize("half", [False, True])
def test_export_and_import_keep_every_bit(tmp_path: Path, half: bool) -> None:
    bundle = formula_bundle(tmp_path, "axons", "CapsPix2Pix", {"atoms": 4}, half)
    folder = export_model(bundle, "bundle", tmp_path / "exported")
    again = import_bundle(folder, ModelRepository(tmp_path / "other"), "axons")
    assert again.weights.read_bytes() == bundle.weights.read_bytes()
    assert again.card == bundle.card and again.metadata.weights == bundle.metadata.weights


def test_a_bundle_of_another_project_is_told(generator: Bundle, tmp_path: Path) -> None:
    folder = export_model(generator, "bundle", tmp_path / "exported")
    file = folder / "configs" / "metadata.json"
    told = json.loads(file.read_text())
    file.write_text(
        json.dumps({key: told[key] for key in told if key not in ("caps_med", "weights")})
    )
    with pytest.raises(InvalidBundle, match="a MONAI bundle of another project"):
        import_bundle(folder, ModelRepository(tmp_path / "other"), "axons")


def test_an_exported_folder_copied_into_a_repository_is_a_model(
    generator: Bundle, tmp_path: Path
) -> None:
    folder = export_model(generator, "bundle", tmp_path / "exported")
    shutil.copytree(folder, tmp_path / "models" / "copied" / "3")
    copied = ModelRepository(tmp_path / "models").find("copied@3").load_network().state_dict()
    for key, tensor in generator.load_network().state_dict().items():
        assert torch.equal(copied[key], tensor)


def test_an_exported_candidate_is_a_model_elsewhere(tmp_path: Path) -> None:
    bundle = formula_bundle(tmp_path, "axons", "CapsPix2Pix", {"atoms": 4})
    (bundle.path / CANDIDATE).touch()
    export_model(bundle, "bundle", tmp_path / "models" / "copied" / "1")
    assert ModelRepository(tmp_path / "models").find("copied").version == 1
    assert (bundle.path / CANDIDATE).exists()


def test_what_exists_is_not_overwritten(generator: Bundle, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"mine")
    with pytest.raises(InvalidParameter, match=r"--out \S+model\.onnx exists: choose another name"):
        export_model(generator, "onnx", tmp_path / "model.onnx")
    assert (tmp_path / "model.onnx").read_bytes() == b"mine"
    with pytest.raises(InvalidParameter, match="format='tflite': must be one of"):
        export_model(generator, "tflite", tmp_path / "model")  # type: ignore[arg-type]


@pytest.mark.parametrize("format", ["bundle", "onnx", "torch"])
def test_a_damaged_model_is_not_exported(format: str, generator: Bundle, tmp_path: Path) -> None:
    damaged = Bundle("axons", 1, tmp_path / "axons" / "1")
    shutil.copytree(generator.path, damaged.path)
    with damaged.weights.open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x7f")
    out = tmp_path / "out"
    with pytest.raises(InvalidBundle, match="the file was changed or damaged"):
        export_model(damaged, format, out / "model")  # type: ignore[arg-type]
    assert list(out.iterdir()) == []
