"""CapsNet, matrix capsules and Efficient-CapsNet: what each classification network promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from caps_med.bundles.export import export_program
from caps_med.errors import InvalidParameter
from caps_med.layers.dense import DenseVotes
from caps_med.networks import (
    CapsNet,
    ClassificationEnsemble,
    ConvNet,
    ConvolutionalClassifier,
    EfficientCapsNet,
    MatrixCapsules,
    build_network,
)
from caps_med.networks.classification import ClassificationNetwork
from caps_med.routing import route_em

#: Arguments that make each network small.
SMALL: dict[str, dict[str, Any]] = {
    "CapsNet": {"width": 16, "primary_types": 2},
    "MatrixCapsules": {"width": 8, "types": (3, 4, 5)},
    "EfficientCapsNet": {},
}


def built(name: str, **arguments: Any) -> ClassificationNetwork:  # noqa: ANN401
    torch.manual_seed(0)
    network = build_network(name, {**SMALL[name], "out_channels": 4, **arguments})
    assert isinstance(network, ClassificationNetwork)
    return network.eval()


def images(network: ClassificationNetwork, batch: int = 3, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(batch, network.in_channels, *network.image_size, generator=generator)


def parameters(network: torch.nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def test_the_published_networks_have_the_published_numbers_of_parameters() -> None:
    assert parameters(CapsNet(in_channels=1, out_channels=10, image_size=(28, 28))) == 8_215_568
    assert parameters(CapsNet(decoder=False)) == 6_804_224
    assert parameters(MatrixCapsules(2, 5, (32, 32))) == 317_194
    assert parameters(MatrixCapsules(2, 5, (32, 32), width=64, types=(8, 16, 16))) == 68_754
    assert parameters(EfficientCapsNet(decoder=False)) == 161_824


@pytest.mark.parametrize("name", SMALL)
def test_shapes_and_operations_can_be_counted_on_meta(name: str) -> None:
    network = built(name).to("meta")
    with FlopCounterMode(display=False) as counter:
        answer = network(torch.empty(2, 1, 28, 28, device="meta"))
    assert answer.shape == (2, 4) and counter.get_total_flops() > 0


@pytest.mark.parametrize("name", SMALL)
class TestEachNetwork:
    @pytest.mark.parametrize(
        ("channels", "size"),
        [(1, (28, 28)), (3, (28, 36)), (1, (8, 8)), (3, (100, 224)), (1, (24, 20, 22))],
    )
    def test_it_takes_any_size_and_number_of_channels(
        self, name: str, channels: int, size: tuple[int, ...]
    ) -> None:
        network = built(name, in_channels=channels, image_size=size)
        with torch.no_grad():
            scores, capsules = network.classify(images(network, 2))
        assert scores.shape == (2, 4) and capsules.shape == (2, 4, 16)
        assert scores.min() > 0 and scores.max() < 1

    @pytest.mark.parametrize("training", [False, True])
    def test_an_empty_batch_has_no_scores(self, name: str, training: bool) -> None:
        network = built(name).train(training)
        scores, capsules = network.classify(images(network, 0))
        assert scores.shape == (0, 4) and capsules.shape == (0, 4, 16)
        scores.sum().backward()
        gradients = [p.grad for p in network.parameters() if p.grad is not None]
        assert gradients and not any(gradient.any() for gradient in gradients)

    def test_scores_start_neither_silent_nor_saturated(self, name: str) -> None:
        network = built(name, out_channels=10)
        with torch.no_grad():
            scores = network(images(network))
        assert 0.005 < scores.mean() < 0.9

    def test_gradients_reach_every_parameter(self, name: str) -> None:
        network = built(name, decoder=True).train()
        scores, capsules = network.classify(images(network))
        picture = network.reconstruct(capsules, torch.eye(4)[:3])
        (scores.square().sum() + picture.square().sum()).backward()
        for key, parameter in network.named_parameters():
            assert parameter.grad is not None, key
            assert torch.isfinite(parameter.grad).all() and parameter.grad.abs().max() > 0, key

    def test_an_answer_does_not_depend_on_its_neighbours(self, name: str) -> None:
        network = built(name)
        batch = images(network, 4)
        with torch.no_grad():
            together = network(batch)
            whole = network._classify(batch)[0]  # as a GPU computes it
            for index in range(4):
                alone = network(batch[index : index + 1])
                assert torch.equal(alone, together[index : index + 1])
                torch.testing.assert_close(alone, whole[index : index + 1], rtol=0, atol=1e-5)

    def test_an_exported_program_gives_the_same_for_other_batches(self, name: str) -> None:
        network = built(name).double()
        batch = images(network).double()
        with torch.no_grad():
            found = export_program(network, (batch[:2],)).module()(batch)
            torch.testing.assert_close(found, network(batch), rtol=0, atol=1e-9)

    def test_an_empty_image_gives_finite_scores_and_gradients(self, name: str) -> None:
        network = built(name).train()
        scores, _ = network.classify(torch.zeros(2, 1, 28, 28))
        scores.sum().backward()
        assert torch.isfinite(scores).all()
        assert all(torch.isfinite(p.grad).all() for p in network.parameters() if p.grad is not None)

    def test_capsules_are_described_by_layers_and_end_with_the_classes(self, name: str) -> None:
        network = built(name)
        batch = images(network, 2)
        with torch.no_grad():
            layers = network.capsules(batch)
            scores, capsules = network.classify(batch)
        assert list(layers) == [layer.name for layer in network.layers]
        for layer in network.layers:
            assert layers[layer.name].shape[:3] == (2, layer.types, layer.atoms), layer
        last = layers["classcaps"]
        assert last.shape == (2, 4, 16, 1, 1)
        torch.testing.assert_close(last[..., 0, 0], capsules)
        assert scores.shape == last.shape[:2]

    def test_the_masked_capsule_alone_is_reconstructed(self, name: str) -> None:
        network = built(name, decoder=True)
        with torch.no_grad():
            _, capsules = network.classify(images(network))
            present = torch.eye(4)[:3]
            first = network.reconstruct(capsules, present)
            capsules[1:, 0] += 1  # of classes that are not present
            assert torch.equal(network.reconstruct(capsules, present), first)
            capsules[0, 0] += 1
            assert not torch.equal(network.reconstruct(capsules, present), first)
        assert first.shape == (3, 1, 28, 28) and first.min() >= 0 and first.max() <= 1

    def test_a_large_image_is_reconstructed_at_the_size_behind_the_stem(self, name: str) -> None:
        network = built(name, decoder=True, image_size=(100, 56))
        assert network.reconstruction_size == (25, 14)
        target = network.reconstruction_target(images(network))
        assert target.shape == (3, 1, 25, 14)

    def test_weights_survive_saving(self, name: str, tmp_path: Path) -> None:
        network, other = built(name), built(name)
        save_file(network.state_dict(), tmp_path / "model.safetensors")
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.zero_()
            assert not torch.equal(network(images(network)), other(images(network)))
            other.load_state_dict(load_file(tmp_path / "model.safetensors"))
            assert torch.equal(network(images(network)), other(images(network)))

    @pytest.mark.parametrize("size", [(28, 28), (30, 70)])
    def test_it_knows_how_many_votes_it_casts(self, name: str, size: tuple[int, int]) -> None:
        network, votes = built(name, image_size=size), DenseVotes.votes
        with (
            patch("caps_med.layers.matrix.route_em", wraps=route_em) as by_em,
            patch.object(DenseVotes, "votes", autospec=True, side_effect=votes) as dense,
        ):
            network(images(network, 1))
        cast = [call.args[0] for call in by_em.call_args_list]
        cast += [votes(*call.args) for call in dense.call_args_list]
        assert network.vote_count == sum(each[0].numel() for each in cast) > 0

    def test_wrong_inputs_are_refused(self, name: str) -> None:
        network = built(name, decoder=False)
        with pytest.raises(InvalidParameter, match=r"\(1, 1, 28, 27\): \[B, 1, 28, 28\] is needed"):
            network(torch.zeros(1, 1, 28, 27))
        with pytest.raises(InvalidParameter, match="was built without a decoder"):
            network.reconstruct(torch.zeros(1, 4, 16), torch.zeros(1, 4))
        with pytest.raises(InvalidParameter, match="out_channels=0: must be at least 1"):
            built(name, out_channels=0)
        with pytest.raises(InvalidParameter, match=r"image_size=\(28,\): two or three edges"):
            built(name, image_size=(28,))
        with pytest.raises(InvalidParameter, match="too many times as long as another"):
            built(name, image_size=(1, 400))


def test_vector_poses_have_transformation_matrices_of_16_by_16() -> None:
    """Those that act on the rows of a pose alone give the answer of matrix poses."""
    torch.manual_seed(0)
    arguments = {"image_size": (20, 20), "width": 8, "types": (3, 4, 5)}
    matrix, vector = (
        MatrixCapsules(1, 3, **arguments, pose=pose).eval()  # type: ignore[arg-type]
        for pose in ("matrix", "vector")
    )
    states = matrix.state_dict()
    for name, weight in states.items():
        if name.endswith(".weight") and weight.ndim == 5:
            block = torch.einsum("xw,tijyz->tijxywz", torch.eye(4), weight)
            states[name] = block.flatten(5).flatten(3, 4)
    vector.load_state_dict(states)
    image = torch.rand(2, 1, 20, 20)
    torch.testing.assert_close(vector(image), matrix(image))
    with pytest.raises(InvalidParameter, match="pose='quaternion': must be one of"):
        MatrixCapsules(1, 3, pose="quaternion")  # type: ignore[arg-type]


def test_activations_of_matrix_capsules_are_told_for_every_layer() -> None:
    network = built("MatrixCapsules")
    assert isinstance(network, MatrixCapsules)
    batch = images(network)
    with torch.no_grad():
        active = network.activations(batch)
        poses = network.capsules(batch)
        torch.testing.assert_close(active["classcaps"][..., 0, 0], network(batch))
    for name, activation in active.items():
        assert activation.shape == poses[name].shape[:2] + poses[name].shape[3:]
        assert activation.min() >= 0 and activation.max() <= 1


def test_where_a_capsule_stands_is_seen_by_coordinates_alone() -> None:
    """Without coordinate addition the class layer does not know where its children stand."""
    for coordinates in (True, False):
        network = built("MatrixCapsules", coordinates=coordinates)
        assert isinstance(network, MatrixCapsules)
        with torch.no_grad():
            below = network._computed(network._first(images(network)))["convcaps2"]
            moved = type(below)(below.poses.flip(-1), below.activations.flip(-1))
            same = torch.allclose(
                network.classcaps(below).poses, network.classcaps(moved).poses, atol=1e-4
            )
        assert same is not coordinates


#: Networks to compare with, and arguments that make them small.
CONVOLUTIONAL: dict[str, dict[str, Any]] = {"ConvNet": {}, "ResNet": {"widths": (4, 4, 8, 8)}}


def test_a_cnn_of_equal_size_has_as_many_parameters_as_efficient_capsnet() -> None:
    assert parameters(ConvNet()) == 161_834
    assert abs(parameters(ConvNet()) - parameters(EfficientCapsNet(decoder=False))) == 10


@pytest.mark.parametrize("name", CONVOLUTIONAL)
class TestConvolutionalNetworks:
    def network(self, name: str, **arguments: Any) -> ConvolutionalClassifier:  # noqa: ANN401
        torch.manual_seed(0)
        built = build_network(name, {**CONVOLUTIONAL[name], "out_channels": 4, **arguments})
        assert isinstance(built, ConvolutionalClassifier)
        return built.eval()

    @pytest.mark.parametrize(
        ("channels", "size"), [(1, (28, 36)), (3, (100, 224)), (1, (8, 8)), (1, (24, 20, 22))]
    )
    def test_it_takes_any_size_and_number_of_channels(
        self, name: str, channels: int, size: tuple[int, ...]
    ) -> None:
        network = self.network(name, in_channels=channels, image_size=size)
        scores, capsules = network.classify(images(network))
        assert scores.shape == (3, 4) and capsules.shape == (3, 4, 0)
        torch.testing.assert_close(scores.sum(1), torch.ones(3))

    def test_classes_that_do_not_exclude_each_other_have_probabilities_of_their_own(
        self, name: str
    ) -> None:
        network = self.network(name, activation="sigmoid")
        batch = images(network)
        torch.testing.assert_close(network(batch), network.logits(batch).sigmoid())
        with pytest.raises(InvalidParameter, match="activation"):
            self.network(name, activation="relu")

    def test_an_answer_does_not_depend_on_its_neighbours(self, name: str) -> None:
        network = self.network(name)
        batch = images(network, 3)
        with torch.no_grad():
            together = network(batch)
            assert torch.equal(network(batch[1:2]), together[1:2])
            whole, _ = network.classify_together(batch)
        torch.testing.assert_close(whole, together, rtol=0, atol=1e-5)

    @pytest.mark.parametrize("training", [False, True])
    def test_an_empty_batch_has_no_scores(self, name: str, training: bool) -> None:
        network = self.network(name).train(training)
        for classify in (network.classify, network.classify_together):
            scores, capsules = classify(images(network, 0))
            assert scores.shape == (0, network.out_channels)
            assert capsules.shape == (0, network.out_channels, 0)

    def test_gradients_reach_every_parameter(self, name: str) -> None:
        network = self.network(name).train()
        network.logits(images(network)).square().sum().backward()
        assert all(p.grad is not None and p.grad.abs().max() > 0 for p in network.parameters())

    def test_there_are_no_capsules_to_show(self, name: str) -> None:
        network = self.network(name)
        assert network.layers == () and not network.reconstructs
        with pytest.raises(InvalidParameter, match=f"{name} has no capsules to show"):
            network.capsules(images(network))


class TestEnsemble:
    def network(self) -> ClassificationEnsemble:
        arguments = {"out_channels": 4, "image_size": (60, 60)}
        torch.manual_seed(0)
        built = build_network(
            "ClassificationEnsemble",
            {"network": "EfficientCapsNet", "members": 2, "arguments": arguments},
        )
        assert isinstance(built, ClassificationEnsemble)
        return built.eval()

    def test_it_answers_the_mean_and_reconstructs_by_its_first_member(self) -> None:
        network = self.network()
        batch = images(network)
        first, second = (m for m in network.members if isinstance(m, EfficientCapsNet))
        scores, capsules = network.classify(batch)
        torch.testing.assert_close(scores, (first(batch) + second(batch)) / 2)
        torch.testing.assert_close(capsules, first.classify(batch)[1])
        assert network.reconstruct(capsules, torch.eye(4)[:3]).shape == (3, 1, 30, 30)
        assert network.reconstruction_target(batch).shape == (3, 1, 30, 30)
        assert list(network.capsules(batch)) == [layer.name for layer in network.layers]

    def test_its_weights_are_those_of_its_members(self) -> None:
        assert all(name.startswith("members.") for name in self.network().state_dict())

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"network": "SegCaps"}, "members must be classification networks"),
            ({"network": "ClassificationEnsemble"}, "an ensemble of ensembles"),
            ({"members": 33}, "members=33: must be 1 to 32"),
        ],
    )
    def test_other_members_are_refused(self, arguments: dict[str, Any], message: str) -> None:
        given = {"network": "ConvNet", "members": 1, "arguments": {}, **arguments}
        with pytest.raises(InvalidParameter, match=message):
            build_network("ClassificationEnsemble", given)
