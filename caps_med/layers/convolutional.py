"""Convolutional capsule layers: one kernel for all input types, then local routing."""

from __future__ import annotations

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from caps_med.arguments import check_choice, check_positive
from caps_med.convolutions.geometry import Window
from caps_med.convolutions.reach import Reach, TiledReach
from caps_med.errors import InvalidParameter
from caps_med.layers.initialization import initialize_votes
from caps_med.layers.spatial import (
    Convolution,
    channels_last,
    conv_type,
    convolve_window,
    pad_same,
    reach_of,
    tiled_transposed_conv_type,
    vote_conv_type,
)
from caps_med.layers.voting import VotingLayer
from caps_med.routing import Routing, route

Padding = Literal["symmetric", "tensorflow", "replicate"]
Upsampling = Literal["transposed", "smoothed", "linear"]

#: The routing bias before training, as published by LaLonde & Bagci 2018.
INITIAL_BIAS = 0.1
#: Length of the sum of normalized votes before training; squash makes it 0.7.
SUM_LENGTH = 1.5
#: Positions that a transposed convolution leaves out on each side, with the border continued by one
#: position and one left over where votes are smoothed.
_CROPPED = {"transposed": 1, "smoothed": 2}
#: Added to a mean square under the root.
_EPSILON = 1e-6


class _CapsuleLayer(VotingLayer):
    """Votes from a (transposed) convolution, capsules from routing; see the two layers below."""

    conv: Convolution

    def __init__(self, spatial_dims: int, in_types: int, out_types: int, out_atoms: int,
                 routing: Routing, routing_bias: bool, normalize: bool) -> None:  # fmt: skip
        super().__init__()
        check_positive(in_types=in_types, out_types=out_types, out_atoms=out_atoms)
        self.vote_norm = VoteNorm(in_types, out_types, out_atoms, routing) if normalize else None
        self.spatial_dims = spatial_dims
        self.out_types, self.out_atoms, self.routing = out_types, out_atoms, routing
        self.bias = (
            nn.Parameter(torch.full((out_types, out_atoms), INITIAL_BIAS)) if routing_bias else None
        )

    @property
    def reach(self) -> Reach | TiledReach:
        """Reach of the votes along each axis, for symmetric padding and plain upsampling."""
        return reach_of(self.conv)

    def votes(self, capsules: Tensor, window: Window | None = None) -> Tensor:
        """Votes ``[B, I, J, A, *S']`` of the input capsules ``[B, I, A_in, *S]``.

        Args:
            capsules: all, or those that the window reads.
            window: the part of the result to compute; for symmetric padding with zeros only.
        """
        atoms = self.conv.in_channels
        if capsules.ndim != self.spatial_dims + 3 or capsules.shape[2] != atoms:
            raise InvalidParameter(
                f"capsules have shape {tuple(capsules.shape)}: [B, I, {atoms}, *S] with "
                f"{self.spatial_dims} spatial axes is needed"
            )
        maps = channels_last(capsules.flatten(0, 1))
        maps = self._convolve(maps) if window is None else convolve_window(self.conv, maps, window)
        maps = torch.unflatten(maps, 1, (self.out_types, self.out_atoms))
        votes = torch.unflatten(maps, 0, capsules.shape[:2])
        return votes if self.vote_norm is None else self.vote_norm(votes)

    def forward(self, capsules: Tensor, window: Window | None = None) -> Tensor:
        """``[B, I, A_in, *S]`` -> ``[B, J, A, *S']``; arguments as for `votes`."""
        if window is None:
            return super().forward(capsules)
        return route(self.votes(capsules, window), self.bias, self.routing)

    def _routed(self, capsules: Tensor) -> Tensor:
        return route(self.votes(capsules), self.bias, self.routing)

    def _convolve(self, maps: Tensor) -> Tensor:
        result: Tensor = self.conv(maps)
        return result


class VoteNorm(nn.Module):
    """Normalize the votes for each output type to unit mean square, times a learned scale.

    Squash maps short vectors to much shorter ones, so that the capsules of a deep network vanish
    if the votes of one layer are short (Everett et al. 2023). Here their mean square, over the
    input types, atoms and positions of one sample, starts at a value for which the sum of the votes
    has the length `SUM_LENGTH`, and is then trained. Like RMS normalization (Zhang & Sennrich
    2019), it subtracts no mean: votes keep their directions.

    Args:
        in_types, out_types, out_atoms: I, J and A of the votes ``[B, I, J, A, *S]``.
        routing: how the votes are routed.
    """

    def __init__(self, in_types: int, out_types: int, out_atoms: int, routing: Routing) -> None:
        super().__init__()
        share = in_types if routing.competition == "inputs" else out_types
        start = SUM_LENGTH * share / (in_types * out_atoms) ** 0.5
        self.scale = nn.Parameter(torch.full((out_types,), start))

    def forward(self, votes: Tensor) -> Tensor:
        """Votes of the same shape."""
        dims = (1, *range(3, votes.ndim))
        squares = votes.float().square() if votes.dtype != torch.float64 else votes.square()
        factor = torch.rsqrt(squares.mean(dims, keepdim=True) + _EPSILON)
        scale = self.scale.view(1, 1, -1, *(1 for _ in votes.shape[3:]))
        return votes * (factor * scale).to(votes.dtype)


