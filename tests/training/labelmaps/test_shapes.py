"""Numbers of shapes, against cases worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from training.labelmaps.shapes import Shapes, statistics


def square(edge: int = 16, start: int = 4, stop: int = 12, label: int = 1) -> np.ndarray:
    found = np.zeros((edge, edge), np.uint8)
    found[start:stop, start:stop] = label
    return found


def test_a_square_by_hand() -> None:
    found = statistics(square(), (0, 1))
    assert found["label 1: share"] == 64 / 256
    assert found["label 1: components"] == 1
    assert found["label 1: edge"] == 28 / 64
    assert found["label 1: elongation"] == 1
    assert found["label 1: at the border"] == 0
    assert found["label 1: centre along axis 0"] == 0.5
    assert found["labels 0 and 1: contact"] == 1


def test_ends_are_counted_inside_the_picture_alone() -> None:
    picture = np.zeros((64, 64), np.uint8)
    picture[20:22, :] = 1
    assert statistics(picture, (0, 1))["label 1: ends"] == 0
    picture[20:22, 40:] = 0
    assert statistics(picture, (0, 1))["label 1: ends"] == 1
    picture[40:42, 10:50] = 1
    assert statistics(picture, (0, 1))["label 1: ends"] == 3


def test_a_square_fills_its_hull_and_a_corner_does_not() -> None:
    assert statistics(square(), (0, 1))["label 1: share of its convex hull"] == pytest.approx(1)
    corner = square()
    corner[8:, 8:] = 0
    found = statistics(corner, (0, 1))["label 1: share of its convex hull"]
    assert found == pytest.approx(48 / 56)


def test_a_line_is_long_thin_and_touches_the_border() -> None:
    line = np.zeros((16, 16), np.uint8)
    line[:, 5] = 1
    found = statistics(line, (0, 1))
    assert found["label 1: edge"] == 1
    assert found["label 1: elongation"] == pytest.approx(16, rel=0.05)
    assert found["label 1: at the border"] == 2 / 60
    assert found["label 0: components"] == 2


def test_contacts_are_counted_by_faces_in_three_dimensions_too() -> None:
    volume = np.zeros((4, 4, 4), np.uint8)
    volume[1:3], volume[3] = 2, 7
    found = statistics(volume, (0, 2, 7))
    assert found["labels 0 and 2: contact"] == found["labels 2 and 7: contact"] == 0.5
    assert found["labels 0 and 7: contact"] == 0


def test_ranges_widen_where_there_are_few_and_hold_what_is_always_so() -> None:
    maps = [square(stop=stop) for stop in (10, 11, 12, 13)]
    few, many = (Shapes.of(maps[::step]).ranges["label 1: share"] for step in (3, 1))
    assert few[0] < many[0]
    shapes = Shapes.of(maps)
    assert all(shapes.outside(one) == [] for one in maps)
    assert "label 1: present" in shapes.outside(np.zeros((16, 16), np.uint8))
    two = square()
    two[0, 0] = 1
    assert "label 1: components" in shapes.outside(two)


def test_classes_that_never_touched_must_not() -> None:
    apart = square(stop=7)
    apart[9:12, 9:12] = 2
    touching = square(stop=9)
    touching[9:12, 4:9] = 2
    shapes = Shapes.of([apart, apart], tolerance=100)
    assert shapes.outside(touching) == ["labels 1 and 2: contact"]


def test_specks_are_filled_with_what_surrounds_them() -> None:
    shapes = Shapes.of([square()])
    speckled = square()
    speckled[7, 7], speckled[1, 1] = 0, 1
    np.testing.assert_array_equal(shapes.without_specks(speckled), square())
