"""The number format in which a network is trained."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Literal

import torch
from monai.inferers import SimpleInferer
from torch import Tensor, nn

from caps_med.inference import precision as inference_precision

#: As recipes name it. ``bfloat16``: convolutions in it; routing, the sums of normalization and
#: losses in float32.
Precision = Literal["float32", "bfloat16"]


def has_bfloat16(device: torch.device) -> bool:
    """Whether the device computes in bfloat16 faster than in float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_avx512_bf16_supported())


def chosen_precision(
    precision: Precision | None, device: torch.device, suits: bool = True
) -> Precision:
    """The precision that a recipe names; else bfloat16 where it suits and saves time.

    Args:
        precision: of the recipe; None leaves it to the device.
        device: on which is trained.
        suits: whether the network is known to learn as well in bfloat16.
    """
    if precision is not None:
        return precision
    return "bfloat16" if suits and has_bfloat16(device) else "float32"


def computed_in(
    precision: Precision | None, device: torch.device
) -> AbstractContextManager[object]:
    """`caps_med.inference.precision.computed_in` by the precision of a recipe; None is float32."""
    return inference_precision.computed_in("bf16" if precision == "bfloat16" else "fp32", device)


class Bfloat16Inferer(SimpleInferer):
    """The network in bfloat16, see `Precision`.

    What the network answers is float32, so that the loss is.
    """

    def __call__(self, inputs: Tensor, network: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - MONAI's own are untyped
        """The network's answer, a tensor or a tuple of them."""
        with computed_in("bfloat16", inputs.device):
            answer = super().__call__(inputs, network, *args, **kwargs)
        if isinstance(answer, Tensor):
            return answer.float()
        return tuple(part.float() for part in answer)
