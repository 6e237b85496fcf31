"""Convolutional capsule layers: one kernel for all input types, then local routing."""

from __future__ import annotations

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from caps_med.errors import InvalidParameter
from caps_med.routing import Routing, route

Padding = Literal["symmetric", "tensorflow"]

_CONV = {2: nn.Conv2d, 3: nn.Conv3d}
_DECONV = {2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
#: The routing bias before training, as published by LaLonde & Bagci 2018.
INITIAL_BIAS = 0.1
#: How many times longer the sum of the votes starts than the capsules that cast them.
VOTE_GAIN = 2.2


class _CapsuleLayer(nn.Module):
    """Votes by a (transposed) convolution, capsules by routing; see the two layers below."""

    conv: nn.Module
    #: Forget the votes after the forward pass and convolve again in the backward pass.
    recompute_votes: bool = False

    def __init__(self, spatial_dims: int, out_types: int, out_atoms: int, routing: Routing,
                 routing_bias: bool) -> None:  # fmt: skip
        super().__init__()
        if spatial_dims not in _CONV:
            raise InvalidParameter(f"spatial_dims={spatial_dims}: must be 2 or 3")
        self.spatial_dims = spatial_dims
        self.out_types, self.out_atoms, self.routing = out_types, out_atoms, routing
        self.bias = (
            nn.Parameter(torch.full((out_types, out_atoms), INITIAL_BIAS)) if routing_bias else None
        )

    def votes(self, capsules: Tensor) -> Tensor:
        """Votes ``[B, I, J, A, *S']`` of the input capsules ``[B, I, A_in, *S]``."""
        if capsules.ndim != self.spatial_dims + 3:
            raise InvalidParameter(
                f"capsules have shape {tuple(capsules.shape)}: [B, I, A, *S] with "
                f"{self.spatial_dims} spatial axes is needed"
            )
        maps = self._convolve(channels_last(capsules.flatten(0, 1)))
        maps = torch.unflatten(maps, 1, (self.out_types, self.out_atoms))
        return torch.unflatten(maps, 0, capsules.shape[:2])

    def forward(self, capsules: Tensor) -> Tensor:
        """``[B, I, A_in, *S]`` -> ``[B, J, A, *S']``."""
        if self.recompute_votes and torch.is_grad_enabled():
            result: Tensor = checkpoint(self._routed, capsules, use_reentrant=False)
            return result
        return self._routed(capsules)

    def _routed(self, capsules: Tensor) -> Tensor:
        return route(self.votes(capsules), self.bias, self.routing)

    def _convolve(self, maps: Tensor) -> Tensor:
        result: Tensor = self.conv(maps)
        return result


class ConvCapsule(_CapsuleLayer):
    """Convolutional capsule layer (LaLonde & Bagci 2018, section 2.1; Bass et al. 2019).

    One convolution, shared by all input types, casts the votes; its output channels are ordered
    type first, then atom. As the kernel does not depend on the input type, any number of them can
    be fed; `in_types` only sets the scale of the initial weights.

    Args:
        spatial_dims: 2 or 3.
        in_types: input capsule types I.
        in_atoms: atoms of an input capsule.
        out_types: output capsule types J.
        out_atoms: atoms A of an output capsule.
        kernel_size: edge of the kernel.
        stride: 1 keeps the size, 2 halves it (rounded up).
        routing: iterations and competition.
        vote_bias: a bias in the convolution (CapsPix2Pix).
        routing_bias: a bias ``[J, A]`` before each squash, initially 0.1 (SegCaps).
        padding: ``"symmetric"`` pads ``(kernel_size - 1) // 2`` on both sides, as PyTorch code
            does; ``"tensorflow"`` is TensorFlow's *same*: for stride 2 on an even size it pads one
            less before than after.

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
    ) -> None:
        super().__init__(spatial_dims, out_types, out_atoms, routing or Routing(), routing_bias)
        if padding not in get_args(Padding):
            raise InvalidParameter(f"padding={padding!r}: must be one of {get_args(Padding)}")
        self.padding, self.kernel_size, self.stride = padding, kernel_size, stride
        self.conv = _CONV[spatial_dims](
            in_atoms,
            out_types * out_atoms,
            kernel_size,
            stride,
            padding=(kernel_size - 1) // 2 if padding == "symmetric" else 0,
            bias=vote_bias,
        )
        initialize_votes(self.conv, in_types, out_types, out_atoms, self.routing)

    def _convolve(self, maps: Tensor) -> Tensor:
        if self.padding == "tensorflow":
            maps = pad_same(maps, self.kernel_size, self.stride)
        return super()._convolve(maps)


class DeconvCapsule(_CapsuleLayer):
    """Transposed convolutional capsule layer: doubles the size (kernel 4, stride 2, padding 1).

    LaLonde & Bagci 2018, section 2.1. Arguments and shapes as for `ConvCapsule`.

    >>> layer = DeconvCapsule(2, in_types=3, in_atoms=8, out_types=2, out_atoms=4)
    >>> layer(torch.rand(1, 3, 8, 16, 16)).shape
    torch.Size([1, 2, 4, 32, 32])
    """

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
    ) -> None:
        super().__init__(spatial_dims, out_types, out_atoms, routing or Routing(), routing_bias)
        self.stride = 2
        self.conv = _DECONV[spatial_dims](
            in_atoms, out_types * out_atoms, kernel_size=4, stride=2, padding=1, bias=vote_bias
        )
        initialize_votes(self.conv, in_types, out_types, out_atoms, self.routing)


def recompute_votes(network: nn.Module, enabled: bool = True) -> None:
    """Train with less memory: no capsule layer of `network` keeps its votes for the backward pass.

    They are most of what training keeps; convolving again costs about a forward pass a step.
    """
    for layer in network.modules():
        if isinstance(layer, _CapsuleLayer):
            layer.recompute_votes = enabled


def channels_last(maps: Tensor) -> Tensor:
    """``[N, C, *S]`` with the channels of a position side by side: convolutions and routing run
    up to three times faster so, and each layer leaves its capsules so for the next.
    """
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return maps.contiguous(memory_format=formats[maps.ndim])


def join_types(*capsules: Tensor) -> Tensor:
    """Concatenate capsules ``[B, J, A, *S]`` along J; channels-last types stay channels last."""
    if capsules[0].is_contiguous():
        return torch.cat(capsules, 1)
    return torch.cat([c.movedim(2, -1) for c in capsules], 1).movedim(-1, 2)


def pad_same(maps: Tensor, kernel_size: int, stride: int) -> Tensor:
    """Zero-pad ``[N, C, *S]`` as TensorFlow's ``same`` does: the odd pixel goes after."""
    pads: list[int] = []
    for size in reversed(maps.shape[2:]):
        total = max(kernel_size - (size % stride or stride), 0)
        pads += [total // 2, total - total // 2]
    return F.pad(maps, pads)


def initialize(conv: nn.Module) -> None:
    """He-normal weights (He et al. 2015), zero bias."""
    weight, _ = _parameters(conv)
    _fill(conv, std=(2 / (weight.shape[1] * weight[0, 0].numel())) ** 0.5)


def initialize_votes(
    conv: nn.Module, in_types: int, out_types: int, out_atoms: int, routing: Routing
) -> None:
    """Weights such that capsule lengths neither vanish nor saturate through a deep network.

    Squash maps a short length n to n²: where a layer multiplies lengths by less than 2, they
    collapse to zero within a few layers (v = gv²g / (1 + g²v²) has no fixed point but zero), so a
    zero label map would leave a network without gradient. With a gain of 2.2 the fixed point is
    0.71; a gain of 3 (0.87) learned more slowly, its squashes being half saturated. Votes of
    different input types are taken as independent: their equally weighted sum has
    `sqrt(in_types)` times a vote's length under input competition divided by `in_types`, under
    output competition by `out_types`.
    """
    taps = _parameters(conv)[1]
    share = in_types if routing.competition == "inputs" else out_types
    _fill(conv, std=VOTE_GAIN * share / (in_types * taps * out_atoms) ** 0.5)


def _parameters(conv: nn.Module) -> tuple[Tensor, float]:
    """The weight, and how many of the kernel's taps reach one output position."""
    weight, stride = conv.weight, conv.stride
    if not isinstance(weight, Tensor) or not isinstance(stride, tuple):
        raise TypeError(f"a convolution is needed, not {type(conv).__name__}")
    taps = float(weight[0, 0].numel())
    if isinstance(conv, (nn.ConvTranspose2d, nn.ConvTranspose3d)):
        for step in stride:
            taps /= int(step)
    return weight, taps


def _fill(conv: nn.Module, std: float) -> None:
    weight, _ = _parameters(conv)
    nn.init.normal_(weight, std=std)
    if isinstance(conv.bias, Tensor):
        nn.init.zeros_(conv.bias)
