"""What the jobs of each key hold, against a limit."""

from __future__ import annotations

from collections import Counter


class Quota:
    """An amount that all owners share; each gets at most half of it.

    Args:
        size: bytes, or jobs.

    Attributes:
        share: what one owner gets at most.
    """

    def __init__(self, size: int) -> None:
        self.size, self.share = size, max(1, size // 2)
        self._taken: Counter[str | None] = Counter()

    def fits(self, owner: str | None, amount: int) -> bool:
        """Whether the owner may take as much."""
        free = self.size - self._taken.total()
        return amount <= min(free, self.share - self._taken[owner])

    def take(self, owner: str | None, amount: int) -> None:
        """Count what the owner holds from now on."""
        self._taken[owner] += amount

    def free(self, owner: str | None, amount: int) -> None:
        """Count what the owner holds no more."""
        self._taken[owner] -= amount
        if not self._taken[owner]:
            del self._taken[owner]
