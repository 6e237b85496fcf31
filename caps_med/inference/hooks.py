"""Forward hooks on a network that other threads may use at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


def of_this_thread(hook: Callable[..., None]) -> Callable[..., None]:
    """The hook, called only for computations of the thread that requests it now.

    A service runs one network for several requests: on several threads, or in turns, when a job
    lets others go first between two of its steps.
    """
    own = threading.get_ident()

    def called(*given: Any) -> None:  # noqa: ANN401 - of a forward hook, or of one before it
        if threading.get_ident() == own:
            hook(*given)

    return called
