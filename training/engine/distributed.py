"""One training on several processes and machines, as ``torchrun`` starts them."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar, cast

import ignite.distributed as idist
import torch
from torch import nn

Result = TypeVar("Result")


def launched() -> bool:
    """Whether this is one of several processes that ``torchrun`` started."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def in_parallel(work: Callable[[], Result]) -> Result:
    """Call `work` in this process, in a process group with the others of ``torchrun``, if any."""
    if not launched():
        return work()
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    results: list[Result] = []
    with idist.Parallel(backend=backend) as parallel:
        parallel.run(lambda _rank: results.append(work()))
    return results[0]


def first() -> bool:
    """Whether this is the process that writes files and prints."""
    return int(idist.get_rank()) == 0


def wrapped(network: nn.Module) -> nn.Module:
    """A network whose gradients are those of all processes; itself where there is one."""
    several = idist.get_world_size() > 1
    return cast(nn.Module, idist.auto_model(network)) if several else network


def device() -> torch.device:
    """This process' GPU, or the CPU."""
    return torch.device(idist.device())
