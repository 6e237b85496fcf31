"""Sizes that no network can have are refused by name, whatever a file asks for."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest

from caps_med.errors import InvalidParameter
from caps_med.networks import build_network
from caps_med.networks.shapes import shapes_only
from caps_med.networks.single import SINGLE_NETWORKS

#: Sizes that matter for other values of other arguments alone.
OTHERWISE = {("CapsPix2Pix", "codes"): {"noise_source": "field"}}


def sizes() -> Iterator[tuple[str, str, object]]:
    """Network, argument, and its default: a number or several."""
    for name, network in SINGLE_NETWORKS.items():
        for argument, parameter in inspect.signature(network).parameters.items():
            default = parameter.default
            if isinstance(default, int | tuple) and not isinstance(default, bool):
                yield name, argument, default


SIZES = list(sizes())


@pytest.mark.parametrize(("name", "argument", "default"), SIZES)
def test_negative_sizes_are_refused(name: str, argument: str, default: object) -> None:
    value = [-1] * len(default) if isinstance(default, tuple) else -1
    others = OTHERWISE.get((name, argument), {})
    with shapes_only(), pytest.raises(InvalidParameter, match=argument):
        build_network(name, {**others, argument: value})


@pytest.mark.parametrize(("name", "argument", "default"), [size for size in SIZES if size[2] != 0])
def test_nothing_is_built_of_no_size(name: str, argument: str, default: object) -> None:
    value = [0] * len(default) if isinstance(default, tuple) else 0
    with shapes_only(), pytest.raises(InvalidParameter, match=argument):
        build_network(name, {argument: value})


@pytest.mark.parametrize("value", [-0.1, 1.0, float("nan")])
@pytest.mark.parametrize("name", ["CapsPix2Pix", "ConvNet"])
def test_a_share_is_at_least_0_and_below_1(name: str, value: float) -> None:
    with shapes_only(), pytest.raises(InvalidParameter, match=r"dropout=.*below 1"):
        build_network(name, {"dropout": value})


@pytest.mark.parametrize("value", ["2", 2.0, True, [2], object()])
@pytest.mark.parametrize("argument", ["in_channels", "out_channels"])
def test_a_number_is_not_given_as_something_else(argument: str, value: object) -> None:
    """What is not built reads the arguments of a card, too, such as its number of channels."""
    with pytest.raises(InvalidParameter, match=rf"SegCaps: argument '{argument}'"):
        build_network("SegCaps", {argument: value})


@pytest.mark.parametrize("value", [1, "yes", "true"])
def test_a_truth_value_is_not_given_as_something_else(value: object) -> None:
    with pytest.raises(InvalidParameter, match="SegCaps: argument 'capsules'"):
        build_network("SegCaps", {"capsules": value})


@pytest.mark.parametrize("several", [(28, 28), [28, 28]])
def test_several_numbers_are_a_list_or_a_tuple(several: object) -> None:
    with shapes_only():
        assert build_network("CapsNet", {"image_size": several}).image_size == (28, 28)