class ConvCapsule(_CapsuleLayer):
    """Convolutional capsule layer (LaLonde & Bagci 2018, section 2.1; Bass et al. 2019).

    One convolution, shared by all input types, computes the votes; its output channels are ordered
    type first, then atom. As the kernel does not depend on the input type, the layer takes any
    number of them; `in_types` only sets the scale of the initial weights.

    Args:
        spatial_dims: 2 or 3.
        in_types: input capsule types I.
        in_atoms: atoms of an input capsule.
        out_types: output capsule types J.
        out_atoms: atoms A of an output capsule.
        kernel_size: edge of the kernel.
        stride: 1 keeps the size, 2 halves it (rounded up); with an even kernel and padding other
            than ``"tensorflow"``, the size is that for an axis shorter by one position.
        routing: iterations and competition.
        vote_bias: a bias in the convolution (CapsPix2Pix).
        routing_bias: a bias ``[J, A]`` before each squash, initially 0.1 (SegCaps).
        padding: ``"symmetric"`` pads ``(kernel_size - 1) // 2`` on both sides, as PyTorch
            does; ``"tensorflow"`` is TensorFlow's *same*: for stride 2 on an even size it pads one
            position fewer before than after; ``"replicate"`` is symmetric, with the border's
            capsules instead of zeros.
        normalize: bring the votes for each output type to one scale; see `VoteNorm`.

    Initial weights: normal, see `initialize_votes` (deviation: upstream starts He-normal or
    N(0, 0.02)); biases of the convolution zero.

    >>> layer = ConvCapsule(2, 3, 16, out_types=4, out_atoms=8, kernel_size=5, stride=2)
    >>> layer(torch.rand(1, 3, 16, 32, 32)).shape
    torch.Size([1, 4, 8, 16, 16])
    """

    def __init__(
        self,
        spatial_dims: int,
        in_types: int,
        in_atoms: int,
        out_types: int,
        out_atoms: int,
        kernel_size: int,
        stride: int = 1,
        routing: Routing | None = None,
        vote_bias: bool = False,
        routing_bias: bool = True,
        padding: Padding = "symmetric",
        normalize: bool = False,
    ) -> None:
        super().__init__(
            spatial_dims, in_types, out_types, out_atoms, routing or Routing(), routing_bias,
            normalize,
        )  # fmt: skip
        check_choice(get_args(Padding), padding=padding)
        check_positive(in_atoms=in_atoms, kernel_size=kernel_size, stride=stride)
        self.kernel_size, self.stride = kernel_size, stride
        self.conv = vote_conv_type(spatial_dims, kernel_size)(
            in_atoms,
            out_types * out_atoms,
            kernel_size,
            stride,
            padding=0 if padding == "tensorflow" else (kernel_size - 1) // 2,
            bias=vote_bias,
        )
        self.pad_by(padding)
        initialize_votes(self.conv, in_types, out_types, out_atoms, self.routing)

    def pad_by(self, padding: Padding) -> None:
        """Pad with zeros (``"symmetric"``) or with the border's capsules; the weights stay.

        ``"tensorflow"`` can only be chosen when the layer is built.
        """
        self.padding = padding
        self.conv.padding_mode = "replicate" if padding == "replicate" else "zeros"

    def _convolve(self, maps: Tensor) -> Tensor:
        if self.padding == "tensorflow":
            maps = pad_same(maps, self.kernel_size, self.stride)
        return super()._convolve(maps)


