"""A request that is ready for the network, and the bytes that it and its result hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from fastapi import Response
from numpy.typing import NDArray

from api.engine import ModelCall
from caps_med.images import MedicalImage
from caps_med.inference import Model

T = TypeVar("T")


@dataclass(frozen=True)
class Work(Generic[T]):
    """One decoded and checked request.

    Attributes:
        operation: the last part of its path, as ``segment``.
        model: the model that answers it.
        source: the decoded upload.
        call: what the model is asked to do.
        forms: the forms that the answer can take, the default first.
        encode: the result in one of these forms; it must not hold on to `source`.
        then: what is left to do once the network is done, such as storing the result elsewhere;
            its own result is the one that is encoded.
    """

    operation: str
    model: Model
    source: MedicalImage
    call: ModelCall[T]
    forms: Sequence[str]
    encode: Callable[[Any, str], Response]
    then: Callable[[T], Awaitable[object]] | None = None

    async def completed(self, result: T) -> object:
        """What is encoded, of what the network has computed."""
        return result if self.then is None else await self.then(result)


def held_bytes(value: object) -> int:
    """Bytes of all arrays and files in an image, a result, or a collection, each counted once."""
    return sum({id(held): _size(held) for held in _held(value)}.values())


def _size(held: NDArray[Any] | bytes) -> int:
    return len(held) if isinstance(held, bytes) else held.nbytes


def _held(value: object) -> Iterator[NDArray[Any] | bytes]:
    if isinstance(value, (np.ndarray, bytes)):
        yield value
    elif isinstance(value, Mapping):
        yield from _of_all(value.values())
    elif isinstance(value, (list, tuple)):
        yield from _of_all(value)
    elif is_dataclass(value) and not isinstance(value, type):
        yield from _of_all(getattr(value, field.name) for field in fields(value))


def _of_all(values: Iterable[object]) -> Iterator[NDArray[Any] | bytes]:
    for value in values:
        yield from _held(value)
