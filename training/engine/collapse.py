"""A network that answers nothing but background: seen early, and started again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import ignite.distributed as idist
from ignite.engine import Engine, Events
from torch import Tensor

from caps_med.networks import predicted_classes
from training.engine import distributed

#: Share of the steps after which a network must have found something else than background.
DEADLINE = 0.2
#: Steps before the deadline in which answers are looked at.
WATCHED = 25
#: Steps to the deadline without which nothing can be said: shorter trainings are not watched.
MIN_STEPS = 100
#: How often a training starts again.
RESTARTS = 2

Result = TypeVar("Result")


class Collapsed(Exception):
    """The network answers nothing but background; the training should start again."""


class CollapseWatch:
    """Watch whether a network finds any foreground in the training crops that have some.

    Rare classes make all background a good answer to begin with, and deep capsules, whose lengths
    vanish together, may never leave it. Answers that are no numbers are another matter, which the
    loss tells (`training.engine.loop.LossNotFinite`).

    Args:
        steps: of the whole training.
        without_labels: the first of them, in which the network does not learn to segment.
    """

    def __init__(self, steps: int, without_labels: int = 0) -> None:
        watched = round(DEADLINE * (steps - without_labels))
        self.deadline = without_labels + watched
        self._watched = watched >= MIN_STEPS
        self._present = self._found = False

    def collapsed(self, step: int, probabilities: Tensor, target: Tensor) -> bool:
        """Look at the answer of a step, counted from 1; True at the deadline if all was background.

        Args:
            probabilities: ``[B, K, *S]``.
            target: the same shape, one-hot; K = 1 is the foreground.
        """
        if not self._watched:
            return False
        if self.deadline - WATCHED < step <= self.deadline and not self._found:
            self._present |= bool((predicted_classes(target) > 0).any())
            answer = probabilities.detach()
            self._found |= bool((predicted_classes(answer) > 0).any() or answer.isnan().any())
        return step == self.deadline and self._anywhere("_present") and not self._anywhere("_found")

    def attach(self, trainer: Engine) -> None:
        """Raise `Collapsed` out of a trainer at the deadline."""

        def look(engine: Engine) -> None:
            answer, (target, *_) = engine.state.output["pred"], engine.state.output["label"]
            probabilities = answer if isinstance(answer, Tensor) else answer[0]
            if self.collapsed(engine.state.iteration, probabilities, target):
                raise Collapsed

        trainer.add_event_handler(Events.ITERATION_COMPLETED, look)

    def _anywhere(self, seen: str) -> bool:
        """In any process of a distributed training."""
        return bool(idist.all_reduce(int(getattr(self, seen))) > 0)


def until_it_finds(train: Callable[[int], Result], restarts: int = 0) -> Result:
    """Call ``train(restarts)``, with one restart more each time that it collapses.

    Args:
        train: raises `Collapsed`, unless `restarts` is `RESTARTS`.
        restarts: how many there have been.
    """
    while True:
        try:
            return train(restarts)
        except Collapsed:
            restarts += 1
        if distributed.first():
            print(
                "the network predicts nothing but background after a fifth of the steps: starting "
                f"again with another seed and a lower learning rate ({restarts} of {RESTARTS})"
            )
