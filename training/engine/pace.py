"""How often a training looks at its own numbers."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

#: Steps between two looks at the loss. Reading a number from a GPU waits until all of its work is
#: done, so a look at every step would leave it idle in between.
STEPS_PER_LOOK: Mapping[str, int] = MappingProxyType({"cpu": 1, "cuda": 20})
