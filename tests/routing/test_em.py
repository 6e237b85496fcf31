"""EM routing against an independent reference, and what it must keep to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import Tensor

from caps_med.errors import InvalidParameter
from caps_med.routing import numba_em, use_backend
from caps_med.routing.em import VARIANCE_FLOOR, EMCapsules, EMRouting, route_em
from tests.routing import reference_em

#: Slots, types, atoms and positions of a 1-D convolution of kernel 3 over two types of 5 places.
I, J, A, P = 6, 3, 4, 3


def overlapping() -> Tensor:
    """Children ``[I, P]``: kernel 3, stride 1 over five places; two types."""
    taps = torch.stack([torch.arange(P) + tap for tap in range(3)])
    return torch.cat([taps, taps + 5])


Inputs = tuple[Tensor, Tensor, Tensor, Tensor]


@pytest.fixture(autouse=True, params=["numba", "plain"])
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every test runs on native code and in PyTorch operations."""
    with use_backend(request.param):
        yield request.param


def case(seed: int = 0, batch: int = 2, dtype: torch.dtype = torch.float64) -> Inputs:
    generator = torch.Generator().manual_seed(seed)
    votes = torch.randn(batch, I, J, A, P, generator=generator, dtype=torch.float64)
    present = torch.rand(batch, 10, generator=generator, dtype=torch.float64)
    activations = present[:, overlapping()]
    beta_u, beta_a = torch.randn(2, J, generator=generator, dtype=torch.float64)
    return votes.to(dtype), activations.to(dtype), beta_u.to(dtype), beta_a.to(dtype)


def tracked(inputs: Inputs) -> Inputs:
    for tensor in inputs:
        tensor.requires_grad_()
    return inputs


def expected(inputs: Inputs, children: Tensor, routing: EMRouting) -> list[Tensor]:
    votes, activations, beta_u, beta_a = (x.double().numpy() for x in inputs)
    found = [
        reference_em.route_em(
            votes[b], activations[b], beta_u, beta_a, children.numpy(), routing.iterations,
            routing.temperature, VARIANCE_FLOOR,
        )
        for b in range(len(votes))
    ]  # fmt: skip
    return [torch.from_numpy(np.stack(part)) for part in zip(*found, strict=True)]


@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_it_equals_the_reference(
    iterations: int, shared: bool, dtype: torch.dtype, tolerance: float
) -> None:
    routing = EMRouting(iterations, temperature=0.3)  # high enough for activations to matter
    children = overlapping() if shared else torch.arange(I * P).reshape(I, P)
    inputs = case(dtype=dtype)
    found = route_em(*inputs, routing, children if shared else None)
    for one, other in zip(found, expected(inputs, children, routing), strict=True):
        torch.testing.assert_close(one.double(), other, rtol=0, atol=tolerance)


def test_each_child_is_assigned_once_over_all_parents_that_see_it() -> None:
    children = overlapping()
    found = route_em(*case(), EMRouting(), children)
    for child in range(10):
        seen = children == child
        total = (found.assignments.sum(2) * seen).sum((1, 2))
        torch.testing.assert_close(total, torch.ones_like(total))


def test_a_child_at_the_edge_has_fewer_parents_and_is_as_certain_of_them() -> None:
    equal = route_em(*case(), EMRouting(1), overlapping()).assignments
    assert equal[0, 0, 0, 0] == pytest.approx(1 / J)  # place 0: one parent position
    assert equal[0, 2, 0, 0] == pytest.approx(1 / (3 * J))  # place 2: seen by all three


def test_the_activation_of_a_child_counts() -> None:
    votes, activations, beta_u, beta_a = case()
    quiet = activations.clone()
    quiet[:, 0] *= 0.1
    first = route_em(votes, activations, beta_u, beta_a, EMRouting())
    second = route_em(votes, quiet, beta_u, beta_a, EMRouting())
    assert (first.poses - second.poses).abs().max() > 0.1


