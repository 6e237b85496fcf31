"""CapsPix2Pix from a PyTorch state dict computes what the published generator computes."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from caps_med.errors import InputTooLarge, InvalidInput, InvalidParameter, UnsupportedFormat
from caps_med.importers import checkpoints, read_capspix2pix
from caps_med.networks import CapsPix2Pix
from caps_med.routing import use_backend
from tests.importers.reference import Array, Weights, fill
from tests.importers.reference_capspix2pix import capspix2pix
from tests.importers.upstream import generator_shapes, layout, write_torch

#: 1e-4 is asked for; float32 reaches this with PyTorch's convolutions, and three times as much by
#: tiles, whose sums are rounded otherwise.
ATOL = 1e-5
TOLERANCES = {"eager": ATOL, "numba": 3 * ATOL}
NOISE_SIZES = {
    "input": 100,
    "broadcast": 8,
    "broadcast_conv": 16,
    "broadcast_latent": 16,
    "dropout": 8,
}


def label_map(height: int = 64, width: int = 64) -> Array:
    rows, columns = np.mgrid[:height, :width]
    disc = (rows - 30) ** 2 + (columns - 25) ** 2 < 200
    labels: Array = (disc | (np.abs(rows - columns) < 2)).astype(np.float64)
    return labels


def noise(size: int) -> Array:
    """Exact in float32."""
    values = np.random.default_rng(11).standard_normal(size)
    return values.astype(np.float32).astype(np.float64)


@pytest.mark.parametrize("source", NOISE_SIZES)
@pytest.mark.parametrize("backend", TOLERANCES)
def test_equals_the_reference(source: str, backend: str, tmp_path: Path) -> None:
    atol = TOLERANCES[backend]
    size = NOISE_SIZES[source]
    weights = fill(generator_shapes(source, size))
    label, z = label_map(), noise(size)
    expected = capspix2pix(weights, label, z, source)
    assert expected.image.std() > 0.01
    told = size if source == "broadcast" else None
    imported = read_capspix2pix(write_torch(tmp_path / "ModelG.pt", weights), noise_size=told)
    generator = imported.network
    assert isinstance(generator, CapsPix2Pix)
    assert imported.arguments["noise_source"] == source and generator.noise_size == size
    inputs = torch.from_numpy(label).float()[None, None], torch.from_numpy(z).float()[None]
    with torch.no_grad(), use_backend(backend):
        image, layers = generator(*inputs), generator.capsules(*inputs)
    for name, capsules in layers.items():
        np.testing.assert_allclose(
            capsules[0].permute(2, 3, 0, 1), expected.layers[name], atol=atol, rtol=0, err_msg=name
        )
    features = layers["convcaps10"].flatten(1, 2)[0].permute(1, 2, 0)
    np.testing.assert_allclose(features, expected.features, atol=atol, rtol=0)
    np.testing.assert_allclose(image[0, 0], expected.image, atol=atol, rtol=0)


def test_the_noise_reaches_the_reference_image(generator_weights: Weights) -> None:
    images = [
        capspix2pix(generator_weights, label_map(), z, "broadcast_conv").image
        for z in (noise(16), -noise(16))
    ]
    assert np.abs(images[0] - images[1]).max() > 100 * ATOL


def test_layers_the_forward_pass_never_uses_are_reported(
    generator_file: Path, generator_weights: Weights
) -> None:
    unused = read_capspix2pix(generator_file).unused
    assert unused["convcaps7.conv2d.weight"] == (256, 32, 5, 5)
    assert unused["recon3.bias"] == (1,)
    norms = {name for name in generator_weights if ".bn." in name}
    assert len(norms) == 65 and norms < set(unused)
    assert len(unused) == 65 + 2 + 6


def test_a_file_without_the_unused_layers_is_complete(
    generator_weights: Weights, generator_file: Path, tmp_path: Path
) -> None:
    full = read_capspix2pix(generator_file)
    lean = {name: w for name, w in generator_weights.items() if name not in full.unused}
    read = read_capspix2pix(write_torch(tmp_path / "lean.pt", lean))
    assert not read.unused
    assert_same_weights(read.network, full.network)


def test_the_published_layout_at_256_is_read(tmp_path: Path) -> None:
    weights = fill(layout("capspix2pix_generator_keys"))
    imported = read_capspix2pix(write_torch(tmp_path / "ModelG.pt", weights))
    assert imported.arguments["image_size"] == (256, 256)
    assert imported.network.noise_size == 100
    with_noise_layer = 65536 * 101
    count = sum(p.numel() for p in imported.network.parameters())
    assert count == with_noise_layer + parameters_without_noise_layer()


def parameters_without_noise_layer() -> int:
    names = fill(generator_shapes("broadcast"))
    unused = ("convcaps7", "recon")
    return sum(
        values.size
        for name, values in names.items()
        if not name.startswith(unused) and ".bn." not in name
    )


def test_parallel_prefix_legacy_format_wrapper_and_safetensors_are_all_read(
    generator_weights: Weights, generator_file: Path, tmp_path: Path
) -> None:
    expected = read_capspix2pix(generator_file).network
    state = torch.load(generator_file, weights_only=True)
    save_file(state, tmp_path / "G.safetensors")
    torch.save({"epoch": 3, "state_dict": state}, tmp_path / "wrapped.pth")
    paths = [
        write_torch(tmp_path / "parallel.pt", generator_weights, prefix="module."),
        write_torch(tmp_path / "legacy.pt", generator_weights, legacy=True),
        tmp_path / "G.safetensors",
        tmp_path / "wrapped.pth",
    ]
    for path in paths:
        assert_same_weights(read_capspix2pix(path).network, expected)


def assert_same_weights(network: nn.Module, expected: nn.Module) -> None:
    state = expected.state_dict()
    assert list(network.state_dict()) == list(state)
    for key, tensor in network.state_dict().items():
        assert torch.equal(tensor, state[key])


def test_trained_batch_norm_is_warned_of(
    generator_weights: Weights, generator_file: Path, tmp_path: Path
) -> None:
    assert not read_capspix2pix(generator_file).warnings
    path = write_torch(tmp_path / "normed.pt", generator_weights, batches=1650)
    assert "batch norm layers have seen" in read_capspix2pix(path).warnings[0]


def test_broadcast_needs_its_noise_size(tmp_path: Path) -> None:
    path = write_torch(tmp_path / "G.pt", fill(generator_shapes("broadcast")))
    with pytest.raises(InvalidParameter, match=r"leaves no trace of its noise size.*--noise-size"):
        read_capspix2pix(path)


def test_flags_that_contradict_the_file_are_refused(generator_file: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidParameter, match="'input': the file's layers are those of 'broadc"):
        read_capspix2pix(generator_file, noise_source="input")
    with pytest.raises(InvalidParameter, match="noise_size=100: the file's layers are for 16"):
        read_capspix2pix(generator_file, noise_size=100)
    with pytest.raises(InvalidParameter, match="'broadcast_conv' takes any size; leave it out"):
        read_capspix2pix(generator_file, image_size=(64, 64))
    oblong = fill(generator_shapes("input", 10, pixels=48 * 64))
    path = write_torch(tmp_path / "G.pt", oblong)
    with pytest.raises(InvalidParameter, match=r"55x55: the noise layer fc\.weight \[3072,"):
        read_capspix2pix(path)
    assert read_capspix2pix(path, image_size=(48, 64)).arguments["image_size"] == (48, 64)


def test_a_broken_noise_layer_is_named(generator_weights: Weights, tmp_path: Path) -> None:
    weights = generator_weights | {"conv_noise.weight": np.zeros(5, np.float32)}
    path = write_torch(tmp_path / "G.pt", weights)
    with pytest.raises(InvalidInput, match=r"conv_noise\.weight: needed two axes.*has \[5\]"):
        read_capspix2pix(path)
    del weights["conv_noise.weight"]
    with pytest.raises(InvalidInput, match=r"conv_noise\.weight: needed .* the file has none"):
        read_capspix2pix(write_torch(path, weights))


def test_missing_extra_and_misshapen_tensors_are_listed_with_both_shapes(
    generator_weights: Weights, tmp_path: Path
) -> None:
    weights = dict(generator_weights)
    del weights["convcaps3.conv2d.bias"]
    weights["convcaps11.conv2d.bias"] = np.zeros(3, np.float32)
    weights["deconvcaps2.deconv2d.weight"] = np.zeros((32, 64, 5, 5), np.float32)
    weights["recon1.bias"] = np.zeros(65, np.float32)
    with pytest.raises(InvalidInput, match="not the tensors of the CapsPix2Pix gen") as caught:
        read_capspix2pix(write_torch(tmp_path / "G.pt", weights))
    assert str(caught.value).splitlines()[1:] == [
        "  missing: convcaps3.conv2d.bias: needed [128], found none",
        "  extra: convcaps11.conv2d.bias: found [3], none is needed",
        "  wrong shape: deconvcaps2.deconv2d.weight: needed [32, 64, 4, 4], found [32, 64, 5, 5]",
        "  wrong shape: recon1.bias: needed [64], found [65]",
    ]


def test_other_projects_and_formats_are_refused(segcaps_file: Path, tmp_path: Path) -> None:
    discriminator = fill(layout("capspix2pix_discriminator_keys"))
    with pytest.raises(InvalidInput, match=r"CapsPix2Pix discriminator.*ModelG_"):
        read_capspix2pix(write_torch(tmp_path / "ModelD.pt", discriminator))
    unet = {"down.weight": np.zeros((8, 1, 3, 3), np.float32)}
    with pytest.raises(InvalidInput, match=r"none of its tensors.*down.weight \[8, 1, 3, 3\]"):
        read_capspix2pix(write_torch(tmp_path / "unet.pt", unet))
    with pytest.raises(UnsupportedFormat, match=r"is an HDF5 file.*import segcaps"):
        read_capspix2pix(segcaps_file)
    (tmp_path / "G.txt").write_text("weights")
    with pytest.raises(UnsupportedFormat, match=r"neither a PyTorch checkpoint \(.pt, .pth\)"):
        read_capspix2pix(tmp_path / "G.txt")


class Payload:
    """What a hostile pickle does when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("writer", ["torch", "torch legacy", "pickle"])
