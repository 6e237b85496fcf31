"""Capsule layers without routing iterations: depthwise votes of unit length, and their squashes.

Bonheur et al. 2022, "OnlyCaps-Net, a Capsule Only Based Neural Network for 2D and 3D Semantic
Segmentation" (MICCAI, pages 340-349; code in savinienb/OnlyCaps-Net).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from caps_med.arguments import check_choice
from caps_med.errors import InvalidParameter
from caps_med.layers.ordered import Ordered
from caps_med.layers.spatial import conv_type, transposed_conv_type
from caps_med.layers.voting import VotingLayer
from caps_med.routing.backends import in_graph
from caps_med.routing.layout import wide_dtype, widen

#: What becomes of the sum of the votes: ``"soft"``, its direction with a length that a softmax over
#: the types gives; ``"unit"``, its direction alone; ``"none"``, the sum.
UnitSquash = Literal["soft", "unit", "none"]

#: Added to a squared length under the root.
_EPSILON = 1e-6
#: The routing bias before training, and the spread of the weights; their scale does not matter.
_BIAS, _SPREAD = 0.1, 0.1
#: Output types whose votes are in memory at once without gradients: of a transposed convolution two
#: at least, as PyTorch computes that of a single one otherwise.
_AT_ONCE, _AT_ONCE_TRANSPOSED = 1, 2


def unit(vectors: Tensor, dim: int) -> Tensor:
    """Vectors of length one along `dim`; zero stays zero, with a finite gradient.

    >>> unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]]), 1)
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    wide = widen(vectors)
    lengths = wide.square().sum(dim, keepdim=True)
    return (wide * torch.rsqrt(lengths + _EPSILON)).to(vectors.dtype)


def soft_squash(capsules: Tensor) -> Tensor:
    """Keep the directions of capsules ``[B, J, A, *S]``; a softmax over types gives the lengths."""
    lengths = torch.sqrt(capsules.square().sum(2, keepdim=True) + _EPSILON)
    return capsules / lengths * lengths.softmax(1)


def _summed(votes: Tensor) -> Tensor:
    """Sums over the input types, ``[B, J, A, *S]``, at least float32."""
    return votes.sum(1, dtype=wide_dtype(votes))


