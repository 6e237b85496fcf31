"""Every backend against the NumPy reference; what routing promises whatever the backend."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from caps_med.errors import InvalidParameter
from caps_med.routing import (
    Competition,
    Routing,
    couplings,
    numba_backend,
    route,
    squash,
)
from caps_med.routing.autograd import _Routing
from caps_med.routing.eager import route_eager
from caps_med.routing.numba_backend import route_numba
from caps_med.routing.numba_kernels import forward_block
from caps_med.routing.plain import route_plain
from tests.routing.cases import CASES, GRADIENT_CASES, Case

Route = Callable[[Tensor, Tensor | None, Routing], Tensor]
BACKENDS: list[Route] = [route_eager, route_numba, route_plain]


def by_name(function: Route) -> str:
    return function.__name__


@pytest.mark.parametrize("backend", BACKENDS, ids=by_name)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_capsules_equal_the_reference(case: Case, backend: Route) -> None:
    votes, bias = case.inputs()
    expected, _ = case.expected(votes, bias)
    capsules = backend(votes, bias, case.routing)
    torch.testing.assert_close(capsules.double(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_couplings_equal_the_reference_and_sum_to_one(case: Case) -> None:
    votes, bias = case.inputs()
    _, expected = case.expected(votes, bias)
    found = couplings(votes, bias, case.routing)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-5)
    sums = found.sum(case.routing.softmax_dim)
    torch.testing.assert_close(sums, torch.ones_like(sums))


@pytest.mark.parametrize("backend", BACKENDS, ids=by_name)
@pytest.mark.parametrize("case", [Case("outputs", with_bias=True), Case("inputs", I=8)], ids=str)
def test_bfloat16_votes_are_routed_in_float32(case: Case, backend: Route) -> None:
    votes, bias = case.inputs(torch.bfloat16)
    expected, _ = case.expected(votes, bias)
    capsules = backend(votes, bias, case.routing)
    assert capsules.dtype == torch.bfloat16
    error = (capsules.double() - expected).norm() / expected.norm()
    assert error < 4e-3, "only the rounding of the result may remain"


@pytest.mark.parametrize("backend", BACKENDS, ids=by_name)
@pytest.mark.parametrize("case", GRADIENT_CASES, ids=str)
def test_gradients_equal_finite_differences(case: Case, backend: Route) -> None:
    votes, bias = case.inputs(torch.float64)
    inputs = [t.requires_grad_() for t in (votes, bias) if t is not None]

    def call(votes: Tensor, bias: Tensor | None = None) -> Tensor:
        return backend(votes, bias, case.routing)

    assert torch.autograd.gradcheck(call, inputs)


@pytest.mark.parametrize("layout", ["contiguous", "atoms last"])
@pytest.mark.parametrize("competition", ["outputs", "inputs"])
def test_gradients_over_many_chunks_equal_autograd(competition: str, layout: str) -> None:
    """Enough positions that the backends work in several chunks, the last one short."""
    which: Competition = "outputs" if competition == "outputs" else "inputs"
    case = Case(which, with_bias=True, A=24, S=(47, 61))
    votes, bias = case.inputs()
    assert bias is not None
    if layout == "atoms last":
        votes = votes.movedim(3, -1).contiguous().movedim(-1, 3)
    weights = torch.randn(case.B, case.J, case.A, *case.S)
    grads = []
    for backend in (route_eager, route_numba, route_plain):
        leaves = votes.clone().requires_grad_(), bias.clone().requires_grad_()
        capsules = backend(*leaves, case.routing)
        grads.append(torch.autograd.grad((capsules * weights).sum(), leaves))
    for *ours, autograd in zip(*grads, strict=True):
        for found in ours:
            torch.testing.assert_close(found, autograd, rtol=1e-4, atol=1e-5 * autograd.abs().max())


@pytest.mark.parametrize("backend", BACKENDS, ids=by_name)
def test_zero_votes_give_zero_capsules_and_finite_gradients(backend: Route) -> None:
    votes = torch.zeros(1, 3, 2, 4, 5, requires_grad=True)
    capsules = backend(votes, None, Routing())
    (grad,) = torch.autograd.grad(capsules.sum(), votes)
    assert capsules.abs().max() == 0
    assert torch.isfinite(grad).all()


@pytest.mark.parametrize("backend", BACKENDS, ids=by_name)
@pytest.mark.parametrize("iterations", [1, 3])
def test_one_input_type_under_input_competition_is_only_squashed(
    backend: Route, iterations: int
) -> None:
    votes, _ = Case("inputs", I=1).inputs()
    capsules = backend(votes, None, Routing(iterations, "inputs"))
    torch.testing.assert_close(capsules, squash(votes[:, 0]))


@pytest.mark.parametrize("competition", ["outputs", "inputs"])
@pytest.mark.parametrize("threads", [1, 2])
def test_native_routing_is_the_same_to_the_bit_wherever_a_position_lies(
    competition: Competition, threads: int
) -> None:
    """Among other neighbours, in another lane or block, by another thread."""
    case = Case(competition, with_bias=True, B=1, A=24, S=(1200,))
    votes, bias = case.inputs()
    weights = torch.randn(case.B, case.J, case.A, *case.S)
    before = torch.get_num_threads()
    found = []
    for place, used in ((slice(None), threads), (slice(5, 1143), 1)):
        leaf = votes[..., place].clone().requires_grad_()
        torch.set_num_threads(used)
        try:
            capsules = route_numba(leaf, bias, case.routing)
            (grad,) = torch.autograd.grad((capsules * weights[..., place]).sum(), leaf)
        finally:
            torch.set_num_threads(before)
        found.append((capsules, grad))
    for whole, part in zip(*found, strict=True):
        assert torch.equal(whole[..., 5:1143], part)


@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("S", [(1,), (1, 1)])
def test_samples_of_a_single_position_share_lanes_and_nothing_else(
    S: tuple[int, ...], with_bias: bool
) -> None:
    """Native code routes them together; each is what it is alone, to the bit."""
    case = Case("outputs", with_bias=with_bias, B=19, S=S)
    votes, bias = case.inputs()
    weights = torch.randn(case.B, case.J, case.A, *S)

    def routed(part: slice, backend: Route) -> tuple[Tensor, Tensor]:
        leaf = votes[part].clone().requires_grad_()
        capsules = backend(leaf, bias, case.routing)
        return capsules, torch.autograd.grad((capsules * weights[part]).sum(), leaf)[0]

    together, expected = routed(slice(None), route_numba), routed(slice(None), route_plain)
    alone = [routed(slice(i, i + 1), route_numba) for i in range(case.B)]
    for whole, each, plain in zip(together, zip(*alone, strict=True), expected, strict=True):
        assert torch.equal(whole, torch.cat(each))
        torch.testing.assert_close(whole, plain)


@pytest.mark.parametrize("backend", ["eager", "numba"])
def test_one_output_type_leaves_nothing_to_choose(backend: str) -> None:
    """One iteration gives what five would."""
    votes, bias = Case("outputs", with_bias=True, J=1).inputs()
    routing = Routing(5, "outputs")
    torch.testing.assert_close(
        route(votes, bias, routing, backend), route_plain(votes, bias, routing)
    )


@pytest.mark.parametrize("backend", BACKENDS, ids=by_name)
@pytest.mark.parametrize("competition", ["outputs", "inputs"])
def test_a_sample_does_not_depend_on_its_neighbours(backend: Route, competition: str) -> None:
    case = Case("outputs" if competition == "outputs" else "inputs", with_bias=True, B=3)
    votes, bias = case.inputs()
    together = backend(votes, bias, case.routing)
    alone = torch.cat([backend(v, bias, case.routing) for v in votes.split(1)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-6)


@pytest.mark.parametrize("backend", BACKENDS, ids=by_name)
def test_capsule_lengths_reach_one_at_most_for_huge_votes(backend: Route) -> None:
    votes = 1e4 * torch.randn(1, 4, 3, 8, 6)
    lengths = backend(votes, None, Routing()).norm(dim=2)
    assert torch.isfinite(lengths).all()
    assert lengths.max() <= 1 + 1e-6, "1 - 1e-8 rounds to one"


def test_votes_of_too_few_axes_are_refused() -> None:
    with pytest.raises(InvalidParameter, match=r"shape \(1, 2, 3, 4\): \[B, I, J, A, \*S\]"):
        route(torch.zeros(1, 2, 3, 4), None, Routing())


def test_whole_numbers_are_refused() -> None:
    """Capsules are shorter than one: they were all rounded to zero."""
    with pytest.raises(InvalidParameter, match=r"votes: dtype torch\.int64; a floating point one"):
        route(torch.ones(1, 2, 3, 4, 5, dtype=torch.int64), None, Routing())
    with pytest.raises(InvalidParameter, match=r"capsules: dtype torch\.uint8; a floating point"):
        squash(torch.ones(1, 2, 3, dtype=torch.uint8))


def test_a_bias_of_another_shape_is_refused() -> None:
    with pytest.raises(InvalidParameter, match=r"shape \(4, 3\): \[J, A\] = \(3, 4\) is needed"):
        route(torch.zeros(1, 2, 3, 4, 5), torch.zeros(4, 3), Routing())


def test_routing_refuses_what_it_cannot_do() -> None:
    with pytest.raises(InvalidParameter, match="iterations=0: must be at least 1"):
        Routing(iterations=0)
    with pytest.raises(InvalidParameter, match=r"iterations=1\.5: must be a whole number"):
        Routing(iterations=1.5)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match=r"competition='all': must be one of \('outputs'"):
        Routing(competition="all")  # type: ignore[arg-type]


def test_one_thread_routes_forward_in_few_calls_and_to_the_same_bits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = Case("outputs", with_bias=True, I=4, J=4, A=16, S=(64, 64))
    votes, bias = case.inputs()
    calls, before = [], torch.get_num_threads()

    def counted(*arguments: object) -> None:
        calls.append(arguments)
        forward_block(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(numba_backend, "forward_block", counted)
    found, counts = [], []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(route_numba(votes, bias, case.routing))
            counts.append(len(calls))
            calls.clear()
    finally:
        torch.set_num_threads(before)
    assert counts == [case.B, case.B * votes[0].numel() // numba_backend.BLOCK_VOTES]
    assert torch.equal(*found)


def test_no_graph_is_prepared_where_no_gradient_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("outputs", with_bias=True)
    votes, bias = case.inputs()
    learned = torch.nn.Parameter(bias) if bias is not None else None
    expected = route_numba(votes, learned, case.routing).detach()

    def prepared(*_: object) -> None:
        raise AssertionError("an autograd function was called")

    monkeypatch.setattr(_Routing, "apply", prepared)
    with torch.inference_mode():
        assert torch.equal(route_numba(votes, learned, case.routing), expected)


@pytest.mark.parametrize("backend", ["eager", "numba"])
def test_a_second_derivative_is_refused_and_not_left_out(backend: str) -> None:
    votes = torch.randn(1, 2, 3, 4, 5, requires_grad=True)
    capsules = route(votes, None, Routing(), backend)
    (first,) = torch.autograd.grad(capsules.sum(), votes, create_graph=True)
    with pytest.raises(NotImplementedError, match=r"no second derivatives: .*use_backend\('plain'"):
        (first.square().sum() + votes.sum()).backward()


@pytest.mark.parametrize("backend", ["eager", "numba"])
def test_forward_derivatives_are_refused_and_not_left_out(backend: str) -> None:
    votes = torch.randn(1, 2, 3, 4, 5)
    with (
        torch.autograd.forward_ad.dual_level(),
        pytest.raises(NotImplementedError, match="forward mode AD"),
    ):
        dual = torch.autograd.forward_ad.make_dual(votes, torch.ones_like(votes))
        route(dual, None, Routing(), backend)


@pytest.mark.parametrize("backend", ["eager", "numba"])
def test_transforms_of_functions_are_refused(backend: str) -> None:
    votes = torch.randn(2, 3, 4)
    for transformed in (torch.func.vmap, torch.func.grad):
        with (
            torch.no_grad(),
            pytest.raises(NotImplementedError, match=r"torch\.func: .*use_backend\('plain'"),
        ):
            transformed(lambda x: route(x[None, None, None], None, Routing(), backend).sum())(votes)


@pytest.mark.parametrize("backend", ["eager", "numba", "plain"])
@pytest.mark.parametrize("shape", [(0, 2, 3, 4, 5), (2, 2, 3, 4, 0)])
def test_nothing_is_routed_to_nothing(backend: str, shape: tuple[int, ...]) -> None:
    votes = torch.zeros(shape, requires_grad=True)
    bias = torch.ones(3, 4, requires_grad=True)
    capsules = route(votes, bias, Routing(), backend)
    assert capsules.shape == (shape[0], *shape[2:])
    capsules.sum().backward()
    assert bias.grad is not None and not bias.grad.any()
