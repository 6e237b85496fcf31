"""The base of every task's recipe: all that determines the trained weights."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeVar, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from caps_med.bundles import NetworkSpec
from caps_med.bundles.tasks import Task
from caps_med.errors import InvalidParameter
from caps_med.networks import CapsuleNetwork
from caps_med.wording import reason
from training.data.cases import Instances
from training.data.prepare import Preparation
from training.data.samples import Sample

#: Fewest samples that are validated after each epoch, and the share of its time this may take.
FEWEST_VALIDATED, VALIDATION_SHARE = 10, 0.1
#: Smaller crops show too little of an image.
MIN_CROP = 32
#: A learning rate that is found before training, see `training.engine.rate_finder`.
AUTO: Final = "auto"


def _checked_rate(rate: float | Literal["auto"]) -> float | Literal["auto"]:
    if isinstance(rate, float) and not 0 < rate < math.inf:
        raise ValueError("must be a number above 0, or auto")
    return rate


LearningRate = Annotated[float | Literal["auto"], AfterValidator(_checked_rate)]
Count = Annotated[int, Field(ge=1)]
#: Restarts add to it, and NumPy's legacy generators, which MONAI's transforms draw from, take less
#: than 2**32.
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]
#: A share that is never all.
Fraction = Annotated[float, Field(ge=0, lt=1)]
#: Edge of a crop; every network here halves it three times.
Crop = Annotated[int, Field(ge=8, multiple_of=8)]


class Recipe(BaseModel, ABC):
    """All settings of a run: on one machine the same recipe gives the same weights.

    Attributes:
        data: a registered data set or a folder.
        epochs, steps: epochs, and optimizer steps in each.
        batch_size: images or crops per step.
        learning_rate: its peak; ``auto`` until it is found (`training.engine.rate_finder`).
        schedule: ``cosine``: linear warm-up over the first 5 % of the steps, from 0 in the first
            one, which changes no weights, then cosine decay to a hundredth; ``exponential``: from
            the peak, times `decay` after each epoch.
        decay: of the exponential schedule.
        patience: epochs without a better score after which the run ends; 0 disables early stopping.
        keep: ``best`` keeps the weights of the epoch with the best score, of equal ones the last;
            ``last`` those of the last epoch; with `patience`, always the best.
        start_from: a model whose weights initialize the network; None for random weights.
        recompute_votes: whether votes are convolved again in the backward pass instead of kept:
            the same weights with less memory, in more time.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    data: str
    epochs: Count
    steps: Annotated[int, Field(ge=0)]
    batch_size: Count
    learning_rate: LearningRate
    seed: Seed
    start_from: str | None = None
    patience: Annotated[int, Field(ge=0)] = 0
    keep: Literal["best", "last"] = "best"
    recompute_votes: bool = False
    schedule: Literal["cosine", "exponential"] = "cosine"
    decay: Annotated[float, Field(gt=0, le=1)] = 0.9

    task: ClassVar[Task]
    #: What fields meant that the recipe on disk of an older version lacks, if not their default.
    before: ClassVar[Mapping[str, Any]] = {}
    #: Values that not every network takes, and the names of those that do.
    taken_by: ClassVar[Mapping[str, Collection[str]]] = {}

    @abstractmethod
    def network_spec(self, source: Any) -> NetworkSpec:  # noqa: ANN401 - the task's own source
        """Name in the registry and arguments of the network that is trained on `source`."""

    @abstractmethod
    def held_out_scores(
        self,
        network: CapsuleNetwork,
        source: Any,  # noqa: ANN401
    ) -> Mapping[str, float]:
        """Scores on the validation cases of `source`; ``score`` is the one that decides."""

    @classmethod
    def values_of(cls, spec: NetworkSpec) -> Mapping[str, Any]:
        """Values that give the network of a model to start from; by default none are needed."""
        return {}

    def card_values(self, network: CapsuleNetwork, source: Any) -> Mapping[str, Any]:  # noqa: ANN401
        """What the model card says beyond scores and provenance; by default what `source` says."""
        found: Mapping[str, Any] = source.card_values()
        return found

    def calibration(self, trained: Sequence[tuple[CapsuleNetwork, Any]]) -> Mapping[str, Any]:
        """What the model card says that is fitted on held-out data; by default nothing.

        Args:
            trained: the published network, or those of an ensemble, each with the data that it was
                trained on. Members have seen each other's held-out data.
        """
        return {}

    def completed(self, source: Any) -> Self:  # noqa: ANN401
        """The recipe with the values that follow from the data to train on."""
        return self

    @property
    def rate(self) -> float:
        """The learning rate as a number.

        Raises:
            InvalidParameter: it has not been found yet.
        """
        if isinstance(self.learning_rate, str):
            raise InvalidParameter(
                f"learning_rate={self.learning_rate}: it is found when training begins; give a "
                "number here"
            )
        return self.learning_rate

    @property
    def epochs_before_best(self) -> int:
        """The first epochs, whose weights are not kept however good they are."""
        return 0

    @property
    def casts_votes(self) -> bool:
        """Whether the network has votes that `recompute_votes` does not keep."""
        return False

    def smaller(self) -> Self | None:
        """The recipe for less memory; None if there is none.

        Votes are recomputed first, which leaves the result as it is; then the batch is halved.
        """
        if self.casts_votes and not self.recompute_votes:
            return self.model_copy(update={"recompute_votes": True})
        if self.batch_size == 1:
            return None
        return self.model_copy(update={"batch_size": self.batch_size // 2})


class CropRecipe(Recipe):
    """The base of recipes that train on crops of images with label maps.

    Attributes:
        crop: edge of the crops in pixels, a multiple of 8.
        preparation: how a folder's images become samples; a registered data set has its own.
        instances: what the label ids of `data` are learned as; see `training.data.cases.Cases`.
        validated: evenly spaced samples that are scored after each epoch; the model's card has the
            score of more. None leaves it to `affordable`.
    """

    crop: Crop
    preparation: Preparation | None = None
    instances: Instances | None = None
    validated: Annotated[int, Field(ge=1)] | None = None

    def affordable(self, samples: Sequence[Sample], most: int) -> int:
        """How many of the samples, at most `most`, have forward passes that cost a tenth of an
        epoch: three of them are a step's.
        """
        sizes = samples[0]["label"].shape[1:]
        crops = self.steps * self.batch_size * self.crop ** len(sizes)
        found = int(3 * VALIDATION_SHARE * crops / math.prod(sizes))
        return max(FEWEST_VALIDATED, min(most, found))

    def smaller(self) -> Self | None:
        """See `Recipe.smaller`; the crop shrinks when a batch is a single one."""
        if (smaller := super().smaller()) is not None:
            return smaller
        crop = self.crop // 2 // 16 * 16
        if crop < MIN_CROP:
            return None
        try:
            return type(self).model_validate({**self.model_dump(), "crop": crop})
        except ValidationError:  # a discriminator needs more
            return None


R = TypeVar("R", bound=Recipe)


def first_epochs(share: float, epochs: int) -> int:
    """How many epochs, the first ones, make up a share below 1: never all of them."""
    return int(share * epochs)


def validated(kind: type[R], values: Mapping[str, Any]) -> R:
    """A recipe of these values.

    Raises:
        InvalidParameter: an unknown name or a value out of range.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        said = reason(first)
        if first["type"] == "extra_forbidden":
            said = (
                f"there is no such value; the values are {', '.join(_siblings(kind, first['loc']))}"
            )
        raise InvalidParameter(f"recipe: {where}{': ' if where else ''}{said}") from error


def _siblings(kind: type[BaseModel], place: Sequence[int | str]) -> list[str]:
    """The fields that the model at a place within another one has."""
    for name in place[:-1]:
        annotation = kind.model_fields[str(name)].annotation
        kinds = (annotation, *get_args(annotation))
        kind = next(
            each for each in kinds if isinstance(each, type) and issubclass(each, BaseModel)
        )
    return list(kind.model_fields)


def check_taken(recipe: Recipe, asked: Mapping[str, Any], planned: Mapping[str, Any]) -> None:
    """Check that the network takes the values that a user has asked for.

    Those that are planned, or else the default, are none: a recipe file has all values.

    Raises:
        InvalidParameter: one would have no effect.
    """
    for name, networks in recipe.taken_by.items():
        usual = planned.get(name, type(recipe).model_fields[name].default)
        network = getattr(recipe, "network", "")
        if asked.get(name) not in (None, usual) and network not in networks:
            raise InvalidParameter(
                f"{name}={asked[name]}: has no effect with network={network}: leave it out, or "
                f"choose one of {', '.join(networks)}"
            )


def merged(values: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Recipe values of two mappings; the second takes precedence, nested ones are merged."""
    result = dict(values)
    for key, value in more.items():
        before = result.get(key)
        if isinstance(before, BaseModel):
            before = before.model_dump()
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            value = merged(before, value)
        result[key] = value
    return result
