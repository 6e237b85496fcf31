"""ONNX graphs that take any size: padding before the network, cropping after it.

Not part of the exported network: `torch.export` cannot prove that a size rounded up to the
divisor is a multiple of it, and therefore rejects the program.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import onnx

Mode = Literal["edge", "constant"]


def take_any_size(
    model: onnx.ModelProto, divisor: int, axes: tuple[str, ...], mode: Mode, *, twice: bool = False
) -> onnx.ModelProto:
    """The model with its first input padded to the divisor, and its output cropped back.

    Args:
        model: its first input and only output are maps ``[N, C, *S]``; it is changed in place.
        divisor: of each spatial axis.
        axes: names of the spatial axes.
        mode: pads the maps with their last values, or with zeros.
        twice: whether the last axis is padded further if none is longer than the divisor, see
            `caps_med.networks.padding.padded`.

    Returns:
        The same model, checked; names of input and output stay.
    """
    import onnx
    from onnx import helper

    graph, dims = model.graph, len(axes)
    outside, answer = graph.input[0].name, graph.output[0].name
    inside, whole = f"{outside}_padded", f"{answer}_padded"
    for node in graph.node:
        _rename(node.input, outside, inside)
        _rename(node.input, answer, whole)
        _rename(node.output, answer, whole)
    constants = {
        "size_divisor": [divisor],
        "size_nothing": [0] * (2 + dims + 2),
        "size_starts": [0] * dims,
        "size_axes": list(range(2, 2 + dims)),
        "size_once_more": [0] * (dims - 1) + [divisor * twice],
    }
    for name, values in constants.items():
        tensor = helper.make_tensor(name, onnx.TensorProto.INT64, [len(values)], values)
        graph.initializer.append(tensor)
    before = [
        helper.make_node("Shape", [outside], ["sizes"], start=2),
        helper.make_node("Neg", ["sizes"], ["sizes_negative"]),
        helper.make_node("Mod", ["sizes_negative", "size_divisor"], ["sizes_up"]),
        helper.make_node("ReduceMax", ["sizes"], ["size_largest"], keepdims=1),
        helper.make_node("LessOrEqual", ["size_largest", "size_divisor"], ["size_is_small"]),
        helper.make_node("Cast", ["size_is_small"], ["size_times"], to=onnx.TensorProto.INT64),
        helper.make_node("Mul", ["size_times", "size_once_more"], ["sizes_more"]),
        helper.make_node("Add", ["sizes_up", "sizes_more"], ["sizes_missing"]),
        helper.make_node("Concat", ["size_nothing", "sizes_missing"], ["size_pads"], axis=0),
        helper.make_node("Pad", [outside, "size_pads"], [inside], mode=mode),
    ]
    after = helper.make_node("Slice", [whole, "size_starts", "sizes", "size_axes"], [answer])
    nodes = [*before, *graph.node, after]
    del graph.node[:]
    graph.node.extend(nodes)
    for value in (graph.input[0], graph.output[0]):
        for axis, name in zip(value.type.tensor_type.shape.dim[2:], axes, strict=True):
            axis.dim_param = name
    onnx.checker.check_model(model)
    return model


def _rename(names: MutableSequence[str], old: str, new: str) -> None:
    for index, name in enumerate(names):
        if name == old:
            names[index] = new
