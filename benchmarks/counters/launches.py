"""How many kernels a GPU launches for a pass of a network; counted without one, on shapes alone.

What a single image or a small batch waits for on a GPU are launches, not arithmetic.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn

from benchmarks.counters.networks import Operations
from caps_med.layers import kernels_channels_last
from caps_med.networks import SynthesisNetwork, build_network
from caps_med.routing import use_backend

#: Networks by name, as a GPU has them.
NETWORKS: Mapping[str, dict[str, Any]] = {"SegCaps": {}, "CapsPix2Pix": {}}
SIZE = 256
#: Operations on the description of a tensor, and of memory without values.
_NO_KERNELS = frozenset({
    "alias", "as_strided", "detach", "expand", "permute", "select", "slice", "split",
    "split_with_sizes", "squeeze", "transpose", "unbind", "unsqueeze", "view", "_unsafe_view",
    "_reshape_alias", "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty",
})  # fmt: skip
#: Of a convolution's arguments, its maps and its kernels.
_CONVOLUTIONS = {"convolution": (0, 1), "convolution_backward": (1, 2)}


def launch_counts() -> dict[str, int]:
    """Of the forward pass and of a step without its optimizer, one image, by name of the count."""
    found: dict[str, int] = {}
    for name, arguments in NETWORKS.items():
        with torch.device("meta"):
            network = build_network(name, arguments)
        kernels_channels_last(network)
        found |= {f"{name} {work}: launches": n for work, n in counted(network).items()}
    return found


def counted(network: nn.Module) -> dict[str, int]:
    """Launches by work, of a network on ``meta``."""
    inputs = [torch.empty(1, 1, SIZE, SIZE, device="meta")]
    if isinstance(network, SynthesisNetwork):
        inputs.append(torch.empty(1, network.noise_size, device="meta"))

    def forward() -> None:
        with torch.no_grad():
            network.eval()(*inputs)

    def step() -> None:
        network.train()(*inputs).mean().backward()

    return {"forward": _launches(forward), "training": _launches(step)}


def _launches(work: Callable[[], None]) -> int:
    counter = _Launches()
    with counter, _routing(counter):
        work()
    return counter.count


class _Launches(Operations):
    """Counts operations that launch a kernel, and kernels that cuDNN reorders before."""

    def __init__(self) -> None:
        super().__init__()
        self.count: int = 0

    def see(self, operation: Any, arguments: Sequence[Any], answer: Any) -> None:  # noqa: ANN401
        """See `Operations.see`."""
        name = operation._schema.name.removeprefix("aten::")
        self.count += name not in _NO_KERNELS
        if name in _CONVOLUTIONS:
            maps, kernels = (arguments[place] for place in _CONVOLUTIONS[name])
            self.count += _is_reordered(maps, kernels)


def _is_reordered(maps: Tensor, kernels: Tensor) -> bool:
    last = torch.channels_last
    return maps.is_contiguous(memory_format=last) != kernels.is_contiguous(memory_format=last)


@contextmanager
def _routing(counter: _Launches) -> Iterator[None]:
    """Routing by Triton, whose kernels are counted rather than run."""
    from caps_med.routing import triton_backend

    class Kernel:
        def __getitem__(self, grid: object) -> Callable[..., None]:
            def launch(*_: object, **__: object) -> None:
                counter.count += 1

            return launch

    with (
        patch.object(triton_backend, "_forward", Kernel()),
        patch.object(triton_backend, "_backward", Kernel()),
        patch.dict(os.environ, TRITON_INTERPRET="1"),  # for a device without Triton
        use_backend("triton"),
    ):
        yield
