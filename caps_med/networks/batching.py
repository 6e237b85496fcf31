"""Batches whose answers do not depend on one another, for tensors of any subclass."""

from __future__ import annotations

import functools
import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.overrides import has_torch_function_unary

from caps_med.networks.base import CapsuleNetwork
from caps_med.routing.backends import in_graph

Method = TypeVar("Method", bound=Callable[..., Any])

#: Device types on which a batch is taken one sample at a time.
SPLIT_ON = {"cpu"}


def sample_by_sample(method: Method) -> Method:
    """Check a network's inputs, and on a CPU compute the samples of a batch one at a time.

    Convolution libraries sum in a different order for a different batch size. Twelve layers of
    squash and routing amplify the rounding differences a thousandfold (observed: 1e-3 in an
    untrained generator's image), so an answer would depend on its neighbours. Computed one at a
    time, it does not, to the last bit. On a CPU this takes no more time and less memory, except in
    a training step, see `training.tasks.segmentation.SegmentationRecipe`. On a GPU, and while a
    graph is traced, the batch stays whole: answers are then equal up to rounding.

    A network in training that looks at whole batches (`CapsuleNetwork.whole_training_batches`)
    keeps the batch whole. Subclasses of tensors, such as MONAI's MetaTensor, are computed as plain
    tensors; the result has the class and the attributes of the first argument. An empty batch,
    which not every layer of PyTorch and MONAI accepts, gives an empty answer of the right shape.

    The method's arguments are tensors ``[B, ...]`` or None, named like those of the network's
    `check`; it returns a tensor, or a tuple or mapping of tensors.
    """
    names = tuple(inspect.signature(method).parameters)

    @functools.wraps(method)
    def alone(self: CapsuleNetwork, *inputs: Tensor | None, **named: Tensor | None) -> Any:  # noqa: ANN401
        self.check(*inputs, **named)
        inputs = (*inputs, *(named[name] for name in names if name in named))
        if in_graph():  # sizes may be symbols here, and another batch may follow
            return method(self, *inputs)
        tensors = [_plain(x) for x in inputs]
        samples = _samples(self, [x for x in tensors if x is not None])
        if samples is None:
            answer = method(self, *tensors)
        elif not samples:
            one = method(self, *(None if x is None else _with_zeros(x) for x in tensors))
            answer = _map(lambda part: part[:0], one)
        else:
            single = ([None if x is None else x[i : i + 1] for x in tensors] for i in samples)
            answer = _map(lambda *parts: torch.cat(parts), *(method(self, *one) for one in single))
        like = next(x for x in inputs if x is not None)
        return _map(lambda part: _of_the_class_of(like, part), answer)

    return alone  # type: ignore[return-value]  # called as the method is


def _samples(network: CapsuleNetwork, tensors: Sequence[Tensor]) -> range | None:
    """The samples to compute one at a time; None where the batch stays whole."""
    sizes = {len(x) if x.ndim else 1 for x in tensors}
    whole = network.training and network.whole_training_batches
    splits = sizes == {0} or tensors[0].device.type in SPLIT_ON
    if whole or len(sizes) != 1 or sizes == {1} or not splits:
        return None
    return range(len(tensors[0]))


def _with_zeros(batch: Tensor) -> Tensor:
    """A batch with one sample of zeros appended."""
    return torch.cat([batch, batch.new_zeros(1, *batch.shape[1:])])


def _plain(tensor: Tensor | None) -> Tensor | None:
    if tensor is None or not has_torch_function_unary(tensor):
        return tensor
    return tensor.as_subclass(Tensor)


def _of_the_class_of(like: Tensor, tensor: Tensor) -> Tensor:
    if not has_torch_function_unary(like):
        return tensor
    typed = tensor.as_subclass(type(like))
    for name, value in vars(like).items():  # lists and dicts of its own, as MONAI's operations give
        vars(typed)[name] = value.copy() if isinstance(value, dict | list) else value
    return typed


def _map(function: Callable[..., Tensor], *answers: Any) -> Any:  # noqa: ANN401
    """Apply `function` to the tensors at the same position in one or several answers."""
    first = answers[0]
    if isinstance(first, Mapping):
        return OrderedDict((key, function(*(a[key] for a in answers))) for key in first)
    if isinstance(first, tuple):
        return tuple(function(*parts) for parts in zip(*answers, strict=True))
    return function(*answers)
