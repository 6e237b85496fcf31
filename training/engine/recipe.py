"""The base of every task's recipe: all that determines the trained weights."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from training.data.prepare import Preparation

#: Edge of a crop; every network here halves it three times.
Crop = Annotated[int, Field(ge=8, multiple_of=8)]


class Recipe(BaseModel):
    """All settings of a run: on one machine the same recipe gives the same weights.

    Attributes:
        data: a registered data set or a folder.
        epochs, steps: epochs, and optimizer steps in each.
        batch_size, crop: crops per step, and their edge in pixels (a multiple of 8).
        learning_rate: peak; linear warm-up over the first 5 % of the steps, then cosine decay.
        atoms: atoms of the first capsules.
        patience: epochs without a better score after which the run ends; 0 disables early stopping.
        keep: ``best`` keeps the weights of the epoch with the best score, ``last`` those of the
            last epoch; with `patience`, always the best.
        preparation: how a folder's images become samples; a registered data set has its own.
        start_from: a model whose weights initialize the network; None for random weights.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: str
    epochs: int
    steps: int
    batch_size: int
    crop: Crop
    learning_rate: float
    seed: int
    atoms: int = 16
    start_from: str | None = None
    patience: int = 0
    keep: Literal["best", "last"] = "best"
    preparation: Preparation | None = None
