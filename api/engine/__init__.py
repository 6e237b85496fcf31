"""The models in memory, and the queues of work before them."""

from api.budget import Busy, Cost
from api.engine import costs
from api.engine.calls import Apply, Classify, ModelCall, Segment, Synthesize
from api.engine.engine import Engine

__all__ = [
    "Apply",
    "Busy",
    "Classify",
    "Cost",
    "Engine",
    "ModelCall",
    "Segment",
    "Synthesize",
    "costs",
]
