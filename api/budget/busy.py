"""A queue without room."""

from __future__ import annotations


class Busy(Exception):
    """A queue is full, or moves too slowly.

    Args:
        what: that the requests in it wait for.

    Attributes:
        waiting: requests in the queue.
        retry_after: seconds until there should be room.
    """

    def __init__(self, what: str, waiting: int, retry_after: int) -> None:
        super().__init__(f"{waiting} requests are waiting for {what}: try again in {retry_after} s")
        self.waiting, self.retry_after = waiting, retry_after
