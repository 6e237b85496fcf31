"""What requests may cause, in bytes: estimated before the work, and refused if it does not fit."""

from api.budget.budget import Budget, Claim, NoRoom, current, pinned
from api.budget.busy import Busy
from api.budget.cost import Cost

__all__ = ["Budget", "Busy", "Claim", "Cost", "NoRoom", "current", "pinned"]
