"""Where networks run: threads of the CPU, streams of a GPU."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import TypeVar

import torch

T = TypeVar("T")


def use_threads(count: int | None) -> None:
    """Have one network pass take `count` CPU threads; None leaves what torch chose."""
    if count is not None:
        torch.set_num_threads(count)


class Streams:
    """One CUDA stream a place, so that passes at several places overlap; nothing on a CPU.

    Args:
        count: streams; with one, the default stream serves.
    """

    def __init__(self, count: int) -> None:
        self._free: queue.SimpleQueue[torch.cuda.Stream] = queue.SimpleQueue()
        self._many = count > 1 and torch.cuda.is_available()
        if self._many:
            for _ in range(count):
                self._free.put(torch.cuda.Stream())

    def on_one(self, work: Callable[[], T]) -> Callable[[], T]:
        """`work`, to be done on a stream of its own."""
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

    Networks here take the samples of a batch one at a time on a CPU. On a GPU the library that
    convolves sums in another order for another batch size.
    """
    return next(network.parameters()).device.type == "cpu"
