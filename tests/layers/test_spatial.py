"""Kernels of 1 on channels-last maps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from caps_med.layers import ConvCapsule
from caps_med.layers.spatial import channels_last, conv_type, vote_conv_type

SLOW, FAST = "aten::_slow_conv2d_forward", "aten::mkldnn_convolution"


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Where PyTorch does not take oneDNN by itself."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def pair(spatial_dims: int, bias: bool) -> tuple[nn.Module, nn.Module, Tensor]:
    """The same convolution as PyTorch has it and as ours, and maps ``[3, 16, *S]``."""
    torch.manual_seed(0)
    plain = conv_type(spatial_dims)(16, 24, 1, bias=bias)
    ours = vote_conv_type(spatial_dims, 1)(16, 24, 1, bias=bias)
    ours.load_state_dict(plain.state_dict())
    return plain, ours, channels_last(torch.rand(3, 16, *(12, 20, 9)[:spatial_dims]) - 0.5)


@pytest.mark.parametrize("spatial_dims", [2, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_the_result_is_pytorch_s(spatial_dims: int, bias: bool) -> None:
    plain, ours, maps = pair(spatial_dims, bias)
    with torch.inference_mode():
        torch.testing.assert_close(ours(maps), plain(maps), rtol=0, atol=1e-6)
        assert ours(maps).movedim(1, -1).is_contiguous()


def test_gradients_and_other_types_are_left_to_pytorch() -> None:
    plain, ours, maps = pair(2, bias=False)
    grads: list[Tensor] = []
    for each in (plain, ours):
        (weight,) = each.parameters()
        grads += torch.autograd.grad(each(maps).square().sum(), weight)
    assert torch.equal(*grads)
    with torch.no_grad():
        assert torch.equal(ours.double()(maps.double()), plain.double()(maps.double()))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert ours.float()(maps).dtype == torch.bfloat16


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch without oneDNN")
def test_a_capsule_layer_with_kernels_of_1_is_computed_by_onednn() -> None:
    layer = ConvCapsule(2, 3, 16, out_types=4, out_atoms=16, kernel_size=1)
    with torch.inference_mode(), profile(activities=[ProfilerActivity.CPU]) as found:
        layer(torch.rand(1, 3, 16, 32, 32))
    names = {event.key for event in found.key_averages()}
    assert FAST in names
    assert SLOW not in names
