"""Solid objects of five classes as signed distances: animal, human, plane, truck, car.

The classes of smallNORB (LeCun et al. 2004). Each instance has proportions and a posture of its
own. x points forward, z upward.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor


@dataclass(frozen=True)
class Segment:
    """A line with a radius: a sphere where both ends are the same."""

    start: tuple[float, float, float]
    end: tuple[float, float, float]
    radius: float


@dataclass(frozen=True)
class Box:
    """A box along the axes with rounded edges; `half` are half its edges."""

    centre: tuple[float, float, float]
    half: tuple[float, float, float]
    rounding: float = 0.03


Part = Segment | Box


class Solid:
    """The union of parts, moved and scaled into the unit sphere."""

    def __init__(self, parts: list[Part]) -> None:
        corners = np.concatenate([_extent(part) for part in parts])
        self.centre = (corners.min(0) + corners.max(0)) / 2
        self.scale = float(np.linalg.norm(corners - self.centre, axis=1).max())
        self.parts = parts

    def distance(self, points: Tensor) -> Tensor:
        """Signed distance ``[N]`` of points ``[N, 3]``, negative inside."""
        placed = points * self.scale + points.new_tensor(self.centre)
        found = [_distance(part, placed) for part in self.parts]
        return torch.stack(found).amin(0) / self.scale


def _extent(part: Part) -> np.ndarray:
    if isinstance(part, Segment):
        ends = np.array([part.start, part.end])
        return np.concatenate([ends - part.radius, ends + part.radius])
    centre, half = np.array(part.centre), np.array(part.half)
    return np.stack([centre - half, centre + half])


def _distance(part: Part, points: Tensor) -> Tensor:
    if isinstance(part, Segment):
        start = points.new_tensor(part.start)
        along = points.new_tensor(part.end) - start
        length = along.square().sum().clamp_min(1e-12)
        share = ((points - start) @ along / length).clamp(0, 1)
        line: Tensor = (points - start - share[:, None] * along).norm(dim=1) - part.radius
        return line
    half = points.new_tensor(part.half) - part.rounding
    beyond = (points - points.new_tensor(part.centre)).abs() - half
    outside: Tensor = beyond.clamp_min(0).norm(dim=1)
    return outside + beyond.amax(1).clamp_max(0) - part.rounding


def animal(draw: Generator) -> list[Part]:
    """Four legs, body, neck, head and tail."""
    length, height = draw.uniform(0.7, 1.4), draw.uniform(0.4, 0.9)
    thick, leg = draw.uniform(0.15, 0.3), draw.uniform(0.05, 0.1)
    neck, raised = draw.uniform(0.15, 0.6), draw.uniform(0.2, 1.2)
    ends = length / 2
    parts: list[Part] = [Segment((-ends, 0, height), (ends, 0, height), thick)]
    for along in (-ends, ends):
        for side in (-1, 1):
            step = draw.uniform(-0.15, 0.15)
            hip = (along, side * thick * 0.7, height)
            parts.append(Segment(hip, (along + step, side * thick * 0.7, leg), leg))
    top = (ends + neck * np.cos(raised), 0.0, height + neck * np.sin(raised))
    parts.append(Segment((ends, 0, height), top, thick * 0.6))
    muzzle = draw.uniform(0.1, 0.3)
    parts.append(Segment(top, (top[0] + muzzle, 0, top[2] - 0.3 * muzzle), thick * 0.55))
    tail = draw.uniform(0.15, 0.5)
    parts.append(
        Segment((-ends, 0, height), (-ends - tail, 0, height + draw.uniform(-0.4, 0.4)), 0.05)
    )
    return parts


def human(draw: Generator) -> list[Part]:
    """Head, trunk, arms and legs in some posture."""
    tall, broad = draw.uniform(0.9, 1.1), draw.uniform(0.14, 0.22)
    limb = draw.uniform(0.06, 0.09)
    parts: list[Part] = [
        Segment((0, 0, 0.9 * tall), (0, 0, 1.35 * tall), broad),
        Segment((0, 0, 1.72 * tall), (0, 0, 1.75 * tall), draw.uniform(0.12, 0.17)),
    ]
    stride = draw.uniform(-0.4, 0.4)
    for side in (-1, 1):
        foot = (side * stride, side * (broad * 0.7 + draw.uniform(0, 0.12)), limb)
        parts.append(Segment((0, side * broad * 0.6, 0.85 * tall), foot, limb * 1.25))
        reach, lifted = draw.uniform(-0.5, 0.7), draw.uniform(0.6, 1.6)
        hand = (reach, side * (broad + draw.uniform(0.1, 0.4)), lifted * tall)
        parts.append(Segment((0, side * broad, 1.42 * tall), hand, limb))
    return parts


def plane(draw: Generator) -> list[Part]:
    """Fuselage, wings, tail, and engines or none."""
    length, span = draw.uniform(1.2, 1.8), draw.uniform(0.6, 1.1)
    body = draw.uniform(0.1, 0.2)
    wing, lift = draw.uniform(0.12, 0.25), draw.uniform(-0.5, 0.8) * body
    at = draw.uniform(-0.1, 0.25) * length
    ends = length / 2
    parts: list[Part] = [
        Segment((-ends, 0, 0), (ends, 0, 0), body),
        Box((at, 0, lift), (wing, span, 0.035)),
        Box((-ends, 0, draw.uniform(0, 0.4)), (0.1, span * draw.uniform(0.3, 0.5), 0.03)),
        Box((-ends, 0, 0.2), (draw.uniform(0.08, 0.16), 0.03, draw.uniform(0.2, 0.35))),
    ]
    if draw.random() < 0.6:
        for side in (-1, 1):
            where = side * span * draw.uniform(0.35, 0.6)
            parts.append(Segment((at, where, lift - 0.1), (at + 0.3, where, lift - 0.1), 0.08))
    return parts


def truck(draw: Generator) -> list[Part]:
    """Cab, load and wheels."""
    load, high = draw.uniform(0.5, 1.0), draw.uniform(0.25, 0.5)
    cab, tall = draw.uniform(0.2, 0.35), draw.uniform(0.25, 0.42)
    wide, wheel = draw.uniform(0.28, 0.4), draw.uniform(0.12, 0.18)
    floor = 1.6 * wheel
    parts: list[Part] = [
        Box((-load, 0, floor + high), (load, wide, high)),
        Box((cab + 0.05, 0, floor + tall), (cab, wide * 0.95, tall)),
        Box((-load / 2, 0, floor), (load, wide * 0.6, 0.06)),
    ]
    if draw.random() < 0.5:  # a bonnet
        nose = draw.uniform(0.1, 0.25)
        parts.append(Box((2 * cab + nose, 0, floor + 0.15), (nose, wide * 0.85, 0.15)))
    for along in (-1.6 * load, -1.1 * load, cab):
        parts += _wheels(along, wide, wheel)
    return parts


def car(draw: Generator) -> list[Part]:
    """Body, cabin and wheels."""
    length, wide = draw.uniform(0.75, 1.05), draw.uniform(0.32, 0.45)
    belt, wheel = draw.uniform(0.13, 0.22), draw.uniform(0.13, 0.18)
    cabin, roof = draw.uniform(0.3, 0.6) * length, draw.uniform(0.12, 0.22)
    at, floor = draw.uniform(-0.3, 0.1) * length, 1.3 * wheel
    parts: list[Part] = [
        Box((0, 0, floor + belt), (length, wide, belt), 0.1),
        Box((at, 0, floor + 2 * belt + roof * 0.8), (cabin, wide * 0.85, roof), 0.1),
    ]
    for along in (-0.65 * length, 0.65 * length):
        parts += _wheels(along, wide, wheel)
    return parts


def _wheels(along: float, wide: float, radius: float) -> list[Part]:
    return [
        Segment((along, side * wide * 0.75, radius), (along, side * wide * 0.8, radius), radius)
        for side in (-1, 1)
    ]


CLASSES: Mapping[str, Callable[[Generator], list[Part]]] = {
    "animal": animal, "human": human, "plane": plane, "truck": truck, "car": car,
}  # fmt: skip


def solid(name: str, instance: int) -> Solid:
    """One instance of a class."""
    draw = np.random.default_rng([list(CLASSES).index(name), instance])
    return Solid(CLASSES[name](draw))
