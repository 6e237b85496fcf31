from __future__ import annotations

import pytest

from caps_med.errors import InputTooLarge, InvalidParameter
from caps_med.images import Limits
from caps_med.images.limits import VARIABLES


def test_the_bounds_themselves_are_allowed() -> None:
    limits = Limits(max_bytes=10, max_inflated_bytes=24, max_voxels=6)
    limits.check_file(10)
    limits.check_array((2, 3), 4)
    limits.check_decoded("an array", 30, header=6)


@pytest.mark.parametrize("name", ["max_bytes", "max_inflated_bytes", "max_voxels"])
def test_a_bound_below_one_is_refused(name: str) -> None:
    with pytest.raises(InvalidParameter, match=f"{name} must be at least 1, got 0"):
        Limits(**{name: 0})


def test_one_more_is_too_much() -> None:
    limits = Limits(max_bytes=10, max_inflated_bytes=24, max_voxels=6)
    with pytest.raises(InputTooLarge, match=r"more than 10 bytes .max_bytes."):
        limits.check_file(11)
    with pytest.raises(InputTooLarge, match=r"7 x 1 are 7 voxels, allowed are 6 .max_voxels."):
        limits.check_array((7, 1))
    with pytest.raises(InputTooLarge, match=r"30 bytes, allowed are 24 .max_inflated_bytes."):
        limits.check_array((2, 3), 5)


@pytest.mark.parametrize(("name", "variable"), VARIABLES.items())
def test_bounds_of_the_environment(
    name: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Limits.of_environment() == Limits()
    monkeypatch.setenv(variable, "7")
    assert Limits.of_environment() == Limits(**{name: 7})
    with pytest.raises(InputTooLarge, match=f"or allow more with {variable}"):
        if name == "max_bytes":
            Limits.of_environment().check_file(8)
        Limits.of_environment().check_array((2, 4))
    for text, message in (("many", "must be a whole number, got 'many'"), ("0", "at least 1")):
        monkeypatch.setenv(variable, text)
        with pytest.raises(InvalidParameter, match=message):
            Limits.of_environment()
