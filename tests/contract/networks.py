"""What every capsule network promises; a network's test class inherits this and gives samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from caps_med.bundles.export import export_program
from caps_med.errors import InvalidParameter
from caps_med.networks import (
    NETWORKS,
    CapsuleNetwork,
    SegmentationNetwork,
    batching,
    build_network,
)

Inputs = tuple[Tensor, ...]
#: A small capsule network is the same network: every layer, fewer atoms.
ATOMS = 4
TOLERANCE = 1e-5


class NetworkContract:
    """Subclasses set `name`, and `channels` and `inputs` where the input is no image.

    `channels` is the argument with the number of the input's channels. `small` are the arguments
    that make the network small, the first of them its width.
    """

    name: str
    channels = "in_channels"
    small: Mapping[str, object]
    arguments: Mapping[str, object] = {}

    def inputs(self, network: CapsuleNetwork, batch: int, size: tuple[int, ...]) -> Inputs:
        """Pseudo-random inputs of `network`: the image-like one first."""
        assert isinstance(network, SegmentationNetwork)
        generator = torch.Generator().manual_seed(sum(size))
        return (torch.rand(batch, network.in_channels, *size, generator=generator),)

    def network(self, **arguments: object) -> CapsuleNetwork:
        torch.manual_seed(0)
        chosen = {**self.small, **self.arguments, **arguments}
        return build_network(self.name, chosen).eval()

    @pytest.mark.parametrize("channels", [1, 3])
    @pytest.mark.parametrize("size", [(16, 24), (8, 16, 8)])
    def test_forward_2d_and_3d_with_one_and_three_channels(
        self, channels: int, size: tuple[int, ...]
    ) -> None:
        network = self.network(spatial_dims=len(size), **{self.channels: channels})
        with torch.no_grad():
            answer = network(*self.inputs(network, 2, size))
        assert answer.shape == (2, 1, *size)
        assert answer.min() >= 0 and answer.max() <= 1

    @pytest.mark.parametrize("size", [(16, 24), (8, 16, 8)])
    def test_backward_reaches_every_parameter_of_the_answer(self, size: tuple[int, ...]) -> None:
        network = self.network(spatial_dims=len(size)).train()
        self.loss(network, self.inputs(network, 1, size)).backward()
        for name, parameter in network.named_parameters():
            assert parameter.grad is not None, name
            assert torch.isfinite(parameter.grad).all() and parameter.grad.abs().max() > 0, name

    def loss(self, network: CapsuleNetwork, inputs: Inputs) -> Tensor:
        """A number that depends on every parameter."""
        loss: Tensor = network(*inputs).square().mean()
        return loss

    def test_a_wrong_rank_or_channel_count_is_refused(self) -> None:
        network = self.network()
        first, *others = self.inputs(network, 1, (16, 16))
        with pytest.raises(InvalidParameter, match=r"shape \(1, 16, 16\): \[B, 1, H, W\] is nee"):
            network(first[0], *others)
        with pytest.raises(InvalidParameter, match=r"shape \(1, 2, 16, 16\): \[B, 1, H, W\]"):
            network(first.repeat(1, 2, 1, 1), *others)
        with pytest.raises(InvalidParameter, match=r"size \(16, 0\): .*; pad to \(16, \d+\)"):
            network(first[..., :0], *others)

    def test_a_cpu_takes_a_batch_one_sample_at_a_time(self) -> None:
        """So answers are equal to the bit, whatever the convolutions do with larger batches."""
        network = self.network()
        sizes: set[int] = set()
        for child in network.children():
            for part in child if isinstance(child, torch.nn.ModuleList) else (child,):
                part.register_forward_pre_hook(lambda _, given: sizes.add(len(given[0])))
        with torch.no_grad():
            for answers, single in self.answers(network, self.inputs(network, 3, (16, 16))):
                assert torch.equal(answers, single)
            sizes.clear()
            self.outputs(network, self.inputs(network, 3, (16, 16)))
        assert sizes == {1}

    def test_an_empty_batch_has_no_answers(self) -> None:
        network = self.network()
        inputs = self.inputs(network, 1, (16, 16))
        wanted = self.outputs(network, inputs)
        empty = tuple(x[:0].requires_grad_() for x in inputs)
        found = self.outputs(network, empty)
        assert {name: part.shape[1:] for name, part in found.items()} == {
            name: part.shape[1:] for name, part in wanted.items()
        }
        assert {len(part) for part in found.values()} == {0}
        torch.cat([part.flatten() for part in found.values()]).sum().backward()
        assert empty[0].grad is not None

    def test_no_sample_of_an_undivided_batch_sees_another(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As on a GPU; in float64, since a deep network multiplies rounding a thousandfold."""
        monkeypatch.setattr(batching, "SPLIT_ON", set())
        network = self.network().double()
        inputs = tuple(x.double() for x in self.inputs(network, 4, (16, 16)))
        with torch.no_grad():
            for answers, single in self.answers(network, inputs):
                assert_close(single, answers)

    def answers(self, network: CapsuleNetwork, inputs: Inputs) -> Iterator[tuple[Tensor, Tensor]]:
        """Each sample's part of the batch's answers, and its answers when it is alone."""
        together = self.outputs(network, inputs)
        for index in range(len(inputs[0])):
            alone = self.outputs(network, tuple(x[index : index + 1] for x in inputs))
            for name, single in alone.items():
                yield together[name][index : index + 1], single

    def outputs(self, network: CapsuleNetwork, inputs: Inputs) -> dict[str, Tensor]:
        """All that the network computes of its inputs, by name."""
        return {"answer": network(*inputs)}

    def test_weights_survive_saving(self, tmp_path: Path) -> None:
        network = self.network()
        save_file(network.state_dict(), tmp_path / "model.safetensors")
        inputs = self.inputs(network, 1, (16, 16))
        with torch.no_grad():
            answer = network(*inputs)
            for parameter in network.parameters():
                parameter.zero_()
            assert not torch.equal(network(*inputs), answer)
            network.load_state_dict(load_file(tmp_path / "model.safetensors"))
            assert torch.equal(network(*inputs), answer)

    def test_all_zero_input_gives_finite_answers_and_gradients(self) -> None:
        network = self.network().train()
        inputs = tuple(torch.zeros_like(tensor) for tensor in self.inputs(network, 1, (16, 16)))
        assert torch.isfinite(network(*inputs)).all()
        self.loss(network, inputs).backward()
        for name, parameter in network.named_parameters():
            assert parameter.grad is not None and torch.isfinite(parameter.grad).all(), name

    def test_the_registry_builds_it_and_refuses_the_unknown(self) -> None:
        assert type(self.network()) is NETWORKS[self.name]
        with pytest.raises(InvalidParameter, match=f"{self.name}: argument 'depth'"):
            self.network(depth=3)
        width = next(iter(self.small))
        with pytest.raises(InvalidParameter, match=f"argument '{width}' is 5000: at most 4096"):
            self.network(**{width: 5000})
        with pytest.raises(InvalidParameter, match="network='VNet': must be one of"):
            build_network("VNet", {})


