"""One training on several processes and machines, as ``torchrun`` starts them, or Ray Train."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TypeVar, cast

import ignite.distributed as idist
import torch
from torch import nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import register_rendezvous_handler, rendezvous
from torch.nn.utils import parameters_to_vector, vector_to_parameters

Result = TypeVar("Result")

#: How long a process waits for another one. The first alone prepares the data, validates and
#: publishes, which can take longer than PyTorch's 10 (NCCL) and 30 minutes (Gloo).
PATIENCE = timedelta(hours=2)
#: How the processes find each other, see `_rendezvous`.
_MEETING = "restartable-env"


def launched() -> bool:
    """Whether this is one of several processes that ``torchrun`` started."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def grouped() -> bool:
    """Whether there is a process group already, as Ray Train makes one."""
    return bool(torch.distributed.is_initialized())


def restarted() -> bool:
    """Whether ``torchrun --max-restarts`` has started the processes again, as one had ended."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def in_parallel(work: Callable[[], Result]) -> Result:
    """Call `work` in this process, in a process group with the others of ``torchrun``, if any.

    A process group that exists already, such as Ray Train's, is used and kept.
    """
    if grouped() or not launched():
        idist.sync()
        return work()
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    idist.initialize(backend, init_method=f"{_MEETING}://", timeout=PATIENCE)
    try:
        result = work()
        idist.barrier()  # the first process publishes while the others are done
        return result
    finally:
        idist.finalize()


def _rendezvous(url: str, timeout: timedelta, **_: object) -> Iterator[tuple[Store, int, int]]:
    """PyTorch's ``env://``, with what the processes write apart from what those before them wrote.

    After a restart, the store of ``torchrun`` still has the addresses of the processes that ended.
    Only on one machine do all processes know how often they have been started.
    """
    store, rank, processes = next(rendezvous("env://", timeout=timeout))
    if os.environ.get("GROUP_WORLD_SIZE") == "1":
        store = PrefixStore(f"start-{os.environ['TORCHELASTIC_RESTART_COUNT']}", store)
    yield store, rank, processes


register_rendezvous_handler(_MEETING, _rendezvous)


def first() -> bool:
    """Whether this is the process that writes files and prints; also after the group has ended."""
    if grouped() or not launched():
        return int(idist.get_rank()) == 0
    return os.environ.get("RANK", "0") == "0"


def wrapped(network: nn.Module, all_used: bool = True) -> nn.Module:
    """A network whose gradients are those of all processes; itself where there is one.

    Args:
        network: to wrap.
        all_used: whether every step uses all of its weights.
    """
    if idist.get_world_size() == 1:
        return network
    return cast(nn.Module, idist.auto_model(network, find_unused_parameters=not all_used))


def average_gradients(network: nn.Module) -> None:
    """Replace the gradients by their mean over all processes, where `wrapped` cannot be used.

    That is where a training step calls other methods of the network than its forward pass. All
    processes have the same weights, and call this after each backward pass.
    """
    if (processes := idist.get_world_size()) == 1:
        return
    parameters = [p for p in network.parameters() if p.requires_grad]
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    mean = idist.all_reduce(parameters_to_vector(gradients)) / processes
    vector_to_parameters(mean, gradients)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient


def share(positions: int) -> int:
    """How many of the first `positions` of a batch are for this process, see `EpochSampler`."""
    return len(range(idist.get_rank(), positions, idist.get_world_size()))


def device() -> torch.device:
    """This process' GPU, or the CPU."""
    return torch.device(idist.device())
