"""A batch whose answers do not depend on one another."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from caps_med.networks.base import CapsuleNetwork

Method = TypeVar("Method", bound=Callable[..., Any])

#: Device types on which a batch is taken one sample at a time.
SPLIT_ON = {"cpu"}


def sample_by_sample(method: Method) -> Method:
    """Check a network's inputs, and on a CPU take the samples of a batch one at a time.

    Convolution libraries sum in another order for another batch size. Twelve layers of squash and
    routing amplify that rounding a thousandfold (observed: 1e-3 in an untrained generator's image),
    so an answer would depend on its neighbours. One at a time it does not, to the last bit, and on
    a CPU that costs no time and less memory. On a GPU, and while a graph is traced, the batch stays
    whole: there answers are equal up to rounding.

    The method's arguments are tensors ``[B, ...]`` or None; it returns a tensor, or a tuple or
    mapping of tensors.
    """

    @functools.wraps(method)
    def alone(self: CapsuleNetwork, *inputs: Tensor | None, **named: Tensor | None) -> Any:  # noqa: ANN401
        self.check(*inputs, *named.values())
        if torch.compiler.is_compiling():  # sizes may be symbols here
            return method(self, *inputs, **named)
        given = [x for x in (*inputs, *named.values()) if x is not None]
        sizes = {len(x) if x.ndim else 0 for x in given}
        if len(sizes) != 1 or sizes == {1} or given[0].device.type not in SPLIT_ON:
            return method(self, *inputs, **named)
        answers = [
            method(self, *(_one(x, i) for x in inputs), **{k: _one(x, i) for k, x in named.items()})
            for i in range(len(given[0]))
        ]
        return _joined(answers)

    return alone  # type: ignore[return-value]


def _one(tensor: Tensor | None, index: int) -> Tensor | None:
    return None if tensor is None else tensor[index : index + 1]


def _joined(answers: list[Any]) -> Any:  # noqa: ANN401
    first = answers[0]
    if isinstance(first, Mapping):
        return OrderedDict((key, torch.cat([a[key] for a in answers])) for key in first)
    if isinstance(first, tuple):
        return tuple(torch.cat(parts) for parts in zip(*answers, strict=True))
    return torch.cat(answers)
