"""Self-attention routing: couplings in one step, from the votes' agreement with each other."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from caps_med.layers.dense import DenseVotes
from caps_med.routing.layout import widen

_EPSILON = 1e-12


def exponential_squash(capsules: Tensor) -> Tensor:
    """Shrink each capsule, ``[..., A]``, to the length ``1 - exp(-|s|)`` and keep its direction.

    Mazzia, Salvetti & Chiaberge 2021, equation 3: more sensitive to short capsules than `squash`.

    >>> exponential_squash(torch.tensor([[3.0, 4.0]]))
    tensor([[0.5960, 0.7946]])
    """
    wide = widen(capsules)
    length = (wide.square().sum(-1, keepdim=True) + _EPSILON).sqrt()
    return (wide * (-torch.expm1(-length) / length)).to(capsules.dtype)


class SelfAttentionCapsules(DenseVotes):
    """Dense capsules with self-attention routing.

    Mazzia, Salvetti & Chiaberge 2021, "Efficient-CapsNet", section 3.2, equations 4 to 7. The
    agreement is divided by the root of the number of input atoms, as in the paper (released code:
    of output atoms). Weights start normal with that root's inverse as standard deviation (released
    code: He's).

    Args:
        in_capsules: input capsules I.
        in_atoms: atoms of an input capsule.
        out_types: output capsules J.
        out_atoms: atoms A of an output capsule.

    ``layer(capsules [B, I, A_in])`` -> ``[B, J, A]``: one pass, no iterations. `priors` ``[I, J]``
    are added to the couplings and learned.

    Attributes:
        attends: False gives each output an equal share of each vote, whatever their agreement.

    >>> SelfAttentionCapsules(16, 8, out_types=10, out_atoms=16)(torch.rand(3, 16, 8)).shape
    torch.Size([3, 10, 16])
    """

    def __init__(self, in_capsules: int, in_atoms: int, out_types: int, out_atoms: int) -> None:
        super().__init__(in_capsules, in_atoms, out_types, out_atoms, std=in_atoms**-0.5)
        self.priors = nn.Parameter(torch.zeros(in_capsules, out_types))
        self.attends = True

    def votes(self, capsules: Tensor) -> Tensor:
        """Votes ``[B, I, J, A]`` of capsules ``[B, I, A_in]``, at least float32."""
        return widen(super().votes(capsules))

    def couplings(self, votes: Tensor) -> Tensor:
        """Coupling coefficients ``[B, I, J]`` of votes, priors included."""
        if not self.attends:
            return (1 / votes.shape[2] + self.priors).expand(len(votes), -1, -1)
        agreement = (votes * votes.sum(1, keepdim=True)).sum(-1)  # with all votes for one output
        shares: Tensor = (agreement * self.in_atoms**-0.5).softmax(2)
        return shares + self.priors

    def coupling_steps(self, capsules: Tensor) -> Tensor:
        """The coupling coefficients ``[1, B, I, J]``: there is one step."""
        return self.couplings(self.votes(capsules)).unsqueeze(0)

    def forward(self, capsules: Tensor) -> Tensor:
        """See the class."""
        votes = self.votes(capsules)
        total = (self.couplings(votes).unsqueeze(-1) * votes).sum(1)
        return exponential_squash(total)
