"""The number format in which a network is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from monai.inferers import SimpleInferer
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

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


@contextmanager
def computed_in(precision: Precision | None, device: torch.device) -> Iterator[None]:
    """`caps_med.inference.precision.computed_in` by the precision of a recipe; None is float32.

    On a processor, convolutions of volumes with fewer slices than their kernel are in float32 all
    the same: the gradients of their weights in bfloat16 are wrong, see `ShallowInFloat32`.
    """
    if precision != "bfloat16":
        yield
        return
    with inference_precision.computed_in("bf16", device):
        if device.type == "cpu":
            with ShallowInFloat32():
                yield
        else:
            yield


class ShallowInFloat32(TorchFunctionMode):
    """In this context convolutions of volumes with fewer slices than their kernel are in float32.

    With AVX-512 BF16, oneDNN (3.12, of PyTorch 2.13) reads and writes memory that is not its own
    when it computes the gradient of the weights of a 3-D convolution whose kernel is deeper than
    the volume: a gradient is then of any size, and the process may die.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - of any function
        """`func`, computed in float32 if it is such a convolution."""
        kwargs = kwargs or {}
        if func not in _CONVOLUTIONS:
            return func(*args, **kwargs)
        given = {**dict(zip(("input", "weight"), args, strict=False)), **kwargs}
        if given["input"].shape[-3] >= given["weight"].shape[-3]:
            return func(*args, **kwargs)
        with torch.autocast(given["input"].device.type, enabled=False):
            return func(*map(_float32, args), **{k: _float32(v) for k, v in kwargs.items()})


#: Of images ``[B, C, D, H, W]`` and weights ``[.., .., d, h, w]``.
_CONVOLUTIONS = (torch.conv3d, torch.conv_transpose3d)


def _float32(value: Any) -> Any:  # noqa: ANN401 - an argument
    return value.float() if isinstance(value, Tensor) else value


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