class UnitCapsule(Ordered, VotingLayer):
    """Capsules from unit routing: the sum of all votes, each scaled to length one, plus a bias.

    Votes are depthwise separable: a kernel for each pair of types, the same for all atoms, then a
    matrix over the atoms.

    Deviations: a vote has length one over its atoms, as in the paper (the published code divides
    by the norm over the output types); there is one matrix for each pair of types (the published
    code mixes all types in groups of its own, with `in_types` times `out_types` as many weights in
    each); 2-D as well.

    Without gradients, votes are computed and summed for one or two output types at a time: J types
    then take a J-th of the memory, and less time; for a single sample the bits are the same.

    Args:
        spatial_dims: 2 or 3.
        in_types: input capsule types I.
        in_atoms: atoms of an input capsule.
        out_types: output capsule types J.
        out_atoms: atoms A of an output capsule.
        kernel_size: edge of the kernel; odd, or even for a transposed convolution.
        stride: 1 keeps the size, 2 halves it (rounded up).
        transposed: whether the depthwise convolution is transposed: give kernel 4 and stride 2,
            which doubles the size.
        squash: squash of the sum, see `UnitSquash`.

    >>> layer = UnitCapsule(2, 3, 8, out_types=4, out_atoms=6, kernel_size=5, stride=2)
    >>> layer(torch.rand(1, 3, 8, 16, 16)).shape
    torch.Size([1, 4, 6, 8, 8])
    """

    def __init__(
        self,
        spatial_dims: int,
        in_types: int,
        in_atoms: int,
        out_types: int,
        out_atoms: int,
        kernel_size: int = 5,
        stride: int = 1,
        transposed: bool = False,
        squash: UnitSquash = "soft",
    ) -> None:
        super().__init__()
        check_choice(get_args(UnitSquash), squash=squash)
        self.in_types, self.in_atoms = in_types, in_atoms
        self.out_types, self.out_atoms = out_types, out_atoms
        self.stride, self.squash, self.transposed = stride, squash, transposed
        kind = transposed_conv_type(spatial_dims) if transposed else conv_type(spatial_dims)
        self.depthwise = kind(
            in_types, in_types * out_types, kernel_size, stride,
            padding=(kernel_size - 1) // 2, groups=in_types, bias=False,
        )  # fmt: skip
        self.matrices = nn.Parameter(torch.empty(in_types, out_types, out_atoms, in_atoms))
        self.bias = nn.Parameter(torch.full((out_types, out_atoms), _BIAS))
        nn.init.normal_(self.depthwise.weight, std=_SPREAD)
        nn.init.normal_(self.matrices, std=_SPREAD)

    @property
    def types_at_once(self) -> int:
        """The most output types whose votes are in memory at once without gradients."""
        return max(len(part) for part in self._parts())

    def votes(self, capsules: Tensor, types: slice = slice(None)) -> Tensor:
        """Votes ``[B, I, J, A, *S']`` of length one of the capsules ``[B, I, A_in, *S]``.

        Args:
            types: the J output types that the votes are for.

        Raises:
            InvalidParameter: capsules of the wrong shape.
        """
        dims, needed = len(self.depthwise.kernel_size), (self.in_types, self.in_atoms)
        if capsules.ndim != dims + 3 or capsules.shape[1:3] != needed:
            raise InvalidParameter(
                f"capsules have shape {tuple(capsules.shape)}: [B, {needed[0]}, {needed[1]}, *S] "
                f"with {dims} spatial axes is needed"
            )
        atoms = capsules.transpose(1, 2)
        maps = self._convolved(atoms.flatten(0, 1), types)  # [B * A_in, I * J, *S']
        size = maps.shape[2:]
        maps = maps.unflatten(0, atoms.shape[:2]).unflatten(2, (self.in_types, -1))
        found = torch.einsum("bcijs,ijac->bijas", maps.flatten(4), self.matrices[:, types])
        return torch.unflatten(unit(found, 3), 4, size)

    def _convolved(self, maps: Tensor, types: slice) -> Tensor:
        if types == slice(None):
            whole: Tensor = self.depthwise(maps)
            return whole
        weight, one = self.depthwise.weight, self.depthwise
        if self.transposed:
            kernels = weight[:, types]
        else:
            kernels = weight.unflatten(0, (self.in_types, self.out_types))[:, types].flatten(0, 1)
        convolve = _CONVOLUTIONS[maps.ndim - 2, self.transposed]
        return convolve(maps, kernels, stride=one.stride, padding=one.padding, groups=one.groups)

    def _parts(self) -> list[range]:
        """Output types, in groups whose votes are computed at once."""
        least = _AT_ONCE_TRANSPOSED if self.transposed else _AT_ONCE
        parts = np.array_split(range(self.out_types), max(1, self.out_types // least))
        return [range(part[0], part[-1] + 1) for part in parts]

    def _sums(self, capsules: Tensor) -> Tensor:
        """The sums of all votes ``[B, J, A, *S']``."""
        if torch.is_grad_enabled() or in_graph():
            return _summed(self.votes(capsules))
        parts = (slice(part.start, part.stop) for part in self._parts())
        return torch.cat([_summed(self.votes(capsules, part)) for part in parts], 1)

    def _routed(self, capsules: Tensor) -> Tensor:
        sums = self._sums(capsules)
        ones = (1,) * (sums.ndim - 3)
        found = sums + self.bias.view(1, self.out_types, self.out_atoms, *ones)
        if self.squash != "none":
            found = soft_squash(found) if self.squash == "soft" else unit(found, 2)
        return found.to(torch.promote_types(capsules.dtype, self.bias.dtype))


#: By spatial dimensions, and whether they are transposed.
_CONVOLUTIONS: dict[tuple[int, bool], Callable[..., Tensor]] = {
    (2, False): F.conv2d, (2, True): F.conv_transpose2d,
    (3, False): F.conv3d, (3, True): F.conv_transpose3d,
}  # fmt: skip
