"""Memory layouts and dtypes that the backends share."""

from __future__ import annotations

import torch
from torch import Tensor

from caps_med.errors import InvalidParameter


def positions_last_but_two(votes: Tensor) -> Tensor:
    """Votes ``[B, I, J, A, *S]`` as ``[B, I, N, J, A]``: a view, or a copy if there is none."""
    return votes.flatten(4).movedim(4, 2)


def positions_last_but_one(capsules: Tensor) -> Tensor:
    """Capsules ``[B, J, A, *S]`` as ``[B, J, N, A]``: a view, or a copy if there is none."""
    return capsules.flatten(3).mT


def empty_votes(votes: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """An uninitialized tensor like `votes`, in the layout of a channels-last convolution.

    Args:
        votes: ``[B, I, J, A, *S]``.
        dtype: None for that of the votes.
    """
    B, I, J, A, *S = votes.shape
    return votes.new_empty(B, I, *S, J, A, dtype=dtype).movedim((-2, -1), (2, 3))


def empty_capsules(votes: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Uninitialized capsules ``[B, J, A, *S]``, each type channels last; see `empty_votes`.

    They are not a view, because autograd would not allow one to be changed in place.
    """
    B, _, *shape = votes.shape
    order = (0, 1, *range(3, votes.ndim - 1), 2)
    kind = dtype or votes.dtype
    return torch.empty_permuted((B, *shape), order, dtype=kind, device=votes.device)


def check_floating(argument: str, tensor: Tensor) -> None:
    """Reject whole numbers, to which all capsules, being shorter than one, would be rounded.

    Raises:
        InvalidParameter: the dtype is no floating point type.
    """
    if not tensor.is_floating_point():
        raise InvalidParameter(f"{argument}: dtype {tensor.dtype}; a floating point one is needed")


def wide_dtype(tensor: Tensor) -> torch.dtype:
    """The dtype of the arithmetic: float64 for float64, otherwise float32."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def widen(tensor: Tensor) -> Tensor:
    """The tensor in its `wide_dtype`."""
    return tensor.to(wide_dtype(tensor))
