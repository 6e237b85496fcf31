"""Which outputs a convolution computes from which inputs, along one axis."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

#: Positions along one axis, from the first to behind the last.
Span = tuple[int, int]


@dataclass(frozen=True)
class Reach:
    """A convolution along one axis.

    >>> Reach(kernel_size=5, stride=2, padding=2).touched((10, 12))
    (4, 7)
    >>> Reach(kernel_size=5, stride=2, padding=2).read((4, 7))
    (6, 15)

    Attributes:
        kernel_size, stride, padding: as for PyTorch's convolutions.
        transposed: whether it is a transposed convolution.
    """

    kernel_size: int
    stride: int
    padding: int
    transposed: bool = False

    @property
    def alignment(self) -> int:
        """Inputs that start at a multiple of this have outputs at the layer's own positions."""
        return 1 if self.transposed else self.stride

    def aligned(self, outputs: Span) -> Span:
        """The outputs themselves: they can be computed without any before them."""
        return outputs

    def touched(self, inputs: Span) -> Span:
        """The outputs that depend on any of the `inputs`, ignoring borders."""
        return self._scattered(inputs) if self.transposed else self._gathering(inputs)

    def read(self, outputs: Span) -> Span:
        """The inputs on which any of the `outputs` depends, ignoring borders."""
        return self._gathering(outputs) if self.transposed else self._scattered(outputs)

    def _scattered(self, span: Span) -> Span:
        first = span[0] * self.stride - self.padding
        return first, (span[1] - 1) * self.stride - self.padding + self.kernel_size

    def _gathering(self, span: Span) -> Span:
        """The positions whose kernel overlaps the span."""
        first = -(-(span[0] + self.padding - self.kernel_size + 1) // self.stride)
        return first, (span[1] - 1 + self.padding) // self.stride + 1


@dataclass(frozen=True)
class TiledReach:
    """A convolution by tiles along one axis: each output is rounded with all inputs of its tile.

    >>> TiledReach(results=4, first=-2, inputs=8, step=4).touched((10, 12))
    (8, 16)
    >>> TiledReach(results=4, first=-2, inputs=8, step=4).read((9, 15))
    (6, 18)

    Attributes:
        results: results of a tile.
        first: the first input of the first tile.
        inputs: inputs of a tile.
        step: inputs from one tile's first to the next tile's.
    """

    results: int
    first: int
    inputs: int
    step: int

    def touched(self, inputs: Span) -> Span:
        """The outputs of all tiles that read any of the `inputs`, ignoring borders."""
        before = (inputs[0] - self.first - self.inputs) // self.step
        last = (inputs[1] - 1 - self.first) // self.step
        return (before + 1) * self.results, (last + 1) * self.results

    @property
    def alignment(self) -> int:
        """See `Reach`; whatever `read` returns is aligned."""
        return 1

    def aligned(self, outputs: Span) -> Span:
        """The outputs, extended to the start of their first tile."""
        return outputs[0] // self.results * self.results, outputs[1]

    def read(self, outputs: Span) -> Span:
        """The inputs of all tiles with any of the `outputs`, ignoring borders."""
        first, last = outputs[0] // self.results, (outputs[1] - 1) // self.results
        return first * self.step + self.first, last * self.step + self.first + self.inputs


def whole_box(sizes: Iterable[int]) -> tuple[Span, ...]:
    """All positions along each axis."""
    return tuple((0, size) for size in sizes)


def hull(first: Span, second: Span) -> Span:
    """The smallest span that contains both."""
    return min(first[0], second[0]), max(first[1], second[1])


def common(first: Span, second: Span) -> Span:
    """The positions in both; empty spans end where they start."""
    start = max(first[0], second[0])
    return start, max(start, min(first[1], second[1]))
