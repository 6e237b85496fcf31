"""The base of capsule layers whose votes are many times larger than their input and output."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from caps_med.routing.backends import active_backend, in_graph, is_transformed, use_backend


class VotingLayer(nn.Module):
    """A layer that casts votes and routes them to capsules."""

    #: Drop the votes after the forward pass and compute them again in the backward pass.
    recompute_votes: bool = False

    def forward(self, capsules: Tensor) -> Tensor:
        """``[B, I, A_in, *S]`` -> ``[B, J, A, *S']``."""
        # not under `torch.func`, whose `grad` refuses checkpoints
        if self.recompute_votes and torch.is_grad_enabled() and not is_transformed():
            backend = None if in_graph() else active_backend(capsules.device)
            result: Tensor = checkpoint(self._routed_by, backend, capsules, use_reentrant=False)
            return result
        return self._routed(capsules)

    def _routed_by(self, backend: str | None, capsules: Tensor) -> Tensor:
        """Route with a fixed backend: the backward pass may repeat it outside a `use_backend`."""
        with nullcontext() if backend is None else use_backend(backend):
            return self._routed(capsules)

    @abstractmethod
    def _routed(self, capsules: Tensor) -> Tensor:
        """The capsules to which the votes are routed."""


def recompute_votes(network: nn.Module, enabled: bool = True) -> None:
    """Train with less memory: no capsule layer of `network` keeps its votes for the backward pass.

    Votes make up most of the memory of training; convolving again costs about one forward pass per
    step. Derivatives by `torch.func` keep them nevertheless.
    """
    for layer in network.modules():
        if isinstance(layer, VotingLayer):
            layer.recompute_votes = enabled
