"""Local routing by agreement: the one door to every backend.

At each position the votes of the input capsule types are summed with coupling coefficients that
grow where a vote agrees with the outcome (Sabour et al. 2017, procedure 1; local form: LaLonde &
Bagci 2018, algorithm 1).

Deviations from the papers: the last iteration does not update the logits, which nothing reads.
Bass et al. 2019 average the agreement over the batch in their code; here that is the option
`share_agreement`, off by default, because an answer must not depend on its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from caps_med.errors import InvalidParameter
from caps_med.routing.backends import BACKENDS, active_backend

Competition = Literal["outputs", "inputs"]


@dataclass(frozen=True)
class Routing:
    """How votes become capsules.

    Attributes:
        iterations: routing iterations, at least 1. One iteration weighs all votes equally.
        competition: the axis of the softmax. ``"outputs"``: each input capsule chooses among
            the output types (Sabour et al. 2017, equation 3; SegCaps). ``"inputs"``: each output
            capsule weighs its inputs (Bass et al. 2019, CapsPix2Pix).
        share_agreement: average the agreement over the batch, as the published CapsPix2Pix code
            does. Only for reproducing old runs: a sample's answer then depends on its neighbours.
    """

    iterations: int = 3
    competition: Competition = "outputs"
    share_agreement: bool = False

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise InvalidParameter(f"iterations={self.iterations}: must be at least 1")
        if self.competition not in get_args(Competition):
            raise InvalidParameter(
                f"competition={self.competition!r}: must be one of {get_args(Competition)}"
            )

    @property
    def softmax_dim(self) -> int:
        """The axis of the competition in couplings ``[B, I, J, *S]``."""
        return 2 if self.competition == "outputs" else 1


def route(
    votes: Tensor, bias: Tensor | None, routing: Routing, backend: str | None = None
) -> Tensor:
    """Route votes to capsules.

    Args:
        votes: ``[B, I, J, A, *S]``, predictions of the input types for the output types.
        bias: ``[J, A]``, added to the weighted sum before each squash, or None.
        routing: iterations and competition.
        backend: see `caps_med.routing.active_backend`, which chooses if this is None.

    Returns:
        Capsules ``[B, J, A, *S]``, each of length below one, in the votes' dtype; the arithmetic is
        at least float32.

    Raises:
        InvalidParameter: votes of fewer than five axes, a bias of another shape, or a backend that
            cannot run.
    """
    _check(votes, bias)
    if torch.compiler.is_compiling():  # also while exporting
        from caps_med.routing.plain import route_plain

        return route_plain(votes, bias, _needed(votes, routing))
    name = active_backend(votes.device, backend)
    return BACKENDS[name].route(votes, bias, _needed(votes, routing))


def couplings(votes: Tensor, bias: Tensor | None, routing: Routing) -> Tensor:
    """The coupling coefficients ``[B, I, J, *S]`` that `route` ends with; no gradient."""
    _check(votes, bias)
    from caps_med.routing.eager import couplings_eager

    return couplings_eager(votes, bias, routing)


def _needed(votes: Tensor, routing: Routing) -> Routing:
    """One iteration where there is one type to choose from: its couplings stay one."""
    settled = votes.shape[routing.softmax_dim] == 1
    return replace(routing, iterations=1) if settled else routing


def _check(votes: Tensor, bias: Tensor | None) -> None:
    if votes.ndim < 5:
        raise InvalidParameter(f"votes have shape {tuple(votes.shape)}: [B, I, J, A, *S] is needed")
    if bias is not None and bias.shape != votes.shape[2:4]:
        raise InvalidParameter(
            f"bias has shape {tuple(bias.shape)}: [J, A] = {tuple(votes.shape[2:4])} is needed"
        )
