"""One training over several processes and machines, as ``torchrun`` starts them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import ignite.distributed as idist
import torch

Answer = TypeVar("Answer")


def launched() -> bool:
    """Whether this process is one of several that ``torchrun`` started."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def in_parallel(work: Callable[[], Answer]) -> Answer:
    """Run `work` in this process, joined with the others that ``torchrun`` started, if any."""
    if not launched():
        return work()
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    answers: list[Answer] = []
    with idist.Parallel(backend=backend) as parallel:
        parallel.run(lambda _rank: answers.append(work()))
    return answers[0]


def first() -> bool:
    """Whether this process writes the files and speaks to the user."""
    return int(idist.get_rank()) == 0


def device() -> torch.device:
    """This process' GPU, or the CPU."""
    return torch.device(idist.device())


def first_alone(work: Callable[[], Answer]) -> Answer:
    """The first process does `work` before the others do; for files that all then read."""
    if not first():
        idist.barrier()
    answer = work()
    if first():
        idist.barrier()
    return answer
