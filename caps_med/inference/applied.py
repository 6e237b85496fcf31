"""What all that applies a network to images has in common."""

from __future__ import annotations

from typing import Generic, TypeVar

from caps_med.bundles import ModelCard
from caps_med.images import DEFAULT_LIMITS, Limits
from caps_med.inference.provenance import AnswerProvenance
from caps_med.networks import CapsuleNetwork

N = TypeVar("N", bound=CapsuleNetwork)


class AppliedNetwork(Generic[N]):
    """A network, and what tells how it is applied to images.

    Args:
        network: in evaluation mode.
        card: labels and preprocessing of its training.
        provenance: of every answer.
        limits: bounds on an image, for networks with a spacing at that spacing.
    """

    def __init__(
        self,
        network: N,
        card: ModelCard,
        provenance: AnswerProvenance,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.network, self.card, self.provenance = network, card, provenance
        self.limits = limits
