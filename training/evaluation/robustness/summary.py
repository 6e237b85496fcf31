"""What ``robustness.json`` holds."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from training.evaluation.classification.evaluate import Difference
from training.evaluation.statistics import Estimate
from training.evaluation.summary import Summary


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Curve(_Section):
    """Accuracy of a model on pictures changed by one family.

    Attributes:
        name: of the family.
        unit: of the strengths.
        accuracy: at each strength.
        mean: of the accuracies.
    """

    name: str
    unit: str
    strengths: tuple[float, ...]
    accuracy: tuple[Estimate, ...]
    mean: Estimate


class AttackRates(_Section):
    """Share of attacked pictures, all of which were answered right, on which an attack succeeds.

    Attributes:
        name: of the attack; a targeted one succeeds only with the class it wants.
        source: the model that it was made for; empty for the attacked one itself.
        images: that it was tried on.
        rates: at each ε.
        mean: of the rates.
    """

    name: str
    source: str = ""
    images: int
    rates: tuple[Estimate, ...]
    mean: Estimate


class ModelRobustness(_Section):
    """One model.

    Attributes:
        accuracy: on the pictures as they are.
        zero_gradients: share of the pixels of rightly answered pictures whose gradient of the
            cross-entropy is exactly zero; None if no picture is answered right.
        gradient_size: median over these pictures of a gradient's mean absolute value.
    """

    model: str
    parameters: int
    accuracy: Estimate
    curves: tuple[Curve, ...]
    attacks: tuple[AttackRates, ...]
    zero_gradients: float | None
    gradient_size: float | None


class RobustnessSummary(Summary):
    """All results of ``caps-med evaluate --robust``.

    Attributes:
        epsilons: largest change of a pixel by the attacks, in units of the range 0 to 1.
        scores: one for each model.
        comparisons: of the first model with each other one, by the means of families and attacks.
    """

    epsilons: tuple[float, ...]
    scores: tuple[ModelRobustness, ...]
    comparisons: tuple[Difference, ...]
