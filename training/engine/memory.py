"""Out of memory: continue from the last checkpoint with a smaller batch, then a smaller crop."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TypeVar

import ignite.distributed as idist
import torch

from caps_med.errors import InvalidParameter, is_out_of_memory
from training.engine.recipe import Recipe
from training.engine.run_folder import RunFolder

R = TypeVar("R", bound=Recipe)
Result = TypeVar("Result")


def with_less_memory(
    recipe: R,
    folder: RunFolder,
    resume: bool,
    train: Callable[[R, bool], Result],
) -> Result:
    """Call ``train(recipe, resume)``, halving batch or crop each time memory runs out.

    The smaller recipe replaces the one in the run folder, so a later ``--resume`` uses it.

    Raises:
        torch.OutOfMemoryError, MemoryError: a single crop of the smallest size does not fit.
        InvalidParameter: memory ran out in one of several processes. The others wait for it in the
            middle of a step and cannot change their batches.
    """
    while True:
        try:
            return train(recipe, resume)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            smaller = recipe.smaller()
            if not is_out_of_memory(error) or smaller is None:
                raise
            changed = ", ".join(
                f"{name} {value} -> {getattr(smaller, name)}"
                for name, value in dict(recipe).items()
                if value != getattr(smaller, name)
            )
            if (processes := idist.get_world_size()) > 1:
                raise InvalidParameter(
                    f"out of memory in process {idist.get_rank()} of {processes}: delete "
                    f"{folder.path} and start again with {changed}"
                ) from error
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        print(f"out of memory: continuing with {changed}")
        recipe, resume = smaller, folder.checkpoint.exists()
        folder.write(recipe)