class MappedCapsuleContract(NetworkContract):
    """What networks with capsules promise beside it: they show them, and need sizes to halve."""

    small: Mapping[str, object] = {"atoms": ATOMS}

    def capsules(self, network: CapsuleNetwork, inputs: Inputs) -> Mapping[str, Tensor]:
        call: Callable[..., Mapping[str, Tensor]] = cast("Any", network).capsules
        return call(*inputs)

    @pytest.mark.parametrize(
        ("size", "padded"), [((17, 16), (24, 16)), ((8, 30), (8, 32)), ((1, 63), (8, 64))]
    )
    def test_odd_sizes_are_refused_with_the_size_to_pad_to(
        self, size: tuple[int, ...], padded: tuple[int, ...]
    ) -> None:
        network = self.network()
        height, width = padded
        with pytest.raises(InvalidParameter, match=rf"multiple of 8; pad to \({height}, {width}\)"):
            network(*self.inputs(network, 1, size))

    def outputs(self, network: CapsuleNetwork, inputs: Inputs) -> dict[str, Tensor]:
        return {**super().outputs(network, inputs), **self.capsules(network, inputs)}

    def test_all_zero_input_gives_finite_capsules(self) -> None:
        network = self.network().train()
        inputs = tuple(torch.zeros_like(tensor) for tensor in self.inputs(network, 1, (16, 16)))
        for capsules in self.capsules(network, inputs).values():
            assert torch.isfinite(capsules).all()

    def test_capsules_are_ordered_and_described_by_layers(self) -> None:
        network = self.network()
        size = (16, 24)
        with torch.no_grad():
            layers = self.capsules(network, self.inputs(network, 1, size))
        assert list(layers) == [layer.name for layer in network.layers]
        for layer in network.layers:
            spatial = tuple(edge // layer.stride for edge in size)
            assert layers[layer.name].shape == (1, layer.types, layer.atoms, *spatial)


class CapsuleNetworkContract(MappedCapsuleContract):
    """What networks of capsules alone promise beside it: the last ones make the answer."""

    def test_the_last_capsules_alone_make_the_answer(self) -> None:
        network = self.network()
        inputs = self.inputs(network, 1, (16, 16))
        with torch.no_grad():
            last = list(self.capsules(network, inputs).values())[-1]
            assert_close(self.head(network, last), network(*inputs))

    def head(self, network: CapsuleNetwork, last: Tensor) -> Tensor:
        """The answer from the last layer's capsules."""
        raise NotImplementedError


class TracedNetworkContract(NetworkContract):
    """The same for `torch.export`, which takes seconds: for each network, not each variant."""

    def test_an_exported_program_gives_the_same_at_other_sizes(self) -> None:
        """In float64: a freshly initialised network multiplies rounding errors a thousandfold."""
        network = self.network().double()
        program = export_program(network, self.doubles(network, (16, 24)))
        other = self.doubles(network, (32, 16))
        with torch.no_grad():
            assert_close(program.module()(*other), network(*other))

    def doubles(self, network: CapsuleNetwork, size: tuple[int, ...]) -> Inputs:
        return tuple(tensor.double() for tensor in self.inputs(network, 2, size))


def assert_close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=TOLERANCE)
