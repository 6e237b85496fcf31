"""The models in memory, and the queues of work before them."""

from api.engine.engine import Engine
from api.engine.queue import Busy
from api.engine.tasks import Call, Segment, Synthesize, Task

__all__ = ["Busy", "Call", "Engine", "Segment", "Synthesize", "Task"]
