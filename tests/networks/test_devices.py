"""Networks on their device."""

from __future__ import annotations

import pytest
import torch

from caps_med.networks import SegCaps, on_device


def test_on_a_cpu_weights_stay_in_order() -> None:
    network = on_device(SegCaps(atoms=2), torch.device("cpu"))
    assert all(weight.is_contiguous() for weight in network.parameters())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu_answers_and_gradients_are_those_of_weights_in_order() -> None:
    torch.manual_seed(0)
    plain = SegCaps(atoms=4).cuda()
    network = SegCaps(atoms=4)
    network.load_state_dict(plain.state_dict())
    network = on_device(network, torch.device("cuda"))
    assert not all(weight.is_contiguous() for weight in network.parameters())
    image = torch.rand(2, 1, 64, 64, device="cuda")
    answers = [each(image) for each in (plain, network)]
    torch.testing.assert_close(*answers, rtol=1e-3, atol=1e-3)
    for each, answer in zip((plain, network), answers, strict=True):
        answer.mean().backward()
        assert all(p.grad is None or p.grad.stride() == p.stride() for p in each.parameters())
