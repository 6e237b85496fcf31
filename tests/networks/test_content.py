"""What content does not reach is not computed, and the answer is the network's own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn

from caps_med.convolutions.reach import Reach
from caps_med.networks import ConvCaps, Ensemble, SegCaps, SegmentationNetwork, around_content
from caps_med.networks.content import Box

Hook = Callable[[nn.Module, object, Tensor], None]
#: Boxes of content in an image of 160 x 96: inside, at a corner, at a border, a single pixel.
BOXES = [((70, 90), (40, 47)), ((0, 9), (0, 11)), ((60, 160), (90, 96)), ((81, 82), (33, 34))]


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("background", [0.0, 0.3])
def test_the_answer_is_the_network_s_own(box: Box, background: float) -> None:
    network = segcaps()
    image = image_with(box, background)
    with torch.inference_mode():
        found = around_content(network)(image)
        torch.testing.assert_close(found, network(image), rtol=0, atol=1e-6)


def test_an_image_without_background_is_computed_as_it_is() -> None:
    network, image = segcaps(), torch.rand(2, 1, 16, 24)
    with torch.inference_mode():
        assert torch.equal(around_content(network)(image), network(image))


def test_an_image_that_comes_alone_is_computed_once_as_it_is() -> None:
    network, image = segcaps(), image_with(BOXES[0], 0.0)
    with torch.inference_mode():
        call = around_content(network, margin=4, alone=True)
        with computed_positions(network) as spent:
            found = call(image)
        with computed_positions(network) as whole:
            assert torch.equal(found, network(image))
    assert spent == whole


@pytest.mark.parametrize(("capsules", "normalize"), [(False, False), (True, True)])
def test_networks_that_look_at_the_whole_image_are_computed_as_they_are(
    capsules: bool, normalize: bool
) -> None:
    torch.manual_seed(0)
    network = SegCaps(2, 1, 2, atoms=2, capsules=capsules, normalize=normalize).eval()
    image = image_with(BOXES[0], 0.0)
    with torch.inference_mode():
        assert torch.equal(around_content(network, margin=4)(image), network(image))


def test_a_volume_around_content() -> None:
    network = segcaps(spatial_dims=3)
    image = torch.zeros(1, 1, 16, 80, 16)
    image[..., 3:7, 2:5, 8:] = torch.rand(4, 3, 8)
    with torch.inference_mode():
        found = around_content(network)(image)
        torch.testing.assert_close(found, network(image), rtol=0, atol=1e-6)


def test_within_the_margin_the_answer_is_the_network_s_own_beyond_it_the_background_s() -> None:
    network, image = segcaps(), image_with(((60, 80), (40, 48)), 0.0)
    with torch.inference_mode():
        found = around_content(network, margin=4)(image)
        own, empty = network(image), network(torch.zeros_like(image))
    near = torch.zeros(image.shape[2:], dtype=torch.bool)
    near[56:84, 36:52] = True
    torch.testing.assert_close(found[..., near], own[..., near], rtol=0, atol=1e-6)
    assert torch.equal(found[..., ~near], empty[..., ~near])
    assert not torch.equal(own[..., ~near], empty[..., ~near])


def test_the_margin_is_of_images_whose_background_is_zero() -> None:
    network, image = segcaps(), image_with(((60, 80), (40, 48)), 0.3)
    with torch.inference_mode():
        found = around_content(network, margin=0)(image)
        torch.testing.assert_close(found, network(image), rtol=0, atol=1e-6)


def test_a_margin_spares_most_positions_of_every_layer() -> None:
    network, image = segcaps(), image_with(((76, 84), (44, 52)), 0.0)
    with torch.inference_mode():
        call = around_content(network, margin=4)
        call(torch.zeros_like(image))
        with computed_positions(network) as spent:
            call(image)
        with computed_positions(network) as whole:
            network(image)
    spared = {name: spent[name] / whole[name] for name in whole if name != "conv1"}
    assert max(spared.values()) < 0.75, spared
    assert spared["seg_caps.conv"] < 0.03


@pytest.mark.parametrize("kind", [SegCaps, ConvCaps])
def test_empty_slices_are_computed_once(kind: type[SegmentationNetwork]) -> None:
    network = kind(2, 1, 2, atoms=2).eval()
    with torch.inference_mode():
        call = around_content(network)
        with computed_positions(network) as first:
            one = call(torch.zeros(1, 1, 16, 16))
        with computed_positions(network) as others:
            many = call(torch.zeros(3, 1, 16, 16))
            other = call(torch.full((1, 1, 16, 16), 0.5))
    assert first == others  # of the other value alone
    assert all(torch.equal(each[None], one) for each in many)
    assert not torch.equal(other, one)


def test_the_members_of_an_ensemble_are_computed_around_content() -> None:
    torch.manual_seed(0)
    network = Ensemble("SegCaps", 2, {"in_channels": 1, "out_channels": 2, "atoms": 2}).eval()
    image = image_with(BOXES[0], 0.0)
    with torch.inference_mode():
        with computed_positions(network) as spent:
            call = around_content(network)
            call(torch.zeros_like(image))
        with computed_positions(network) as repeated:
            call(torch.zeros_like(image))
        torch.testing.assert_close(call(image), network(image), rtol=0, atol=1e-6)
    assert sum(spent.values()) > 0
    assert sum(repeated.values()) == 0


@pytest.mark.parametrize(
    "layer", [nn.Conv1d(1, 1, 5, 2, 2), nn.Conv1d(1, 1, 1), nn.ConvTranspose1d(1, 1, 4, 2, 1)]
)
def test_reach_is_that_of_pytorch_s_convolutions(layer: nn.Conv1d | nn.ConvTranspose1d) -> None:
    reach = Reach(
        layer.kernel_size[0],
        layer.stride[0],
        int(layer.padding[0]),
        transposed=isinstance(layer, nn.ConvTranspose1d),
    )
    nn.init.ones_(layer.weight)
    for place in range(8, 24):
        signal = torch.zeros(1, 1, 32)
        signal[..., place] = 1
        touched = (layer(signal) != layer(torch.zeros_like(signal)))[0, 0].nonzero()
        start, stop = reach.touched((place, place + 1))
        assert touched.flatten().tolist() == list(range(start, stop))
        for output in range(start, stop):
            first, behind = reach.read((output, output + 1))
            assert first <= place < behind


def segcaps(spatial_dims: int = 2) -> SegCaps:
    """A small network whose answer depends on content from afar, background included."""
    torch.manual_seed(0)
    network = SegCaps(spatial_dims, 1, 3, atoms=2)
    for parameter in network.parameters():
        if parameter.ndim == 1:
            nn.init.uniform_(parameter, 0.05, 0.2)
    return network.eval()


def image_with(box: Box, background: float) -> Tensor:
    """`[1, 1, 160, 96]` with noise in a box."""
    image = torch.full((1, 1, 160, 96), background)
    (top, bottom), (left, right) = box
    image[..., top:bottom, left:right] = torch.rand(bottom - top, right - left) + 0.01
    if (top, left) == (0, 0):
        image[..., 0, 0] = background
    return image


@contextmanager
def computed_positions(network: nn.Module) -> Iterator[Counter[str]]:
    """Positions that each convolution computes in the block, by its name."""
    counts: Counter[str] = Counter()

    def count(name: str) -> Hook:
        def hook(_: nn.Module, __: object, maps: Tensor) -> None:
            counts[name] += len(maps) * maps[0, 0].numel()

        return hook

    kinds = (nn.Conv2d, nn.ConvTranspose2d)
    found = [(name, one) for name, one in network.named_modules() if isinstance(one, kinds)]
    hooks = [one.register_forward_hook(count(name)) for name, one in found]
    try:
        yield counts
    finally:
        for hook in hooks:
            hook.remove()