def test_gradients_are_right_through_all_iterations() -> None:
    inputs = tracked(case(batch=1))
    children = overlapping()

    def poses_and_activations(v: Tensor, a: Tensor, u: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        found = route_em(v, a, u, b, EMRouting(3, temperature=0.3), children)
        return found.poses, found.activations

    assert torch.autograd.gradcheck(poses_and_activations, inputs)


def test_gradients_pass_through_the_assignments() -> None:
    inputs = tracked(case(batch=1))
    routing, children = EMRouting(3, temperature=0.3), overlapping()

    def assignments(v: Tensor, a: Tensor, u: Tensor, b: Tensor) -> Tensor:
        return route_em(v, a, u, b, routing, children).assignments

    assert torch.autograd.gradcheck(assignments, inputs)


def test_a_second_derivative_is_refused_and_not_left_out() -> None:
    votes, activations, beta_u, beta_a = tracked(case(batch=1))
    with use_backend("numba"):
        found = route_em(votes, activations, beta_u, beta_a, EMRouting())
    (first,) = torch.autograd.grad(found.poses.sum(), votes, create_graph=True)
    with pytest.raises(NotImplementedError, match="no second derivatives"):
        (first.square().sum() + votes.sum()).backward()


def test_transforms_of_functions_are_refused() -> None:
    votes, activations, beta_u, beta_a = tracked(case(batch=1))

    def poses(votes: Tensor) -> Tensor:
        return route_em(votes, activations, beta_u, beta_a, EMRouting()).poses.sum()

    with use_backend("numba"), pytest.raises(NotImplementedError, match=r"torch\.func: .*'plain'"):
        torch.func.grad(poses)(votes)


@pytest.mark.parametrize("positions", [1, 2, 19])
@pytest.mark.parametrize("mass_scale", [1.0, 40.0])
def test_gradients_equal_those_of_float64(positions: int, mass_scale: float) -> None:
    generator = torch.Generator().manual_seed(positions)
    votes = torch.randn(2, 5, 3, 7, positions, generator=generator, dtype=torch.float64)
    activations = torch.rand(2, 5, positions, generator=generator, dtype=torch.float64)
    costs = torch.randn(2, 3, generator=generator, dtype=torch.float64)
    gradients = []
    for dtype, name in ((torch.float64, "plain"), (torch.float32, None)):
        inputs = tracked(tuple(x.to(dtype) for x in (votes, activations, *costs)))
        with use_backend(name) if name else nullcontext():
            found = route_em(*inputs, EMRouting(temperature=0.1), mass_scale=mass_scale)
        loss = torch.stack([part.square().sum() for part in found]).sum()
        gradients.append(torch.autograd.grad(loss, inputs))
    for true, one in zip(*gradients, strict=True):
        assert (one.double() - true).norm() <= 2e-5 * true.norm()


@pytest.mark.parametrize("threads", [1, 2])
def test_inference_mode_reaches_the_threads(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    inputs, routing = case(), EMRouting(2)
    with torch.inference_mode():
        found = route_em(*inputs, routing, overlapping())
    for one, other in zip(found, route_em(*inputs, routing, overlapping()), strict=True):
        torch.testing.assert_close(one, other)


def test_samples_and_threads_do_not_change_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    votes, activations, beta_u, beta_a = case(batch=3, dtype=torch.float32)
    answers = []
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        inputs = tracked((votes.clone(), activations.clone(), beta_u.clone(), beta_a.clone()))
        found = route_em(*inputs, EMRouting(), overlapping())
        (found.poses.square().sum() + found.activations.sum()).backward()
        answers.append([*found, *(x.grad for x in inputs)])
    assert all(torch.equal(a, b) for a, b in zip(*answers, strict=True))
    alone = route_em(votes[1:2], activations[1:2], beta_u, beta_a, EMRouting(), overlapping())
    torch.testing.assert_close(alone.poses[0], found.poses[1])


def test_native_code_routes_on_a_cpu(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def forward(*arguments: object) -> None:
        ran.append("native")

    monkeypatch.setattr(numba_em, "forward_sample", forward)
    route_em(*case(), EMRouting())
    assert bool(ran) == (backend == "numba")


def test_recomputing_changes_no_bit_of_answer_or_gradient() -> None:
    answers = []
    for recompute in (False, True):
        inputs = tracked(case(dtype=torch.float32))
        found = route_em(*inputs, EMRouting(recompute=recompute), overlapping())
        (found.poses.square().sum() + found.activations.sum()).backward()
        answers.append([found.poses, found.activations, *(x.grad for x in inputs)])
    for one, other in zip(*answers, strict=True):
        assert one is not None and other is not None and torch.equal(one, other)


def test_iterations_may_be_repeated_under_torch_func() -> None:
    """Which refuses checkpoints in `grad`: nothing is repeated there."""
    votes, activations, beta_u, beta_a = case(dtype=torch.float32)

    def poses(votes: Tensor, recompute: bool) -> Tensor:
        routing = EMRouting(recompute=recompute)
        return route_em(votes, activations, beta_u, beta_a, routing).poses.square().sum()

    with use_backend("plain"):
        kept, repeated = (torch.func.grad(poses)(votes, again) for again in (False, True))
    assert torch.equal(kept, repeated)


@pytest.mark.parametrize("kind", ["equal votes", "no activation", "huge votes", "huge cost"])
def test_extremes_stay_finite(kind: str) -> None:
    votes, activations, beta_u, beta_a = case(dtype=torch.float32)
    if kind == "equal votes":  # every variance is zero
        votes = torch.ones_like(votes)
    elif kind == "no activation":
        activations = torch.zeros_like(activations)
    elif kind == "huge votes":
        votes = votes * 1e6
    else:
        beta_u, beta_a = beta_u * 1e6, beta_a * 1e6
    inputs = tracked((votes, activations, beta_u, beta_a))
    found = route_em(*inputs, EMRouting(), overlapping())
    (found.poses.sum() + found.activations.sum()).backward()
    assert all(torch.isfinite(part).all() for part in found)
    assert all(x.grad is not None and torch.isfinite(x.grad).all() for x in inputs)


def test_the_order_of_children_does_not_matter() -> None:
    votes, activations, beta_u, beta_a = case()
    order = torch.tensor([4, 1, 5, 0, 3, 2])
    first = route_em(votes, activations, beta_u, beta_a, EMRouting(), overlapping())
    second = route_em(
        votes[:, order], activations[:, order], beta_u, beta_a, EMRouting(), overlapping()[order]
    )
    torch.testing.assert_close(first.poses, second.poses)
    torch.testing.assert_close(first.assignments[:, order], second.assignments)


def test_spatial_axes_are_flattened_and_put_back() -> None:
    votes, activations, beta_u, beta_a = case()
    flat = route_em(votes, activations, beta_u, beta_a, EMRouting())
    square: EMCapsules = route_em(
        votes.unflatten(-1, (1, P)), activations.unflatten(-1, (1, P)), beta_u, beta_a, EMRouting()
    )
    assert square.poses.shape == (2, J, A, 1, P)
    assert torch.equal(square.poses.flatten(3), flat.poses)


def test_half_precision_is_computed_in_float32() -> None:
    found = route_em(*case(dtype=torch.bfloat16), EMRouting(), overlapping())
    assert found.poses.dtype == torch.bfloat16 and found.activations.dtype == torch.float32
    votes, activations, beta_u, beta_a = (x.float() for x in case(dtype=torch.bfloat16))
    wide = route_em(votes, activations, beta_u, beta_a, EMRouting(), overlapping())
    torch.testing.assert_close(found.poses, wide.poses.bfloat16())
    torch.testing.assert_close(found.activations, wide.activations)


def test_wrong_shapes_and_settings_are_refused() -> None:
    votes, activations, beta_u, beta_a = case()
    with pytest.raises(InvalidParameter, match=r"activations has shape \(2, 6\): \(2, 6, 3\)"):
        route_em(votes, activations[..., 0], beta_u, beta_a, EMRouting())
    with pytest.raises(InvalidParameter, match=r"beta_a has shape \(2,\): \(3,\) is needed"):
        route_em(votes, activations, beta_u, beta_a[:2], EMRouting())
    with pytest.raises(InvalidParameter, match=r"children has shape \(3, 3\): \(6, 3\)"):
        route_em(votes, activations, beta_u, beta_a, EMRouting(), overlapping()[:3])
    with pytest.raises(InvalidParameter, match=r"\[B, I, J, A, \*S\] is needed"):
        route_em(votes[0], activations, beta_u, beta_a, EMRouting())
    with pytest.raises(InvalidParameter, match="iterations=0: must be at least 1"):
        EMRouting(0)
    with pytest.raises(InvalidParameter, match="temperature=0: must be above 0"):
        EMRouting(temperature=0)
