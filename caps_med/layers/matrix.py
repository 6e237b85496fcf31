"""Matrix capsules: a 4 x 4 pose and an activation, routed by EM.

Hinton, Sabour & Frosst 2018, "Matrix capsules with EM routing", sections 3 to 5. Poses are
``[B, J, 16, *S]``, row by row, and activations ``[B, J, *S]`` in [0, 1].
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from caps_med.arguments import check_choice
from caps_med.errors import InvalidParameter
from caps_med.layers.ordered import Ordered
from caps_med.layers.spatial import check_maps, conv_type
from caps_med.routing import EMCapsules, EMRouting, route_em

#: How a pose is transformed: as a matrix 4 x 4 by one of its size, or as a vector of 16 numbers.
PoseForm = Literal["matrix", "vector"]
#: Rows and columns of a pose.
EDGE = 4
ATOMS = EDGE * EDGE
#: Standard deviation of the transformation matrices around the identity before training.
_SPREAD = 0.1
#: A parent's cost counts its share of the children this many times (Gritzman 2019).
_MASS_SCALE = 100


class PoseMatrices(NamedTuple):
    """Poses ``[B, J, 16, *S]`` and activations ``[B, J, *S]`` of one layer."""

    poses: Tensor
    activations: Tensor


class PrimaryMatrixCapsules(nn.Module):
    """Matrix capsules from feature maps by a 1 x 1 convolution: linear poses, sigmoid activations.

    Args:
        spatial_dims: 2 or 3.
        in_channels: channels of the feature maps.
        out_types: capsule types B.

    ``layer(maps [B, C, *S])`` -> poses ``[B, J, 16, *S]`` and activations ``[B, J, *S]``.

    >>> poses, activations = PrimaryMatrixCapsules(2, 8, 3)(torch.rand(1, 8, 5, 5))
    >>> poses.shape, activations.shape
    (torch.Size([1, 3, 16, 5, 5]), torch.Size([1, 3, 5, 5]))
    """

    def __init__(self, spatial_dims: int, in_channels: int, out_types: int) -> None:
        super().__init__()
        self.out_types = out_types
        self.conv = conv_type(spatial_dims)(in_channels, out_types * (ATOMS + 1), 1)
        nn.init.normal_(self.conv.weight, std=in_channels**-0.5)
        nn.init.constant_(self.conv.get_parameter("bias"), 0)

    def forward(self, maps: Tensor) -> PoseMatrices:
        """See the class; raises `InvalidParameter` for maps of the wrong shape."""
        check_maps(maps, self.conv)
        poses, logits = self.conv(maps).split([self.out_types * ATOMS, self.out_types], 1)
        return PoseMatrices(poses.unflatten(1, (self.out_types, ATOMS)), logits.sigmoid())


class _RoutedByEM(Ordered):
    """Transformation matrices ``[T, I, J, 4, 4]`` of T taps, and the two costs of each type.

    The matrices of vector poses are ``[T, I, J, 16, 16]``.
    """

    def __init__(
        self, taps: int, in_types: int, out_types: int, routing: EMRouting | None, pose: PoseForm
    ) -> None:
        super().__init__()
        check_choice(get_args(PoseForm), pose=pose)
        self.in_types, self.out_types, self.pose = in_types, out_types, pose
        self.routing = routing or EMRouting()
        edge = EDGE if pose == "matrix" else ATOMS
        self.weight = nn.Parameter(torch.empty(taps, in_types, out_types, edge, edge))
        nn.init.normal_(self.weight, std=_SPREAD * (EDGE / edge) ** 0.5)
        self.weight.data.diagonal(dim1=-2, dim2=-1).add_(1)
        self.beta_u = nn.Parameter(torch.ones(out_types))
        self.beta_a = nn.Parameter(torch.zeros(out_types))

    @property
    def _votes_of_position(self) -> int:
        taps, inputs, outputs, *_ = self.weight.shape
        return taps * inputs * outputs * ATOMS

    def check(self, capsules: PoseMatrices) -> None:
        """Reject capsules of the wrong types."""
        poses, activations = capsules
        right = poses.shape[1:3] == (self.in_types, ATOMS)
        if not right or activations.shape != poses.shape[:2] + poses.shape[3:]:
            raise InvalidParameter(
                f"poses have shape {tuple(poses.shape)} and activations "
                f"{tuple(activations.shape)}: [B, {self.in_types}, {ATOMS}, *S] and "
                f"[B, {self.in_types}, *S] are needed"
            )

    def _votes(self, poses: Tensor) -> Tensor:
        """Votes ``[B, T, I, J, 16, P]`` of poses ``[B, I, 16, T, P]``; matrices column by column.

        The product then lies in memory in the order in which routing reads it; rearranging it would
        take a third of a training step. Routing treats all atoms alike.
        """
        if self.pose == "vector":
            return torch.einsum("biytp,tijyz->btijzp", poses, self.weight)
        matrices = poses.unflatten(2, (EDGE, EDGE)).permute(0, 4, 1, 3, 2, 5)  # [B, T, I, y, x, P]
        transforms = self.weight.movedim(-1, -2).flatten(2, 3)  # [T, I, J * z, y]
        votes: Tensor = transforms @ matrices.flatten(4)  # [B, T, I, J * z, x * P]
        return votes.view(*votes.shape[:3], self.out_types, ATOMS, poses.shape[-1])

    def _route(
        self,
        votes: Tensor,
        activations: Tensor,
        children: Tensor | None,
        count: int,
        iterations: int | None = None,
    ) -> EMCapsules:
        """Route the votes of `count` different children, with all or the given iterations."""
        run = self.routing if iterations is None else replace(self.routing, iterations=iterations)
        last = self.routing.inverse_temperature(self.routing.iterations - 1)
        parents = self.out_types * votes.shape[4:].numel()
        scale = _MASS_SCALE * parents / count
        beta_a = self.beta_a / last
        return route_em(votes, activations, self.beta_u, beta_a, run, children, mass_scale=scale)


class ConvMatrixCapsules(_RoutedByEM):
    """Convolutional matrix capsules; the children of a position compete over all positions.

    Args:
        spatial_dims: 2 or 3.
        in_types: input capsule types.
        out_types: output capsule types.
        kernel_size: edge of the kernel; no padding.
        stride: between kernel positions.
        routing: EM iterations and temperature.
        pose: ``"vector"`` transforms poses as vectors of 16 numbers, with 16 times the weights.

    ``layer(capsules)`` -> capsules of ``(edge - kernel_size) // stride + 1`` positions per axis.
    Deviations: transformation matrices start as the identity plus normal noise of standard
    deviation 0.1 (released code: noise alone); a parent's cost counts its share of the children a
    hundredfold, whatever the width of the layers (Gritzman 2019, "Avoiding implementation pitfalls
    of matrix capsules with EM routing", section 3.2), and `beta_a` is stored multiplied by the last
    λ, so that gradient steps of the usual size can move it.

    >>> below = PrimaryMatrixCapsules(2, 8, 3)(torch.rand(1, 8, 7, 7))
    >>> poses, activations = ConvMatrixCapsules(2, 3, 4, kernel_size=3, stride=2)(below)
    >>> poses.shape, activations.shape
    (torch.Size([1, 4, 16, 3, 3]), torch.Size([1, 4, 3, 3]))
    """

    def __init__(
        self,
        spatial_dims: int,
        in_types: int,
        out_types: int,
        kernel_size: int = 3,
        stride: int = 1,
        routing: EMRouting | None = None,
        pose: PoseForm = "matrix",
    ) -> None:
        super().__init__(kernel_size**spatial_dims, in_types, out_types, routing, pose)
        self.spatial_dims, self.kernel_size, self.stride = spatial_dims, kernel_size, stride

    def forward(self, capsules: PoseMatrices) -> PoseMatrices:
        """See the class."""
        found = self.route(capsules)
        return PoseMatrices(found.poses, found.activations)

    def route(self, capsules: PoseMatrices) -> EMCapsules:
        """Like a call, with the assignments ``[B, T * I, J, *S]`` of each tap's children."""
        self.check(capsules)
        poses, activations = capsules
        size = poses.shape[3:]
        if min(size) < self.kernel_size:
            raise InvalidParameter(
                f"capsules have {tuple(size)} positions: at least {self.kernel_size} an axis are "
                "needed"
            )
        seen = self.seen(size).to(poses.device)  # [T, *S']
        taps, positions = seen.shape[0], seen.shape[1:]
        poses = poses.flatten(3)[..., seen.reshape(-1)].unflatten(-1, (taps, -1))
        votes = self._votes(poses).flatten(1, 2).unflatten(-1, positions)
        present = activations.flatten(2)[..., seen.reshape(-1)].unflatten(-1, (taps, -1))
        present = present.movedim(2, 1).flatten(1, 2).unflatten(-1, positions)
        places = int(torch.Size(size).numel())
        types = torch.arange(self.in_types, device=poses.device).view(1, -1, *(1 for _ in size))
        children = (seen.unsqueeze(1) + places * types).flatten(0, 1)
        found = self._route(votes, present, children, self.in_types * places)
        if self.pose == "vector":
            return found
        poses = found.poses.unflatten(2, (EDGE, EDGE)).transpose(2, 3).flatten(2, 3)
        return found._replace(poses=poses)

    def out_size(self, size: Sequence[int]) -> tuple[int, ...]:
        """Positions of the output along each axis."""
        return tuple((edge - self.kernel_size) // self.stride + 1 for edge in size)

    def vote_count(self, size: Sequence[int]) -> int:
        """Numbers in the votes of one image, given the size of the input."""
        return self._votes_of_position * math.prod(self.out_size(size))

    def seen(self, size: torch.Size) -> Tensor:
        """``[T, *S']``: the input position, counted row by row, at each tap of each output."""
        places = torch.arange(int(size.numel())).reshape(size)
        counts = self.out_size(size)
        taps = []
        for offset in itertools.product(range(self.kernel_size), repeat=self.spatial_dims):
            window = tuple(
                slice(start, start + self.stride * (count - 1) + 1, self.stride)
                for start, count in zip(offset, counts, strict=True)
            )
            taps.append(places[window])
        return torch.stack(taps)


class ClassMatrixCapsules(_RoutedByEM):
    """One matrix capsule per class, routed from the capsules of all positions at once.

    The transformation matrices are shared by all positions of a type; a capsule's position is
    added to its votes (coordinate addition, section 4.1): its centre, scaled to (0, 1), to the
    first elements of the vote's last column.

    Args:
        in_types: input capsule types.
        out_types: classes.
        routing: EM iterations and temperature.
        coordinates: whether to add the positions.
        pose: see `ConvMatrixCapsules`.

    ``layer(capsules)`` -> poses ``[B, J, 16]`` and activations ``[B, J]``.
    """

    def __init__(
        self,
        in_types: int,
        out_types: int,
        routing: EMRouting | None = None,
        coordinates: bool = True,
        pose: PoseForm = "matrix",
    ) -> None:
        super().__init__(1, in_types, out_types, routing, pose)
        self.coordinates = coordinates

    def forward(self, capsules: PoseMatrices) -> PoseMatrices:
        """See the class."""
        found = self.route(capsules)
        return PoseMatrices(found.poses.squeeze(-1), found.activations.squeeze(-1))

    def vote_count(self, size: Sequence[int]) -> int:
        """Numbers in the votes of one image, given the size of the input."""
        return self._votes_of_position * math.prod(size)

    def coupling_steps(self, capsules: PoseMatrices) -> Tensor:
        """The assignments ``[T, B, I * P, J]`` of each EM iteration; no gradient."""
        with torch.no_grad():
            steps = [
                self.route(capsules, iterations=t + 1).assignments.squeeze(-1)
                for t in range(self.routing.iterations)
            ]
        return torch.stack(steps)

    def route(self, capsules: PoseMatrices, iterations: int | None = None) -> EMCapsules:
        """Poses ``[B, J, 16, 1]``, activations ``[B, J, 1]``, assignments ``[B, I * P, J, 1]``.

        Args:
            iterations: fewer than the layer's, to inspect the first steps of routing.
        """
        self.check(capsules)
        poses, activations = capsules
        size = poses.shape[3:]
        listed = poses.flatten(3)
        if self.pose == "vector":
            votes = torch.einsum("biyp,ijyz->bipjz", listed, self.weight[0])
        else:
            matrices = listed.unflatten(2, (EDGE, EDGE))
            votes = torch.einsum("bixyp,ijyz->bipjxz", matrices, self.weight[0]).flatten(4)
        if self.coordinates:
            centres = [(torch.arange(edge, device=poses.device) + 0.5) / edge for edge in size]
            grid = torch.stack(torch.meshgrid(*centres, indexing="ij"), -1).flatten(0, -2)
            shift = votes.new_zeros(grid.shape[0], EDGE, EDGE)
            shift[:, : grid.shape[1], EDGE - 1] = grid.to(votes.dtype)
            votes = votes + shift.flatten(1)[:, None]
        votes = votes.flatten(1, 2).unsqueeze(-1)
        present = activations.flatten(1).unsqueeze(-1)
        return self._route(votes, present, None, present.shape[1], iterations)
