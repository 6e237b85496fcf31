"""The routing problems that every backend is held to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from caps_med.routing import Competition, Routing
from tests.routing import reference


@dataclass(frozen=True)
class Case:
    """Votes ``[B, I, J, A, *S]`` with or without a bias, and how they are routed."""

    competition: Competition
    iterations: int = 3
    with_bias: bool = False
    B: int = 2
    I: int = 3
    J: int = 4
    A: int = 8
    S: tuple[int, ...] = (3, 5)

    def __str__(self) -> str:
        bias = "bias" if self.with_bias else "plain"
        types = f"I{self.I}-J{self.J}-A{self.A}"
        return f"{self.competition}-{self.iterations}it-{bias}-{types}-{len(self.S)}d"

    @property
    def routing(self) -> Routing:
        return Routing(self.iterations, self.competition)

    def inputs(self, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor | None]:
        generator = torch.Generator().manual_seed(17 * self.I + self.iterations)
        shape = (self.B, self.I, self.J, self.A, *self.S)
        votes = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
        bias = torch.randn(self.J, self.A, generator=generator, dtype=torch.float64).to(dtype)
        return votes, bias if self.with_bias else None

    def expected(self, votes: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """Capsules and couplings of the NumPy reference, float64."""
        wide_bias = None if bias is None else bias.double().numpy().astype(np.float64)
        capsules, couplings = reference.route(
            votes.double().numpy().astype(np.float64), wide_bias, self.iterations, self.competition
        )
        return torch.from_numpy(capsules), torch.from_numpy(couplings)


_COMPETITIONS: tuple[Competition, ...] = ("outputs", "inputs")

#: One to five iterations, one to sixteen input types, with and without bias, 1-D to 3-D; atoms that
#: fill vectors of sixteen, eight and four, or not, at more positions than fit in one.
CASES = [
    *(Case(c, iterations=n, with_bias=b) for c in _COMPETITIONS for n in (1, 2, 3, 5)
      for b in (False, True)),
    *(Case(c, with_bias=b, I=i) for c in _COMPETITIONS for i in (1, 2, 8, 16)
      for b in (False, True)),
    *(Case(c, with_bias=True, J=1, S=(2, 3, 4)) for c in _COMPETITIONS),
    *(Case(c, with_bias=True, B=1, I=4, J=2, S=(7,)) for c in _COMPETITIONS),
    *(Case(c, with_bias=True, A=a, S=(5, 7)) for c in _COMPETITIONS for a in (4, 16, 31)),
]  # fmt: skip

#: Small enough for finite differences.
GRADIENT_CASES = [
    *(Case(c, iterations=n, with_bias=b, B=1, I=i, J=2, A=3, S=(2, 1))
      for c in _COMPETITIONS for n in (1, 2, 5) for b in (False, True) for i in (1, 3)),
    *(Case(c, with_bias=True, B=1, I=16, J=2, A=2, S=(2,)) for c in _COMPETITIONS),
]  # fmt: skip
