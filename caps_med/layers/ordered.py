"""Parameters of rank 4 and 5 that are no kernels of convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from torch import Tensor, nn


class Ordered(nn.Module):
    """A module whose own parameters and buffers stay in order in memory.

    ``module.to(memory_format=torch.channels_last)`` reorders every parameter of rank 4, and refuses
    one of rank 5, as PyTorch takes all for kernels; ``channels_last_3d`` the other way round. Here
    it sees the own ones as vectors; submodules are moved as usual.
    """

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        if recurse:
            for child in self.children():
                child._apply(fn)
        moved: Self = super()._apply(  # type: ignore[no-untyped-call]  # PyTorch's own
            lambda x: fn(x.flatten()).view(x.shape), False
        )
        return moved
