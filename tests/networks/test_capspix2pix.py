"""CapsPix2Pix: the contract of every network with each noise source, its size, its errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from caps_med.errors import InvalidParameter
from caps_med.layers import ConvCapsule, DeconvCapsule
from caps_med.networks import CapsPix2Pix, CapsuleNetwork, build_network
from caps_med.networks.gan_layers import PlainLayer
from caps_med.networks.noise import BroadcastConvNoise, FieldNoise
from caps_med.networks.noise.fields import random_fields
from tests.contract.generators import SynthesisContract
from tests.contract.networks import (
    CapsuleNetworkContract,
    TracedNetworkContract,
    assert_close,
)


class GeneratorContract(SynthesisContract, CapsuleNetworkContract):
    name = "CapsPix2Pix"

    def head(self, network: CapsuleNetwork, last: Tensor) -> Tensor:
        assert isinstance(network, CapsPix2Pix)
        return torch.sigmoid(network.conv2(last.flatten(1, 2)))

    def test_another_noise_gives_another_image(self) -> None:
        network = self.network()
        label, z = self.inputs(network, 1, (16, 16))
        with torch.no_grad():
            change = network(label, z) - network(label, -z)
        assert change.abs().max() > 1e-4

    def test_a_noise_vector_of_another_length_is_refused(self) -> None:
        network = self.network()
        label, z = self.inputs(network, 2, (16, 16))
        with pytest.raises(InvalidParameter, match=r"z has shape .*\[B, Z\] = \(2, "):
            network(label, z[:, :-1])
        with pytest.raises(InvalidParameter, match=r"z has shape .*\[B, Z\] = \(2, "):
            network(label, z[:1])


@pytest.mark.parametrize("size", [(3, 4), (5, 5), (24, 33), (8, 6, 16)])
def test_a_broadcast_vector_is_convolved_once(size: tuple[int, ...]) -> None:
    noise = BroadcastConvNoise(16, len(size))
    z = torch.randn(2, 16, generator=torch.Generator().manual_seed(0))
    fields = noise.fields(z, size)
    with torch.no_grad():
        repeated = noise.channel(z, fields)
    assert torch.equal(repeated, noise.channel(z, fields))  # which gradients need is not
    assert len(repeated[0].unique()) > 1


class TestCapsPix2Pix(GeneratorContract):
    pass


class TestLinear(GeneratorContract):
    """Without transposed convolutions and padding with zeros."""

    arguments: Mapping[str, object] = {"upsampling": "linear", "padding": "replicate"}


class TestSmoothed(GeneratorContract):
    """With transposed convolutions that are smoothed, as axon-synthesis is.

    `tests.bundles.test_export` exports one.
    """

    arguments: Mapping[str, object] = {"upsampling": "smoothed", "padding": "replicate"}

    def test_a_published_network_becomes_one_and_back(self) -> None:
        smoothed, published = self.network(), build_network("CapsPix2Pix", self.small).eval()
        assert isinstance(smoothed, CapsPix2Pix) and isinstance(published, CapsPix2Pix)
        smoothed.load_state_dict(published.state_dict())
        inputs = self.inputs(published, 1, (16, 24))
        with torch.no_grad():
            before = published(*inputs)
            published.resample_by("smoothed", "replicate")
            assert torch.equal(published(*inputs), smoothed(*inputs))
            assert not torch.equal(published(*inputs), before)
            published.resample_by("transposed", "zeros")
            assert torch.equal(published(*inputs), before)
        with pytest.raises(InvalidParameter, match="upsampling='linear': the weights of"):
            smoothed.resample_by("linear", "replicate")


class TestPlain(SynthesisContract):
    """The ablation: convolutions in place of capsules."""

    name = "CapsPix2Pix"
    small: Mapping[str, object] = {"atoms": 4}
    arguments: Mapping[str, object] = {"capsules": False}


class TestPlainSmoothed(TestPlain):
    arguments: Mapping[str, object] = {
        "capsules": False, "upsampling": "smoothed", "padding": "replicate",
    }  # fmt: skip


def test_the_ablation_has_the_same_widths_and_no_capsules() -> None:
    plain, capsules = (
        build_network("CapsPix2Pix", {"atoms": 4, "capsules": kept}) for kept in (False, True)
    )
    assert isinstance(plain, CapsPix2Pix) and plain.layers == ()
    replaced = {
        name: (child, plain.get_submodule(name))
        for name, child in capsules.named_children()
        if isinstance(child, ConvCapsule | DeconvCapsule)
    }
    assert len(replaced) == 12
    for name, (layer, own) in replaced.items():
        assert isinstance(own, PlainLayer) and own.stride == layer.stride, name
        weights = sum(p.numel() for p in own.layer.parameters() if p.ndim > 1)
        above = sum(p.numel() for p in layer.parameters() if p.ndim > 1)
        assert weights % above == 0, name
        assert own.layer.out_types * own.layer.out_atoms == layer.out_types * layer.out_atoms
    label, z = torch.zeros(1, 1, 16, 16), torch.zeros(1, 64)
    with pytest.raises(InvalidParameter, match="CapsPix2Pix has no capsules to show"):
        plain.capsules(label, z)


@pytest.mark.parametrize("upsampling", ["smoothed", "linear"])
@pytest.mark.parametrize("spatial_dims", [2, 3])
def test_a_uniform_label_map_has_neither_checkerboard_nor_border(
    spatial_dims: int, upsampling: str
) -> None:
    """Whatever the weights: the image without its random fields is the same everywhere."""
    size = (24, 32, 16)[:spatial_dims]
    label = torch.ones(1, 1, *size)

    def unevenness(**arguments: Any) -> float:  # noqa: ANN401
        torch.manual_seed(0)
        network = CapsPix2Pix(
            spatial_dims=spatial_dims, noise_source="field", noise_size=8, atoms=4, **arguments
        ).eval()
        with torch.no_grad():
            clean, _ = network.clean_and_image(label, torch.zeros(1, 8))
        return float(clean.max() - clean.min())

    assert unevenness(upsampling=upsampling, padding="replicate") < 1e-5
    if spatial_dims == 2:
        assert unevenness(upsampling="transposed", padding="replicate") > 1e-3
        assert unevenness(upsampling=upsampling, padding="zeros") > 1e-3


@pytest.mark.parametrize("argument", ["upsampling", "padding"])
def test_an_unknown_way_is_refused(argument: str) -> None:
    with pytest.raises(InvalidParameter, match=f"{argument}='cubic': .*one of"):
        CapsPix2Pix(**{argument: "cubic"})  # type: ignore[arg-type]


class TestBroadcastNoise(GeneratorContract):
    arguments: Mapping[str, object] = {"noise_source": "broadcast", "noise_size": 8}


class TestLatentNoise(GeneratorContract):
    arguments: Mapping[str, object] = {"noise_source": "broadcast_latent", "noise_size": 16}


class TestDropoutNoise(GeneratorContract):
    arguments: Mapping[str, object] = {"noise_source": "dropout"}


class TestFieldNoise(GeneratorContract, TracedNetworkContract):
    """Exported as the one that has most to trace: capsules, modulation, fields, grain."""

    arguments: Mapping[str, object] = {"noise_source": "field", "noise_size": 16}

    def test_the_last_capsules_alone_make_the_answer(self) -> None:
        """Modulated by the style, and without the grain, which a z without field leaves out."""
        network = self.network()
        label, z = self.inputs(network, 1, (16, 16))
        assert isinstance(network, CapsPix2Pix)
        with torch.no_grad():
            clean, image = network.clean_and_image(label, z)
            assert (image - clean).abs().mean() > 1e-3
            last = list(self.capsules(network, (label, z)).values())[-1]
            modulated = network.noise.modulate(last.flatten(1, 2), z)
            assert (modulated - last.flatten(1, 2)).abs().mean() > 1e-3
            assert_close(self.head(network, modulated.unsqueeze(1)), clean)
            z[:, 8:] = 0
            clean, image = network.clean_and_image(label, z)
            assert_close(image, clean)

    def test_only_the_second_half_of_z_is_the_field(self) -> None:
        network = self.network()
        assert isinstance(network, CapsPix2Pix)
        _, z = self.inputs(network, 1, (16, 16))
        style, field = z.clone(), z.clone()
        style[:, :8], field[:, 8:] = -z[:, :8], -z[:, 8:]
        noise, count = network.noise, FieldNoise.STYLE_CHANNELS
        channels = [
            noise.channel(each, noise.fields(each, (16, 16)))[0] for each in (z, style, field)
        ]
        assert torch.equal(channels[0][count:], channels[1][count:])
        assert torch.equal(channels[0][:count], channels[2][:count])
        assert_close(channels[0][count:-1], -channels[2][count:-1])

    def test_the_fields_are_computed_once_a_pass(self, monkeypatch: pytest.MonkeyPatch) -> None:
        network = self.network()
        calls: list[Tensor] = []

        def counted(w: Tensor, *others: object) -> Tensor:
            calls.append(w)
            return random_fields(w, *others)  # type: ignore[arg-type]

        monkeypatch.setattr("caps_med.networks.noise.field.random_fields", counted)
        with torch.no_grad():
            network(*self.inputs(network, 1, (16, 16)))
        assert len(calls) == 1


@pytest.mark.parametrize(
    ("arguments", "count"),
    [
        # Upstream's figure is 1,665,074: without its dense noise layer, and with what its forward
        # pass never uses: convcaps7 (205,056), recon1..3 (9,537), 13 batch norms (33,952).
        ({"noise_source": "broadcast", "noise_size": 8}, 1_416_529),
        ({"noise_source": "broadcast_conv", "noise_size": 64}, 1_416_529 + 64 * 25 + 1),
        ({"noise_source": "input", "image_size": (16, 16)}, 1_416_529 + 65 * 256),
    ],
)
def test_parameters_of_the_published_network(arguments: dict[str, object], count: int) -> None:
    network = build_network("CapsPix2Pix", arguments)
    assert sum(p.numel() for p in network.parameters()) == count


def test_row_r_of_broadcast_noise_holds_z_modulo_its_length() -> None:
    noise = CapsPix2Pix(noise_source="broadcast", noise_size=4, atoms=4).noise
    z = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    channel = noise.channel(z, noise.fields(z, (8, 3)))
    expected = torch.tensor([1.0, 2.0, 3.0, 4.0] * 2).view(1, 1, 8, 1).expand(1, 1, 8, 3)
    assert_close(channel, expected)


def test_dropout_noise_drops_whole_capsule_types_by_the_sign_of_z() -> None:
    torch.manual_seed(0)
    noise = CapsPix2Pix(noise_source="dropout", atoms=4).noise
    assert noise.noise_size == 8
    capsules = torch.rand(1, 8, 8, 2, 2)
    with torch.no_grad():
        all_kept = noise.latent(capsules, torch.ones(1, 8))
        z = torch.tensor([[1.0, -1.0, 1.0, 1.0, -1.0, 1.0, 1.0, 1.0]])
        some = noise.latent(capsules, z)
    assert some[:, [1, 4]].abs().max() == 0
    kept = [0, 2, 3, 5, 6, 7]
    assert torch.equal(some[:, kept], all_kept[:, kept])


def test_dense_noise_is_tied_to_its_size() -> None:
    generator = CapsPix2Pix(noise_source="input", noise_size=5, image_size=(16, 24), atoms=4)
    assert generator(torch.zeros(1, 1, 16, 24), torch.zeros(1, 5)).shape == (1, 1, 16, 24)
    with pytest.raises(InvalidParameter, match=r"\(24, 16\): noise_source='input' was built for"):
        generator(torch.zeros(1, 1, 24, 16), torch.zeros(1, 5))


@pytest.mark.parametrize(
    ("image_size", "message"),
    [
        ((100, 104), "image_size=100: must be a multiple of 8"),
        ((16,), r"image_size=\(16,\): 2 edges are needed"),
        ((16, 16, 16), r"image_size=\(16, 16, 16\): 2 edges are needed"),
    ],
)
def test_a_size_that_no_label_map_can_have_is_refused(
    image_size: tuple[int, ...], message: str
) -> None:
    with pytest.raises(InvalidParameter, match=message):
        CapsPix2Pix(noise_source="input", image_size=image_size)


def test_dropout_is_for_training_and_tanh_for_images_around_zero() -> None:
    torch.manual_seed(0)
    generator = CapsPix2Pix(dropout=0.5, output="tanh", atoms=4)
    label, z = torch.ones(1, 1, 16, 16), torch.randn(1, 64)
    with torch.no_grad():
        assert not torch.equal(generator(label, z), generator(label, z))
        image = generator.eval()(label, z)
        assert torch.equal(generator(label, z), image)
    assert image.abs().max() <= 1


def test_mistakes_are_named() -> None:
    with pytest.raises(InvalidParameter, match="noise_source='rows': must be one of"):
        CapsPix2Pix(noise_source="rows")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match=r"needs image_size=\(H, W\)"):
        CapsPix2Pix(noise_source="input")
    with pytest.raises(InvalidParameter, match=r"noise_size=7: .* an even number from 4"):
        CapsPix2Pix(noise_source="field", noise_size=7)
    with pytest.raises(InvalidParameter, match=r"noise_size=20: .* use a multiple of 8"):
        CapsPix2Pix(noise_source="broadcast_latent", noise_size=20)
    with pytest.raises(InvalidParameter, match="output='relu': must be one of"):
        CapsPix2Pix(output="relu")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match=r"dropout=1\.5: must be at least 0 and below 1"):
        CapsPix2Pix(dropout=1.5)