def test_a_pickled_object_is_refused_and_never_runs(tmp_path: Path, writer: str) -> None:
    path, trace = tmp_path / "G.pt", tmp_path / "executed"
    if writer == "pickle":
        path.write_bytes(pickle.dumps({"conv1.weight": Payload(trace)}))
    else:
        torch.save(
            {"conv1.weight": Payload(trace)},
            path,
            _use_new_zipfile_serialization=writer == "torch",
        )
    with pytest.raises(InvalidInput, match=r"G\.pt holds a pickled object.*state_dict\(\)"):
        read_capspix2pix(path)
    assert not trace.exists()


def test_a_whole_network_and_other_content_are_refused(tmp_path: Path) -> None:
    torch.save(nn.Conv2d(1, 1, 1), tmp_path / "net.pt")
    with pytest.raises(InvalidInput, match="holds a pickled object"):
        read_capspix2pix(tmp_path / "net.pt")
    torch.save([torch.zeros(2)], tmp_path / "list.pt")
    with pytest.raises(InvalidInput, match="holds list, not a state dict"):
        read_capspix2pix(tmp_path / "list.pt")
    torch.save({"conv1.weight": 3}, tmp_path / "number.pt")
    with pytest.raises(InvalidInput, match=r"entry 'conv1\.weight' is int, not a tensor"):
        read_capspix2pix(tmp_path / "number.pt")
    torch.save({"conv1.weight": torch.zeros(2, 2).to_sparse()}, tmp_path / "sparse.pt")
    with pytest.raises(InvalidInput, match=r"conv1\.weight is not a dense tensor"):
        read_capspix2pix(tmp_path / "sparse.pt")


@pytest.mark.parametrize("length", [20, 1000, 100_000, -1])
@pytest.mark.parametrize("kind", ["zip", "legacy", "safetensors"])
def test_a_truncated_file_is_refused(
    generator_file: Path, generator_weights: Weights, tmp_path: Path, kind: str, length: int
) -> None:
    path = tmp_path / ("cut.safetensors" if kind == "safetensors" else "cut.pt")
    if kind == "safetensors":
        save_file(torch.load(generator_file, weights_only=True), path)
    else:
        write_torch(path, generator_weights, legacy=kind == "legacy")
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(InvalidInput, match=r"cut\.\w+ (is a broken or truncated|holds a pickled)"):
        read_capspix2pix(path)


def test_sizes_are_bounded_packed_and_unpacked(
    generator_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "MAX_BYTES", 2**20)
    with pytest.raises(InputTooLarge, match=r"ModelG\.pt has .* bytes: at most 1048576"):
        read_capspix2pix(generator_file)
    with zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data/0", bytes(2**21))
    with pytest.raises(InputTooLarge, match="unpacks to 2097152 bytes: at most 1048576"):
        read_capspix2pix(tmp_path / "bomb.pt")
