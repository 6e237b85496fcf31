"""The models in memory, and the queues of work before them."""

from api.budget import Busy, Cost
from api.engine import costs
from api.engine.calls import Apply, ModelCall, Segment, Synthesize
from api.engine.engine import Engine

__all__ = ["Apply", "Busy", "Cost", "Engine", "ModelCall", "Segment", "Synthesize", "costs"]
