"""EM routing of matrix capsules: parents are Gaussians fitted to the votes of their children.

Hinton, Sabour & Frosst 2018, "Matrix capsules with EM routing", procedure 1 and section 4.

Deviations, all for numerical stability, as in the authors' released code: variances have a floor,
sums of assignments are kept above zero, and the E-step runs on logarithms with each child's maximum
over all of its parents subtracted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from caps_med.errors import InvalidParameter
from caps_med.routing.backends import active_backend, in_graph, is_transformed
from caps_med.routing.em_autograd import Found
from caps_med.routing.em_start import EMInputs, EMSettings, equal_assignments

#: Variances are kept above this, and sums of assignments above `_LEAST_MASS`.
VARIANCE_FLOOR = 5e-4
_LEAST_MASS = 1e-7
#: Votes [B, I, J, A, *S] in five axes: the spatial ones are flattened before routing.
_FLAT_AXES = 5


@dataclass(frozen=True)
class EMRouting:
    """How votes and activations become matrix capsules.

    Attributes:
        iterations: of EM, at least 1; the paper uses 3.
        temperature: final inverse temperature; iteration t = 1, 2, ... uses
            ``temperature * (1 - 0.95 ** t)``.
        recompute: in PyTorch operations, keep nothing of the votes' size except the votes for the
            backward pass, and repeat the iterations there: about half the memory for one more
            forward pass. Native code always does this.
    """

    iterations: int = 3
    temperature: float = 0.01
    recompute: bool = False

    def __post_init__(self) -> None:
        if self.iterations < 1:
            raise InvalidParameter(f"iterations={self.iterations}: must be at least 1")
        if not self.temperature > 0:
            raise InvalidParameter(f"temperature={self.temperature}: must be above 0")

    def inverse_temperature(self, iteration: int) -> float:
        """The λ of an iteration, counted from 0."""
        return self.temperature * (1 - 0.95 ** (iteration + 1))


class EMCapsules(NamedTuple):
    """The result of routing: poses ``[B, J, A, *S]``, activations ``[B, J, *S]`` in (0, 1), and the
    assignments ``[B, I, J, *S]`` of children to parents from which they were computed.
    """

    poses: Tensor
    activations: Tensor
    assignments: Tensor


def route_em(
    votes: Tensor,
    activations: Tensor,
    beta_u: Tensor,
    beta_a: Tensor,
    routing: EMRouting,
    children: Tensor | None = None,
    mass_scale: float = 1.0,
) -> EMCapsules:
    """Route votes to matrix capsules.

    The backend ``numba``, the default on CPUs, uses native code; ``triton``, the default on GPUs,
    Triton kernels in float32; all others PyTorch operations. `caps_med.routing.use_backend` and
    ``CAPS_MED_ROUTING`` choose the backend, see `active_backend`.

    Args:
        votes: ``[B, I, J, A, *S]``, from each child slot ``I`` for a parent at position ``*S``. In
            a convolution a slot is an input type at one tap of the kernel.
        activations: ``[B, I, *S]`` of those children, in [0, 1].
        beta_u: ``[J]``, cost of describing a vote, per parent type.
        beta_a: ``[J]``, cost of a parent that is not active.
        routing: iterations and temperature.
        children: ``[I, *S]``, integers: the child in each slot. A child that several parent
            positions see is assigned among all of their types. None: every slot at every position
            is a separate child.
        mass_scale: factor of a parent's share of the children in its cost, so that layers of
            different width can share one temperature (Gritzman 2019); the paper's is 1.

    Returns:
        Poses and assignments in the votes' dtype; activations, like all arithmetic, are at least
        float32.

    Raises:
        InvalidParameter: the shapes do not match.
    """
    _check(votes, activations, beta_u, beta_a, children)
    wide = torch.promote_types(votes.dtype, torch.float32)
    if type(votes) is not Tensor and not in_graph():  # such as MONAI's MetaTensor
        votes, activations = votes.as_subclass(Tensor), activations.as_subclass(Tensor)
    flat = votes.to(wide).flatten(4) if votes.ndim > _FLAT_AXES else votes.to(wide)
    present = activations.to(wide).flatten(2)
    slots = _slots(children, present)
    arguments = (flat, present, beta_u.to(wide), beta_a.to(wide), slots, routing, mass_scale)
    if (kernels := _kernels(flat)) is not None:
        lambdas = tuple(routing.inverse_temperature(t) for t in range(routing.iterations))
        settings = EMSettings(lambdas, VARIANCE_FLOOR, _LEAST_MASS, mass_scale)
        poses, logits, assigned = kernels(EMInputs(*arguments[:5], settings))
        active = logits.sigmoid()
    elif _is_repeated(votes, routing):
        poses, active, assigned = checkpoint(_iterate, *arguments, use_reentrant=False)
    else:
        poses, active, assigned = _iterate(*arguments)
    shape = votes.shape[4:]
    return EMCapsules(
        poses.unflatten(-1, shape).to(votes.dtype),
        active.unflatten(-1, shape),
        assigned.unflatten(-1, shape).to(votes.dtype),
    )


def _is_repeated(votes: Tensor, routing: EMRouting) -> bool:
    """Whether the backward pass repeats the iterations; `torch.func` refuses checkpoints."""
    learned = torch.is_grad_enabled() and votes.requires_grad
    return routing.recompute and learned and not is_transformed()


def _kernels(votes: Tensor) -> Callable[[EMInputs], Found] | None:
    """The kernel function that routes these votes; None for PyTorch operations."""
    # kernels have no block of an empty batch, and read numbers, which FakeTensorMode has not
    if in_graph() or not votes.numel() or type(votes) is not Tensor:
        return None
    backend = active_backend(votes.device)
    if backend == "numba":
        from caps_med.routing.numba_em import route_em_numba

        return route_em_numba
    if backend == "triton" and votes.dtype == torch.float32:
        from caps_med.routing.triton_em import route_em_triton

        return route_em_triton
    return None


def _iterate(
    votes: Tensor,
    activations: Tensor,
    beta_u: Tensor,
    beta_a: Tensor,
    slots: Tensor,
    routing: EMRouting,
    mass_scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """EM on flat votes ``[B, I, J, A, P]``; slots ``[I * P]`` number the children."""
    assigned = equal_assignments(votes, slots)
    for iteration in range(routing.iterations):
        # M-step: each parent's Gaussian, from children weighted by their own activation.
        weights = assigned * activations.unsqueeze(2)
        mass = weights.sum(1)  # [B, J, P]
        shares = weights / mass.clamp_min(_LEAST_MASS).unsqueeze(1)
        mean = (shares.unsqueeze(3) * votes).sum(1)  # [B, J, A, P]
        squares = (votes - mean.unsqueeze(1)).square()
        variance = (shares.unsqueeze(3) * squares).sum(1).clamp_min(VARIANCE_FLOOR)
        cost = (beta_u[:, None, None] + 0.5 * variance.log()).sum(2) * (mass_scale * mass)
        logits = routing.inverse_temperature(iteration) * (beta_a[:, None] - cost)
        if iteration + 1 < routing.iterations:
            # E-step: each child chooses among all parents that it votes for.
            distance = (squares / (2 * variance).unsqueeze(1)).sum(3)
            spread = 0.5 * (2 * math.pi * variance).log().sum(2)
            evidence = (F.logsigmoid(logits) - spread).unsqueeze(1) - distance
            assigned = _softmax_over_parents(evidence, slots)
    return mean, logits.sigmoid(), assigned


def _softmax_over_parents(evidence: Tensor, slots: Tensor) -> Tensor:
    """Softmax of ``[B, I, J, P]`` over the types and positions that share a child."""
    B, I, J, P = evidence.shape
    index = slots.expand(B, -1)
    children = len(slots)  # at most; a graph cannot read how many there are
    by_slot = evidence.movedim(2, -1).reshape(B, I * P, J)
    with torch.no_grad():  # subtracting any number leaves a softmax as it is
        highest = evidence.new_full((B, children), -math.inf)
        highest = highest.scatter_reduce(1, index, by_slot.amax(-1), "amax")
    powers = (by_slot - highest.gather(1, index).unsqueeze(-1)).exp()
    total = evidence.new_zeros(B, children).scatter_add(1, index, powers.sum(-1))
    shares = powers / total.gather(1, index).unsqueeze(-1)
    result: Tensor = shares.reshape(B, I, P, J).movedim(-1, 2)
    return result


def _slots(children: Tensor | None, activations: Tensor) -> Tensor:
    """The child in each slot ``[I * P]``, counted from 0 without gaps."""
    if children is None:
        return torch.arange(activations.shape[1:].numel(), device=activations.device)
    ordered, slots = children.reshape(-1).sort()
    numbers = F.pad(ordered[1:] != ordered[:-1], (1, 0)).cumsum(0)
    return torch.empty_like(slots).scatter(0, slots, numbers)


def _check(
    votes: Tensor, activations: Tensor, beta_u: Tensor, beta_a: Tensor, children: Tensor | None
) -> None:
    if votes.ndim < _FLAT_AXES:
        raise InvalidParameter(f"votes have shape {tuple(votes.shape)}: [B, I, J, A, *S] is needed")
    B, I, J, _, *S = votes.shape
    needed = {
        "activations": (activations, (B, I, *S)),
        "beta_u": (beta_u, (J,)),
        "beta_a": (beta_a, (J,)),
    }
    if children is not None:
        needed["children"] = (children, (I, *S))
    for name, (tensor, shape) in needed.items():
        if tuple(tensor.shape) != shape:
            raise InvalidParameter(f"{name} has shape {tuple(tensor.shape)}: {shape} is needed")
