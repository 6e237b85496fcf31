"""Compute only what an image's content changes: the answer to its background is known.

Volumes are largely background: a masked head, air clipped to zero. An image of one value per
channel is computed once. In a SegCaps, whose layers are local, each layer computes the positions
that the content reaches, and takes all others from the answer to an image of background alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from caps_med.convolutions.geometry import Window
from caps_med.convolutions.kept import Kernels, keep_kernels
from caps_med.convolutions.reach import Reach, Span, TiledReach, common, hull, whole_box
from caps_med.layers import ConvCapsule, DeconvCapsule, join_types
from caps_med.networks.base import SegmentationNetwork, class_lengths
from caps_med.networks.batching import SPLIT_ON
from caps_med.networks.ensemble import Ensemble
from caps_med.networks.segcaps import INPUTS, SegCaps

#: Positions along each spatial axis.
Box = tuple[Span, ...]
Call = Callable[[Tensor], Tensor]


def around_content(
    network: SegmentationNetwork, margin: int | None = None, alone: bool = False
) -> Call:
    """A function that returns the network's answer and computes the background only once.

    On devices other than CPUs, where a batch is computed as one, this is the network itself.

    Args:
        network: in evaluation mode.
        margin: for images whose background is exactly zero: positions more than this many pixels
            from the box around the content get the answer to an image of zeros. None for the
            network's own answer everywhere, which differs there by the distant content's influence.
        alone: whether images come one by one rather than as slices of a volume: the answer is then
            the network's own, because computing the background would take as long as the image.

    Returns:
        A function from images ``[B, C, *S]`` to probabilities ``[B, K, *S]``. It keeps the answer
        to the last background, so it should not outlive an image.
    """
    if next(network.parameters()).device.type not in SPLIT_ON:
        return network
    if isinstance(network, Ensemble):
        members = [around_content(member, margin, alone) for member in network.networks]
        return lambda images: torch.stack([member(images) for member in members]).mean(0)
    if isinstance(network, SegCaps) and _is_local(network) and not alone:
        return _EachByItself(_AroundContent(network, margin), keep=True)
    return _EachByItself(_OnceForConstants(network), keep=not alone)


def _is_local(network: SegCaps) -> bool:
    """Whether no layer looks at the image as a whole, and each says what it reaches."""
    return network.has_capsules and network.padding == "symmetric" and not network.normalize


class _EachByItself:
    """Computes a batch image by image; `keep` keeps the transformed kernels for the next ones."""

    def __init__(self, call: Call, keep: bool) -> None:
        self.call = call
        self._kernels: Kernels | None = {} if keep else None

    def __call__(self, images: Tensor) -> Tensor:
        with keep_kernels(self._kernels):
            return torch.cat([self.call(images[i : i + 1]) for i in range(len(images))])


class _OnceForConstants:
    """Images of one value per channel are computed once for each size and values."""

    def __init__(self, network: SegmentationNetwork) -> None:
        self.network = network
        self._known: tuple[object, Tensor] | None = None

    def __call__(self, image: Tensor) -> Tensor:
        value = corner(image)
        if content_box(image, value) is not None:
            answer: Tensor = self.network(image)
            return answer
        key = tuple(image.shape), tuple(value.flatten().tolist())
        if self._known is None or self._known[0] != key:
            self._known = key, self.network(image)
        return self._known[1]


class _AroundContent:
    """A SegCaps computed around the content of one image."""

    def __init__(self, network: SegCaps, margin: int | None) -> None:
        self.network, self.margin = network, margin
        self._known: tuple[object, _Background] | None = None

    def __call__(self, image: Tensor) -> Tensor:
        value = corner(image)
        content = content_box(image, value)
        whole = whole_box(image.shape[2:])
        if content == whole:
            answer: Tensor = self.network(image)
            return answer
        background = self._background(image, value)
        if content is None:
            return background.lengths
        margin = None if value.any() else self.margin
        boxes = boxes_of(self.network, [size for _, size in whole], content, margin)
        return self._answer(image, background, boxes)

    def _background(self, image: Tensor, value: Tensor) -> _Background:
        """The capsules of an image of background alone, kept from the last one."""
        key = tuple(image.shape), tuple(value.flatten().tolist())
        if self._known is None or self._known[0] != key:
            self._known = None  # before the next one needs as much memory
            capsules = self.network.capsules(value.expand_as(image))
            lengths = class_lengths(capsules.pop("seg_caps"))
            self._known = key, _Background(capsules, lengths)
        return self._known[1]

    def _answer(self, image: Tensor, background: _Background, boxes: Mapping[str, Box]) -> Tensor:
        # as a whole: of one channel it is rounded differently in parts, and it takes little time
        found = {"conv1": _Part(self.network.first(image), whole_box(image.shape[2:]))}
        for name, below in INPUTS.items():
            layer = _layer(self.network, name)
            read = _inputs_of(layer.reach, boxes[name], background.sizes(below[0]))
            parts = [found[one].cut(read, background.capsules[one]) for one in below]
            starts = tuple(start for start, _ in read)
            window = Window(starts, boxes[name], background.sizes(name))
            found[name] = _Part(layer(join_types(*parts), window), boxes[name])
        answer = background.lengths.clone()
        _within(answer, boxes["seg_caps"])[...] = class_lengths(found["seg_caps"].capsules)
        return answer


@dataclass(frozen=True)
class _Background:
    """A network's results for an image of background: capsules by layer, and the answer."""

    capsules: OrderedDict[str, Tensor]
    lengths: Tensor

    def sizes(self, name: str) -> tuple[int, ...]:
        """Spatial sizes of a layer; that of the lengths has no capsules here."""
        maps = self.capsules.get(name, self.lengths)
        return tuple(maps.shape[2 - self.lengths.ndim :])


