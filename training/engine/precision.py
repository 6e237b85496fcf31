"""The number format in which a network is trained on a processor."""

from __future__ import annotations

from typing import Any, Literal

import torch
from monai.inferers import SimpleInferer
from torch import Tensor, nn

#: A GPU trains segmentation networks in mixed precision whatever the recipe says.
Precision = Literal["float32", "bfloat16"]


def has_bfloat16(device: torch.device) -> bool:
    """Whether the device computes in bfloat16 faster than in float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_avx512_bf16_supported())


class Bfloat16Inferer(SimpleInferer):
    """Convolutions in bfloat16; routing and the sums of normalization in float32.

    What the network answers is float32, so that the loss is.
    """

    def __call__(self, inputs: Tensor, network: nn.Module, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - MONAI's own are untyped
        """The network's answer, a tensor or a tuple of them."""
        with torch.autocast(inputs.device.type, torch.bfloat16):
            answer = super().__call__(inputs, network, *args, **kwargs)
        if isinstance(answer, Tensor):
            return answer.float()
        return tuple(part.float() for part in answer)
