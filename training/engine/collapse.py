"""A network that answers nothing but background: seen early, and started again."""

from __future__ import annotations

from torch import Tensor

from caps_med.networks import predicted_classes

#: Share of the steps after which a network must have found something else than background.
DEADLINE = 0.2
#: Steps before the deadline in which answers are looked at.
WATCHED = 25
#: Added to the seed of a run that starts again.
NEXT_SEED = 1009


class CollapseWatch:
    """Whether a network finds any foreground in the training crops that have some.

    Rare classes make all background a good answer to begin with, and deep capsules, whose lengths
    vanish together, may never leave it.

    Args:
        steps: of the whole training.
    """

    def __init__(self, steps: int) -> None:
        self.deadline = max(1, round(DEADLINE * steps))
        self._present = self._found = False

    def collapsed(self, step: int, probabilities: Tensor, target: Tensor) -> bool:
        """Look at the answer of a step, counted from 1; True at the deadline if all was background.

        Args:
            probabilities: ``[B, K, *S]``.
            target: the same shape, one-hot; K = 1 is the foreground.
        """
        if self.deadline - WATCHED < step <= self.deadline and not self._found:
            self._present |= bool((predicted_classes(target) > 0).any())
            self._found |= bool((predicted_classes(probabilities.detach()) > 0).any())
        return step == self.deadline and self._present and not self._found
