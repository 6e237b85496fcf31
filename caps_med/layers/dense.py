"""Fully connected capsules: one weight matrix for each pair of input and output capsules."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from caps_med.errors import InvalidParameter
from caps_med.layers.ordered import Ordered
from caps_med.routing import Routing, active_backend, couplings, route
from caps_med.routing.backends import in_graph

#: Length of the sum of all votes before training. Above about 0.8, each routing iteration makes
#: lengths grow by itself, and all classes start near 1 (measured: 0.97 after three at 2.2).
_GAIN = 0.6
#: Samples from which native code is faster.
_NATIVE_FROM = 6


class DenseVotes(Ordered):
    """The base of fully connected capsule layers: weights ``[I, J, A, A_in]`` that cast votes.

    Args:
        in_capsules: input capsules I, counted over all positions.
        in_atoms: atoms of an input capsule.
        out_types: output capsules J.
        out_atoms: atoms A of an output capsule.
        std: standard deviation of the initial weights.
    """

    def __init__(
        self, in_capsules: int, in_atoms: int, out_types: int, out_atoms: int, std: float
    ) -> None:
        super().__init__()
        self.in_capsules, self.in_atoms = in_capsules, in_atoms
        self.weight = nn.Parameter(torch.empty(in_capsules, out_types, out_atoms, in_atoms))
        nn.init.normal_(self.weight, std=std)

    @property
    def vote_count(self) -> int:
        """Numbers in the votes of one image."""
        return self.weight.numel() // self.in_atoms

    def votes(self, capsules: Tensor) -> Tensor:
        """Votes ``[B, I, J, A]`` of capsules ``[B, I, A_in]``.

        Raises:
            InvalidParameter: capsules of the wrong shape.
        """
        if capsules.shape[1:] != (self.in_capsules, self.in_atoms):
            raise InvalidParameter(
                f"capsules have shape {tuple(capsules.shape)}: "
                f"[B, {self.in_capsules}, {self.in_atoms}] is needed"
            )
        return torch.einsum("ijao,bio->bija", self.weight, capsules)


class DenseCapsules(DenseVotes):
    """Digit capsules (Sabour et al. 2017, equations 2 and 3, procedure 1).

    Args:
        in_capsules: input capsules I, counted over all positions.
        in_atoms: atoms of an input capsule.
        out_types: output capsules J.
        out_atoms: atoms A of an output capsule.
        routing: iterations and competition; the published three over the outputs.
        learn_priors: whether the logits that routing starts from are learned with the weights, one
            for each pair of capsules, as the paper allows; otherwise they are zero.

    ``layer(capsules [B, I, A_in])`` -> ``[B, J, A]``. Weights start normal, scaled so that lengths
    of all outputs start near 0.2, whatever the number of iterations (deviation: published code
    draws them with a standard deviation of 0.01 to 0.1, whatever the number of capsules).

    >>> DenseCapsules(32, 8, out_types=2, out_atoms=16)(torch.rand(3, 32, 8)).shape
    torch.Size([3, 2, 16])
    """

    def __init__(
        self,
        in_capsules: int,
        in_atoms: int,
        out_types: int,
        out_atoms: int,
        routing: Routing | None = None,
        learn_priors: bool = False,
    ) -> None:
        std = _GAIN * out_types / (in_capsules * out_atoms) ** 0.5
        super().__init__(in_capsules, in_atoms, out_types, out_atoms, std)
        self.routing = routing or Routing()
        self.priors = nn.Parameter(torch.zeros(in_capsules, out_types)) if learn_priors else None

    def forward(self, capsules: Tensor) -> Tensor:
        """``[B, I, A_in]`` -> ``[B, J, A]``."""
        votes = self.votes(capsules).unsqueeze(-1)
        return route(votes, None, self.routing, _backend(votes), self.priors).squeeze(-1)

    def couplings(self, capsules: Tensor) -> Tensor:
        """The coupling coefficients ``[B, I, J]`` that routing ends with; no gradient."""
        votes = self.votes(capsules).unsqueeze(-1)
        return couplings(votes, None, self.routing, self.priors).squeeze(-1)

    def coupling_steps(self, capsules: Tensor) -> Tensor:
        """The coupling coefficients ``[T, B, I, J]`` of each routing iteration; no gradient."""
        votes = self.votes(capsules).unsqueeze(-1)
        runs = (replace(self.routing, iterations=t + 1) for t in range(self.routing.iterations))
        return torch.stack([couplings(votes, None, run, self.priors) for run in runs]).squeeze(-1)


def _backend(votes: Tensor) -> str:
    """Native code for many samples, one per lane of a vector; otherwise PyTorch operations."""
    if in_graph() or len(votes) < _NATIVE_FROM:
        return "plain"
    return "numba" if active_backend(votes.device) == "numba" else "plain"
