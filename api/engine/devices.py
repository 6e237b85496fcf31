"""Where networks run: threads of the CPU, streams of a GPU."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import TypeVar

import torch

T = TypeVar("T")


def use_threads(count: int | None) -> None:
    """Run each pass on `count` CPU threads; None leaves torch's default."""
    if count is not None:
        torch.set_num_threads(count)


class Streams:
    """One CUDA stream for each network that runs at a time, so that they overlap; none on a CPU.

    Args:
        count: number of streams; with one, the default stream is used.
    """

    def __init__(self, count: int) -> None:
        self._free: queue.SimpleQueue[torch.cuda.Stream] = queue.SimpleQueue()
        self._many = count > 1 and torch.cuda.is_available()
        if self._many:
            for _ in range(count):
                self._free.put(torch.cuda.Stream())

    def on_one(self, work: Callable[[], T]) -> Callable[[], T]:
        """`work` on a stream of its own."""
        if not self._many:
            return work

        def streamed() -> T:
            stream = self._free.get()
            try:
                with torch.cuda.stream(stream):
                    done = work()
                stream.synchronize()
                return done
            finally:
                self._free.put(stream)

        return streamed


def batches_exactly(network: torch.nn.Module) -> bool:
    """Whether a sample's answer is the same to the last bit in a batch and alone.

    On a CPU our networks process the samples of a batch one by one. On a GPU the order in which
    cuDNN adds depends on the batch size.
    """
    return next(network.parameters()).device.type == "cpu"
