"""The models in memory, and the queues of work before them."""

from api.engine.calls import Apply, ModelCall, Segment, Synthesize
from api.engine.engine import Engine
from api.engine.queue import Busy

__all__ = ["Apply", "Busy", "Engine", "ModelCall", "Segment", "Synthesize"]
