"""A number for each of sixteen positions, as a type that Numba compiles to vector instructions.

Kernels are written for one position and run for sixteen: the operators and functions here work on
all sixteen numbers alike. Nothing is ever summed across positions, so a position's result does not
depend on its neighbours or its place. A number gets the type of the lanes it is combined with.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numba.extending
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import lower_builtin, models, overload, register_model

from caps_med.native import LANES

#: Numba's and LLVM's types, values and builders, which carry no annotations.
Untyped = Any
Build = Callable[..., Untyped]

#: Numba's decorator with a type.
intrinsic: Callable[[Build], Untyped] = numba.extending.intrinsic

INT32 = ir.IntType(32)


class Lanes(types.Type):
    """The type of sixteen numbers of a dtype."""

    def __init__(self, dtype: Untyped) -> None:
        self.dtype = dtype
        super().__init__(name=f"Lanes({dtype})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Untyped, lanes: Lanes) -> None:
        number = manager.lookup(lanes.dtype).get_value_type()
        super().__init__(manager, lanes, ir.VectorType(number, LANES))


def maximum(x: Untyped, y: Untyped) -> Untyped:
    """The larger of two numbers in each lane; NaN where `x` is. `_define` below compiles it."""
    raise NotImplementedError("lanes exist in compiled code only")


def _define(function: Build, instruction: Build) -> None:
    """Let Numba apply a function of two arguments to lanes, or to lanes and a number."""

    @infer_global(function)
    class _Operator(AbstractTemplate):
        def generic(self, args: Untyped, kws: Untyped) -> Untyped:
            lanes = next((x for x in args if isinstance(x, Lanes)), None)
            if lanes is None or not all(x == lanes or isinstance(x, types.Number) for x in args):
                return None
            return signature(lanes, *args)

    def lower(context: Untyped, builder: Untyped, sig: Untyped, args: Untyped) -> Untyped:
        kinds = zip(args, sig.args, strict=True)
        lanes = sig.return_type
        return instruction(builder, *(widen(context, builder, x, t, lanes) for x, t in kinds))

    for kinds in ((Lanes, Lanes), (Lanes, types.Number), (types.Number, Lanes)):
        lower_builtin(function, *kinds)(lower)


def _select_larger(builder: Untyped, x: Untyped, y: Untyped) -> Untyped:
    return builder.select(builder.fcmp_unordered(">", x, y), x, y)


_define(operator.add, lambda builder, x, y: builder.fadd(x, y))
_define(operator.sub, lambda builder, x, y: builder.fsub(x, y))
_define(operator.mul, lambda builder, x, y: builder.fmul(x, y))
_define(operator.truediv, lambda builder, x, y: builder.fdiv(x, y))
_define(maximum, _select_larger)


def widen(
    context: Untyped, builder: Untyped, value: Untyped, kind: Untyped, lanes: Lanes
) -> Untyped:
    """Lanes unchanged; a number in every lane."""
    if isinstance(kind, Lanes):
        return value
    number = context.cast(builder, value, kind, lanes.dtype)
    empty = ir.Constant(ir.VectorType(number.type, LANES), ir.Undefined)
    first = builder.insert_element(empty, number, INT32(0))
    return builder.shuffle_vector(first, empty, indices([0] * LANES))


@intrinsic
def spread(typing: Untyped, number: Untyped) -> Untyped:
    """Lanes of a float's type, with the float in each."""

    def build(context: Untyped, builder: Untyped, sig: Untyped, args: Untyped) -> Untyped:
        return widen(context, builder, args[0], sig.args[0], sig.return_type)

    return Lanes(number)(number), build


@intrinsic
def power_of_two(typing: Untyped, exponent: Untyped) -> Untyped:
    """``2**exponent`` for integral float32 from -126 to 127."""

    def build(context: Untyped, builder: Untyped, sig: Untyped, args: Untyped) -> Untyped:
        whole = ir.VectorType(INT32, LANES)
        biased = builder.add(builder.fptosi(args[0], whole), whole([127] * LANES))
        return builder.bitcast(builder.shl(biased, whole([23] * LANES)), args[0].type)

    return exponent(exponent), build


def _unary(name: str) -> Untyped:
    """An LLVM function, lane by lane."""

    @intrinsic
    def function(typing: Untyped, x: Untyped) -> Untyped:
        def build(context: Untyped, builder: Untyped, sig: Untyped, args: Untyped) -> Untyped:
            kind = args[0].type
            full_name = f"llvm.{name}.v{LANES}{kind.element.intrinsic_name}"
            called = ir.FunctionType(kind, [kind])
            return builder.call(
                cgutils.get_or_insert_function(builder.module, called, full_name), args
            )

        return x(x), build

    return function


sqrt, floor, _accurate_exp = _unary("sqrt"), _unary("floor"), _unary("exp")


def exp(x: Untyped) -> Untyped:
    """exp of lanes <= 0. `overload` below compiles it."""
    raise NotImplementedError("lanes exist in compiled code only")


def _single_exp(x: Untyped) -> Untyped:
    """In float32, 2**n times a polynomial, to a relative 2e-7 (Moshier's Cephes, expf)."""
    x = maximum(x, -87.0)
    n = floor(x * 1.44269504 + 0.5)
    x = x - n * 0.693359375 + n * 2.12194440e-4
    y = x * 1.9875691500e-4 + 1.3981999507e-3
    y = y * x + 8.3334519073e-3
    y = y * x + 4.1665795894e-2
    y = y * x + 1.6666665459e-1
    y = y * x + 5.0000001201e-1
    y = y * x * x + x + 1.0
    return y * power_of_two(n)


def _double_exp(x: Untyped) -> Untyped:
    return _accurate_exp(x)


def _compile_exp(x: Untyped) -> Build:
    return _single_exp if x.dtype == types.float32 else _double_exp


overload(exp, jit_options={"forceinline": True, "fastmath": {"contract"}})(_compile_exp)


def indices(places: list[int]) -> Untyped:
    """A constant vector of indices, for LLVM's ``shufflevector``."""
    return ir.VectorType(INT32, len(places))(places)
