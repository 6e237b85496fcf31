"""How votes become capsules: iterations and competition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from caps_med.arguments import check_choice, check_positive

Competition = Literal["outputs", "inputs"]
_COMPETITIONS = get_args(Competition)  # a call that torch.compile of PyTorch 2.6 does not know


@dataclass(frozen=True)
class Routing:
    """How votes become capsules.

    Attributes:
        iterations: routing iterations, at least 1. One iteration weighs all votes equally.
        competition: the axis of the softmax. ``"outputs"``: each input capsule chooses among
            the output types (Sabour et al. 2017, equation 3; SegCaps). ``"inputs"``: each output
            capsule weighs its inputs (Bass et al. 2019, CapsPix2Pix).

    Raises:
        InvalidParameter: no whole number of iterations from 1, or an unknown competition.
    """

    iterations: int = 3
    competition: Competition = "outputs"

    def __post_init__(self) -> None:
        check_positive(iterations=self.iterations)
        check_choice(_COMPETITIONS, competition=self.competition)

    @property
    def softmax_dim(self) -> int:
        """The axis of the competition in couplings ``[B, I, J, *S]``."""
        return 2 if self.competition == "outputs" else 1

    def is_identity(self, input_types: int) -> bool:
        """Whether every coupling is one: a single input type that competes with no other."""
        return input_types == 1 and self.competition == "inputs"
