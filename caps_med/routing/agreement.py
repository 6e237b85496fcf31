"""Local routing by agreement, whichever backend computes it.

At each position the votes of the input capsule types are summed with coupling coefficients that
grow where a vote agrees with the result (Sabour et al. 2017, procedure 1; local form: LaLonde &
Bagci 2018, algorithm 1).

Deviations from the papers: the last iteration does not update the logits, because nothing reads
them. The code of Bass et al. 2019 averages the agreement over the batch; here each sample has its
own, because an answer must not depend on its neighbours. At batch size one the two are equal.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from caps_med.errors import InvalidParameter
from caps_med.routing.backends import BACKENDS, active_backend, in_graph
from caps_med.routing.config import Routing
from caps_med.routing.layout import check_floating
from caps_med.routing.plain import couplings_plain, route_plain


def route(
    votes: Tensor,
    bias: Tensor | None,
    routing: Routing,
    backend: str | None = None,
    priors: Tensor | None = None,
) -> Tensor:
    """Route votes to capsules.

    Args:
        votes: ``[B, I, J, A, *S]``, predictions of the input types for the output types.
        bias: ``[J, A]``, added to the weighted sum before each squash, or None.
        routing: iterations and competition.
        backend: a name in `BACKENDS`; None selects `caps_med.routing.active_backend`.
        priors: ``[I, J]``, the logits of the couplings before the first iteration; None for equal
            couplings. Only the plain backend supports priors, and is used whenever they are given.

    Returns:
        Capsules ``[B, J, A, *S]``, each of length below one, in the votes' dtype; the arithmetic is
        at least float32.

    Raises:
        InvalidParameter: votes with fewer than five axes or of whole numbers, a bias or priors of
            the wrong shape, or a backend that cannot run.
    """
    _check(votes, bias, priors)
    # plain is also what exports, and takes an empty batch, of which kernels have no block
    if priors is not None or in_graph() or not votes.numel():
        return route_plain(votes, bias, _needed(votes, routing), priors)
    if type(votes) is not Tensor:  # such as MONAI's MetaTensor
        votes = votes.as_subclass(Tensor)
    if type(votes) is not Tensor:  # as in PyTorch's FakeTensorMode: kernels could read no numbers
        return route_plain(votes, bias, _needed(votes, routing))
    name = active_backend(votes.device, backend)
    return BACKENDS[name].route(votes, bias, _needed(votes, routing))


def couplings(
    votes: Tensor, bias: Tensor | None, routing: Routing, priors: Tensor | None = None
) -> Tensor:
    """The coupling coefficients ``[B, I, J, *S]`` that `route` ends with; no gradient."""
    _check(votes, bias, priors)
    with torch.no_grad():
        return couplings_plain(votes, bias, routing, priors)


def _needed(votes: Tensor, routing: Routing) -> Routing:
    """A single iteration if only one type competes: its couplings stay one."""
    settled = votes.shape[routing.softmax_dim] == 1
    return replace(routing, iterations=1) if settled else routing


def _check(votes: Tensor, bias: Tensor | None, priors: Tensor | None) -> None:
    if votes.ndim < 5:
        raise InvalidParameter(f"votes have shape {tuple(votes.shape)}: [B, I, J, A, *S] is needed")
    check_floating("votes", votes)
    if bias is not None and bias.shape != votes.shape[2:4]:
        raise InvalidParameter(
            f"bias has shape {tuple(bias.shape)}: [J, A] = {tuple(votes.shape[2:4])} is needed"
        )
    if priors is not None and priors.shape != votes.shape[1:3]:
        raise InvalidParameter(
            f"priors have shape {tuple(priors.shape)}: [I, J] = {tuple(votes.shape[1:3])} is needed"
        )