@dataclass(frozen=True)
class _Part:
    """A layer's capsules ``[B, J, A, *S]`` within a box; around it they are the background's."""

    capsules: Tensor
    box: Box

    def cut(self, box: Box, background: Tensor) -> Tensor:
        """The capsules within another box of a layer with this background ``[B, J, A, *S]``."""
        shared = tuple(common(*spans) for spans in zip(self.box, box, strict=True))
        own = _within(self.capsules, shared, [start for start, _ in self.box])
        if shared == box:
            return own
        result = _within(background, box).clone()
        _within(result, shared, [start for start, _ in box])[...] = own
        return result


def corner(image: Tensor) -> Tensor:
    """The values ``[B, C, 1, ...]`` of the first position, which is assumed to be background."""
    return _within(image, [(0, 1)] * (image.ndim - 2))


def content_box(image: Tensor, background: Tensor) -> Box | None:
    """The smallest box around everything that differs from the background; None if nothing does."""
    content = (image != background).any(1)[0]
    spans = []
    for axis in range(content.ndim):
        places = content.movedim(axis, 0).flatten(1).any(1).nonzero()
        if not len(places):
            return None
        spans.append((int(places[0]), int(places[-1]) + 1))
    return tuple(spans)


def boxes_of(
    network: SegCaps, sizes: Sequence[int], content: Box, margin: int | None
) -> dict[str, Box]:
    """The box that must be computed in each layer, at that layer's resolution.

    Args:
        network: with symmetric padding.
        sizes: of the image.
        content: box around everything that differs from the background.
        margin: see `around_content`.
    """
    wanted: Sequence[Span | None] = [
        None if margin is None else (a - margin, b + margin) for a, b in content
    ]
    axes = [
        _spans_of(network, size, span, wanted[axis])
        for axis, (size, span) in enumerate(zip(sizes, content, strict=True))
    ]
    return {name: tuple(axis[name] for axis in axes) for name in INPUTS}


def _spans_of(network: SegCaps, size: int, content: Span, wanted: Span | None) -> dict[str, Span]:
    """The positions of each layer to compute along one axis of the image."""
    strides = {info.name: info.stride for info in network.layers}
    whole = {name: (0, size // stride) for name, stride in strides.items()}
    reached = {"conv1": common(_FIRST.touched(content), whole["conv1"])}
    for name, below in INPUTS.items():
        read = hull(*(reached[below[index]] for index in (0, -1)))
        reached[name] = common(_layer(network, name).reach.touched(read), whole[name])
    if wanted is None:
        return reached
    needed = {"seg_caps": common(wanted, whole["seg_caps"])}
    for name, below in reversed(list(INPUTS.items())):
        read = _layer(network, name).reach.read(needed[name])
        for one in below:
            needed[one] = common(hull(read, needed.get(one, read)), whole[one])
    boxes = {name: common(reached[name], needed[name]) for name in INPUTS}
    return {name: _layer(network, name).reach.aligned(box) for name, box in boxes.items()}


#: Of the convolution in front.
_FIRST = Reach(kernel_size=5, stride=1, padding=2)


def _layer(network: SegCaps, name: str) -> ConvCapsule | DeconvCapsule:
    layer = network.get_submodule(name)
    if not isinstance(layer, ConvCapsule | DeconvCapsule):
        raise TypeError(f"{name} is no convolutional capsule layer")
    return layer


def _inputs_of(reach: Reach | TiledReach, box: Box, sizes: Sequence[int]) -> Box:
    """The inputs that a box of outputs reads, starting where the layer's alignment allows."""
    spans = []
    for outputs, size in zip(box, sizes, strict=True):
        start, stop = common(reach.read(outputs), (0, size))
        spans.append((start - start % reach.alignment, stop))
    return tuple(spans)


def _within(maps: Tensor, box: Sequence[Span], offset: Sequence[int] | None = None) -> Tensor:
    """The box in the last axes of maps that start at `offset`, as a view."""
    first = maps.ndim - len(box)
    for axis, (start, stop) in enumerate(box):
        begin = start - (offset[axis] if offset else 0)
        maps = maps.narrow(first + axis, begin, stop - start)
    return maps
