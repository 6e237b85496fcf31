from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from caps_med.errors import InvalidParameter
from caps_med.layers import DenseCapsules
from caps_med.native.compile import Array
from caps_med.routing import Routing, numba_backend, route, squash, use_backend


def test_equals_the_procedure_in_numpy() -> None:
    """Sabour et al. 2017, equations 1 to 3 and procedure 1, in float64."""
    torch.manual_seed(0)
    layer = DenseCapsules(5, 3, out_types=2, out_atoms=4).double()
    capsules = torch.rand(2, 5, 3, dtype=torch.float64)
    weight = layer.weight.detach().numpy()
    for sample, found in zip(capsules.numpy(), layer(capsules).detach().numpy(), strict=True):
        votes = np.einsum("ijao,io->ija", weight, sample)
        logits = np.zeros((5, 2))
        for _ in range(3):
            coupling = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
            total = (coupling[..., None] * votes).sum(0)
            length = np.linalg.norm(total, axis=1, keepdims=True)
            capsule = total * length / (1 + length**2)
            logits = logits + (votes * capsule).sum(2)
        np.testing.assert_allclose(found, capsule, rtol=1e-6)


@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
@pytest.mark.parametrize(("inputs", "outputs"), [(1152, 10), (16, 10), (256, 2)])
def test_lengths_start_neither_silent_nor_saturated(
    inputs: int, outputs: int, iterations: int
) -> None:
    torch.manual_seed(0)
    layer = DenseCapsules(inputs, 8, outputs, 16, Routing(iterations))
    lengths = layer(squash(torch.randn(8, inputs, 8), dim=2)).norm(dim=2)
    assert 0.1 < float(lengths.mean()) < 0.4


def test_couplings_add_up_to_one_over_the_outputs_and_follow_agreement() -> None:
    torch.manual_seed(0)
    layer = DenseCapsules(6, 3, 4, 5)
    capsules = torch.rand(2, 6, 3)
    coupling = layer.couplings(capsules)
    assert coupling.shape == (2, 6, 4)
    torch.testing.assert_close(coupling.sum(2), torch.ones(2, 6))
    total = (coupling.unsqueeze(-1) * layer.votes(capsules)).sum(1)
    torch.testing.assert_close(squash(total), layer(capsules))


def test_another_number_of_capsules_is_refused() -> None:
    with pytest.raises(InvalidParameter, match=r"\(1, 4, 8\): \[B, 3, 8\] is needed"):
        DenseCapsules(3, 8, 2, 4)(torch.rand(1, 4, 8))


def test_learned_priors_start_equal_and_decide_where_votes_go() -> None:
    torch.manual_seed(0)
    layer = DenseCapsules(6, 3, 4, 5, learn_priors=True)
    torch.manual_seed(0)
    without = DenseCapsules(6, 3, 4, 5)
    capsules = torch.rand(2, 6, 3)
    torch.testing.assert_close(layer(capsules), without(capsules))
    assert layer.priors is not None
    layer(capsules).sum().backward()
    assert layer.priors.grad is not None and layer.priors.grad.abs().min() > 0
    with torch.no_grad():
        layer.priors[:, 1] = 20.0
    coupling = layer.couplings(capsules)
    assert float(coupling[..., 1].detach().min()) > 0.99
    total = (coupling.unsqueeze(-1) * layer.votes(capsules)).sum(1)
    torch.testing.assert_close(squash(total), layer(capsules))


def test_priors_of_another_shape_are_refused() -> None:
    votes = torch.rand(1, 3, 2, 4, 1)
    with pytest.raises(InvalidParameter, match=r"\(2, 3\): \[I, J\] = \(3, 2\) is needed"):
        route(votes, None, Routing(), priors=torch.zeros(2, 3))


def test_a_batch_is_routed_natively_as_by_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one kernel for all samples, where Numba is installed, and with the same gradients."""
    torch.manual_seed(0)
    layer = DenseCapsules(40, 3, out_types=4, out_atoms=5)
    capsules = torch.rand(6, 40, 3)
    launches: list[tuple[int, ...]] = []
    native = numba_backend._in_blocks

    def counted(flat: Array, *rest: Any) -> list[Any]:  # noqa: ANN401
        launches.append(flat.shape)
        return native(flat, *rest)

    def step() -> list[Tensor]:
        leaf = capsules.clone().requires_grad_()
        found = layer(leaf)
        return [found, *torch.autograd.grad(found.square().sum(), (leaf, layer.weight))]

    monkeypatch.setattr(numba_backend, "_in_blocks", counted)
    with use_backend("numba"):
        ours = step()
    assert launches == [(1, 40, 6, 4, 5)] * 2
    with use_backend("plain"):
        expected = step()
    torch.testing.assert_close(ours, expected)
