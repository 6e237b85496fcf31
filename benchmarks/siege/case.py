"""What a case of the siege is, and where cases are registered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.siege.service import Siege


class Breach(Exception):
    """The service did what it must never do; the message says what."""


class Skip(Exception):
    """The case cannot be tried on this system; the message says why."""


Attack = Callable[["Siege"], str]


@dataclass(frozen=True)
class Case:
    """One case.

    Attributes:
        name: for ``--only``.
        tried: what the attacker does, in a few words.
        attack: tries it and returns the outcome in a few words; raises `Breach` or `Skip`.
        quick: whether the short siege includes it.
        seconds: after which everything that the case started is killed and the case has failed.
    """

    name: str
    tried: str
    attack: Attack
    quick: bool
    seconds: float


#: Every case by its name, in the order of registration.
CASES: dict[str, Case] = {}


def case(tried: str, *, quick: bool = False, seconds: float = 180.0) -> Callable[[Attack], Attack]:
    """Register a function as a case, under its name with hyphens.

    Args:
        tried, quick, seconds: see `Case`.
    """

    def register(attack: Attack) -> Attack:
        name = attack.__name__.replace("_", "-")
        if name in CASES:
            raise ValueError(f"two cases are named {name}")
        CASES[name] = Case(name, tried, attack, quick, seconds)
        return attack

    return register