class DeconvCapsule(_CapsuleLayer):
    """Transposed convolutional capsule layer: doubles the size (kernel 4, stride 2, padding 1).

    LaLonde & Bagci 2018, section 2.1. Arguments and shapes as for `ConvCapsule`, and:

    Args:
        upsampling: ``"transposed"`` as published. The taps of a transposed convolution differ
            between even and odd positions, which shows as a checkerboard, and along the border as
            dots (Odena et al. 2016, "Deconvolution and checkerboard artifacts").
            ``"smoothed"`` repeats the border's capsules and averages the votes with (1, 2, 1) / 4
            along each axis: equal capsules then cast equal votes everywhere, whatever the weights,
            whose shapes stay as published. (Sugawara et al. 2018, "Super-resolution using
            convolutional neural networks without any checkerboard artifacts", hold each value with
            (1, 1); applied twice here, so that the votes stay in place.)
            ``"linear"`` interpolates the capsules and convolves them (kernel 3, repeating the
            border's capsules).

    >>> layer = DeconvCapsule(2, in_types=3, in_atoms=8, out_types=2, out_atoms=4)
    >>> layer(torch.rand(1, 3, 8, 16, 16)).shape
    torch.Size([1, 2, 4, 32, 32])
    """

    smoothing: Tensor | None

    def __init__(
        self,
        spatial_dims: int,
        in_types: int,
        in_atoms: int,
        out_types: int,
        out_atoms: int,
        routing: Routing | None = None,
        vote_bias: bool = False,
        routing_bias: bool = True,
        normalize: bool = False,
        upsampling: Upsampling = "transposed",
    ) -> None:
        super().__init__(
            spatial_dims, in_types, out_types, out_atoms, routing or Routing(), routing_bias,
            normalize,
        )  # fmt: skip
        check_choice(get_args(Upsampling), upsampling=upsampling)
        self.stride = 2
        channels = in_atoms, out_types * out_atoms
        self.conv: Convolution = (
            conv_type(spatial_dims)(
                *channels, 3, padding=1, padding_mode="replicate", bias=vote_bias
            )
            if upsampling == "linear"
            else tiled_transposed_conv_type(spatial_dims)(*channels, 4, stride=2, bias=vote_bias)
        )
        self.register_buffer("smoothing", None, persistent=False)
        self.enlarge_by(upsampling)
        self.register_load_state_dict_post_hook(_smooth_again)  # type: ignore[no-untyped-call]  # PyTorch's own
        initialize_votes(self.conv, in_types, out_types, out_atoms, self.routing)

    def enlarge_by(self, upsampling: Upsampling) -> None:
        """Switch the smoothing of a transposed convolution on or off; the weights stay.

        ``"linear"``, whose weights have other shapes, can only be chosen when the layer is built.
        """
        self.upsampling, self.smoothing = upsampling, None
        if upsampling == "linear":
            return
        self.conv.padding = (_CROPPED[upsampling],) * self.spatial_dims
        if upsampling == "smoothed":
            taps = _binomial(self.spatial_dims).to(self.conv.weight)
            channels = self.conv.out_channels
            self.smoothing = taps.expand(channels, 1, *taps.shape).contiguous()

    def _convolve(self, maps: Tensor) -> Tensor:
        if self.upsampling == "linear":
            mode = "bilinear" if self.spatial_dims == 2 else "trilinear"
            maps = F.interpolate(maps, scale_factor=2.0, mode=mode)
        if self.smoothing is None:
            return super()._convolve(maps)
        continued = F.pad(maps, [1, 1] * self.spatial_dims, mode="replicate")
        convolve = F.conv2d if self.spatial_dims == 2 else F.conv3d
        return convolve(super()._convolve(continued), self.smoothing, groups=len(self.smoothing))


def kernels_channels_last(network: nn.Module) -> None:
    """Store the kernels of convolutional capsule layers channels last, like their maps.

    For GPUs: cuDNN needs maps and kernels in the same order, and otherwise reorders the kernels in
    each call, in the forward and the backward pass, and then their gradients too. Values and shapes
    do not change.
    """
    for layer in network.modules():
        if isinstance(layer, _CapsuleLayer):
            layer.conv.weight.data = channels_last(layer.conv.weight.data)


def _smooth_again(layer: nn.Module, _: object) -> None:
    """Make the kernel when weights are loaded: it is not saved, and ``meta`` has none."""
    assert isinstance(layer, DeconvCapsule)  # noqa: S101 - of its own hook
    layer.enlarge_by(layer.upsampling)


def _binomial(spatial_dims: int) -> Tensor:
    """(1, 2, 1) / 4 along each axis, ``[3, ...]``."""
    taps = torch.tensor([0.25, 0.5, 0.25])
    return torch.stack(torch.meshgrid([taps] * spatial_dims, indexing="ij")).prod(0)


def join_types(*capsules: Tensor) -> Tensor:
    """Concatenate capsules ``[B, J, A, *S]`` along J; channels-last types stay channels last."""
    if len(capsules) == 1:
        return capsules[0]
    if capsules[0].is_contiguous():
        return torch.cat(capsules, 1)
    return torch.cat([c.movedim(2, -1) for c in capsules], 1).movedim(-1, 2)
