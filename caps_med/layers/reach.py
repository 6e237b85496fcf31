"""Which outputs a convolution computes from which inputs, along one axis."""

from __future__ import annotations

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
        kernel_size, stride, padding: as of PyTorch's convolutions.
        transposed: whether it is a transposed convolution.
    """

    kernel_size: int
    stride: int
    padding: int
    transposed: bool = False

    def touched(self, inputs: Span) -> Span:
        """The outputs that depend on any of the `inputs`, borders not considered."""
        return self._scattered(inputs) if self.transposed else self._gathering(inputs)

    def read(self, outputs: Span) -> Span:
        """The inputs that any of the `outputs` depends on, borders not considered."""
        return self._gathering(outputs) if self.transposed else self._scattered(outputs)

    def _scattered(self, span: Span) -> Span:
        first = span[0] * self.stride - self.padding
        return first, (span[1] - 1) * self.stride - self.padding + self.kernel_size

    def _gathering(self, span: Span) -> Span:
        """The positions whose kernel meets the span."""
        first = -(-(span[0] + self.padding - self.kernel_size + 1) // self.stride)
        return first, (span[1] - 1 + self.padding) // self.stride + 1


def hull(first: Span, second: Span) -> Span:
    """The smallest span that holds both."""
    return min(first[0], second[0]), max(first[1], second[1])


def common(first: Span, second: Span) -> Span:
    """The positions in both; empty spans end where they start."""
    start = max(first[0], second[0])
    return start, max(start, min(first[1], second[1]))
