"""What a network's forward pass and training step do: operations, copies, votes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode, conv_flop_count

from caps_med.networks import SynthesisNetwork, build_network
from caps_med.routing import numba_backend


class Counted(NamedTuple):
    """A network, and the size of its input ``[B, *S]``: small, so that counting takes a moment."""

    network: str
    arguments: dict[str, Any]
    size: tuple[int, ...]


_FIELD = {"atoms": 4, "label_channels": 3, "noise_source": "field"}
NETWORKS: Mapping[str, Counted] = {
    "SegCaps": Counted("SegCaps", {"atoms": 4, "out_channels": 3}, (1, 32, 32)),
    "SegCaps-3D": Counted("SegCaps", {"spatial_dims": 3, "atoms": 4}, (1, 16, 16, 16)),
    "ConvCaps": Counted("ConvCaps", {"out_channels": 3}, (1, 32, 32)),
    "UCaps": Counted("UCaps", {"spatial_dims": 3, "out_channels": 3}, (1, 16, 16, 16)),
    "CapsPix2Pix": Counted("CapsPix2Pix", {"atoms": 4, "label_channels": 3}, (1, 32, 32)),
    "CapsPix2Pix, noise field": Counted("CapsPix2Pix", _FIELD, (1, 32, 32)),
    "CapsNet": Counted("CapsNet", {"image_size": (20, 20), "decoder": False}, (1, 20, 20)),
    "CapsNet, batch": Counted("CapsNet", {"image_size": (20, 20), "decoder": False}, (8, 20, 20)),
    "MatrixCapsules": Counted("MatrixCapsules", {"image_size": (20, 20)}, (1, 20, 20)),
    "EfficientCapsNet": Counted(
        "EfficientCapsNet", {"image_size": (28, 28), "decoder": False}, (1, 28, 28)
    ),
}
#: Operations that move values and compute nothing.
_COPIES = ("aten.copy_", "aten.clone", "aten._to_copy", "aten.cat", "aten.constant_pad_nd")


class Operations(TorchDispatchMode, ABC):
    """Sees PyTorch's operations in a ``with`` block, in which each runs as usual."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    @abstractmethod
    def see(self, operation: Any, arguments: Sequence[Any], answer: Any) -> None:  # noqa: ANN401
        """Count an operation that has run."""

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - as PyTorch calls it
        types: Any,  # noqa: ANN401
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        answer = func(*args, **(kwargs or {}))
        self.see(func, args, answer)
        return answer


class _Counted(Operations):
    """Counts operations, and the bytes that copies write."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = {"operations": 0, "bytes copied": 0}

    def see(self, operation: Any, arguments: Sequence[Any], answer: Any) -> None:  # noqa: ANN401
        """See `Operations.see`."""
        self.counts["operations"] += 1
        if str(operation).startswith(_COPIES) and isinstance(answer, Tensor):
            self.counts["bytes copied"] += answer.nbytes


def network_counts(name: str) -> dict[str, int]:
    """The counts of one network, forward and training."""
    kind, arguments, (batch, *size) = NETWORKS[name]
    torch.manual_seed(0)
    network = build_network(kind, arguments)
    inputs = [torch.rand(batch, arguments.get("label_channels", 1), *size)]
    if isinstance(network, SynthesisNetwork):
        inputs.append(torch.randn(batch, network.noise_size))

    def forward() -> None:
        with torch.no_grad():
            network(*inputs)

    def step() -> None:
        network(*inputs).square().mean().backward()

    counts: dict[str, int] = {}
    for work, run in (("forward", forward), ("training", step)):
        network.train(work == "training")
        counts |= {f"{name} {work}: {what}": n for what, n in work_counts(run).items()}
    return counts


def work_counts(work: Callable[[], None]) -> dict[str, int]:
    """What some work with networks does."""
    work()  # what is made once
    operations = _Counted()
    flops = FlopCounterMode(
        display=False, custom_mapping={torch.ops.aten.mkldnn_convolution: _onednn_flops}
    )
    with _votes() as votes, flops, operations:
        work()
    return {**operations.counts, "flops": flops.get_total_flops(), **votes}


def _onednn_flops(
    maps: torch.Size, weight: torch.Size, *_: object, out_shape: torch.Size, **__: object
) -> int:
    """Of a convolution that is asked of oneDNN by name, which PyTorch does not count."""
    return conv_flop_count(list(maps), list(weight), list(out_shape))


@contextmanager
def _votes() -> Iterator[dict[str, int]]:
    """Counts votes that native kernels read, and how often kernels are launched."""
    counts = {"votes read": 0, "kernels": 0}
    launched = numba_backend._in_blocks

    def counted(flat: Any, *rest: Any) -> list[Any]:  # noqa: ANN401
        counts["votes read"] += flat.size
        counts["kernels"] += 1
        return launched(flat, *rest)

    with patch.object(numba_backend, "_in_blocks", counted):
        yield counts
