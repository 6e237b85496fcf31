"""Out of memory: a smaller batch, then a smaller crop, and on from the last checkpoint."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TypeVar

import torch
from pydantic import ValidationError

from training.engine.run_folder import Recipe, RunFolder

R = TypeVar("R", bound=Recipe)
Answer = TypeVar("Answer")

#: A smaller crop than this holds too little of an image.
SMALLEST_CROP = 32


def with_less_memory(
    recipe: R,
    folder: RunFolder,
    resume: bool,
    learn: Callable[[R, bool], Answer],
    say: Callable[[str], None] = print,
) -> Answer:
    """``learn(recipe, resume)``, with half the batch or crop each time the memory is not enough.

    A smaller recipe replaces the run's, so that a later ``--resume`` goes on with it.

    Raises:
        torch.OutOfMemoryError, MemoryError: not even one small crop fits.
    """
    while True:
        try:
            return learn(recipe, resume)
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            smaller = _smaller(recipe)
            if not _is_memory(error) or smaller is None:
                raise
            changed = ", ".join(
                f"{name} {getattr(recipe, name)} -> {getattr(smaller, name)}"
                for name in ("batch_size", "crop")
                if getattr(recipe, name) != getattr(smaller, name)
            )
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        say(f"out of memory: going on with {changed}")
        recipe, resume = smaller, folder.checkpoint.exists()
        folder.write(recipe)


def _is_memory(error: BaseException) -> bool:
    """PyTorch's CPU allocator raises a plain RuntimeError."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return "can't allocate memory" in str(error) or "out of memory" in str(error).lower()


def _smaller(recipe: R) -> R | None:
    if recipe.batch_size > 1:
        return recipe.model_copy(update={"batch_size": recipe.batch_size // 2})
    crop = recipe.crop // 2 // 16 * 16
    if crop < SMALLEST_CROP:
        return None
    try:
        return type(recipe).model_validate({**recipe.model_dump(), "crop": crop})
    except ValidationError:  # a discriminator needs more
        return None
