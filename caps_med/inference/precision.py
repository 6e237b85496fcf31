"""The number format in which a network computes an answer."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Literal, get_args

import torch

from caps_med.errors import InvalidParameter

#: float32, or bfloat16 in convolutions and float32 in routing.
Precision = Literal["fp32", "bf16"]

#: What an answer in bfloat16 says.
NOTE = "computed in bfloat16: about one label in 1000 differs from that in float32"


def known_precision(name: str) -> Precision:
    """The precision with this name.

    Raises:
        InvalidParameter: the name is unknown; the message lists the known ones.
    """
    for known in get_args(Precision):
        if name == known:
            precision: Precision = known
            return precision
    raise InvalidParameter(f"precision={name!r}: must be {' or '.join(get_args(Precision))}")


def computed_in(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """In this context networks on the device compute in this precision.

    Weights are converted once per context: leave it before changing them.
    """
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16")
