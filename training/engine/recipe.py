"""The base of every task's recipe: all that determines the trained weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from caps_med.bundles import NetworkSpec
from caps_med.bundles.metadata import Task
from caps_med.networks import CapsuleNetwork
from training.data.prepare import Preparation
from training.data.samples import Source

#: Edge of a crop; every network here halves it three times.
Crop = Annotated[int, Field(ge=8, multiple_of=8)]


class Recipe(BaseModel, ABC):
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

    task: ClassVar[Task]

    @abstractmethod
    def network_spec(self, source: Source) -> NetworkSpec:
        """Name in the registry and arguments of the network that is trained on `source`."""

    @abstractmethod
    def held_out_scores(self, network: CapsuleNetwork, source: Source) -> Mapping[str, float]:
        """Scores on the validation cases of `source`; ``score`` is the one that decides."""
