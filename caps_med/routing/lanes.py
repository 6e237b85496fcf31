"""A number for each of sixteen positions, as a type that Numba compiles to vector instructions.

Kernels are written for one position and run for sixteen: `load` gives sixteen numbers, the
operators and functions here work on all of them alike, `store` writes them. Nothing is ever
summed across positions, so a position's result does not depend on its neighbours or its place.
A number takes the type of the lanes it is combined with. `turn_in` and `turn_out` change between
memory, where a position's atoms lie side by side, and lanes, where an atom's positions do.

Numba's cache on disk looks at the file of the kernels alone (`caps_med.routing.native`): who
changes this one touches that one too.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, overload, register_model

LANES = 16

#: Numba's and LLVM's types, values and builders, which carry no annotations.
Compiler = Any
Build = Callable[..., Compiler]

_intrinsic: Callable[[Build], Compiler] = intrinsic

_INT32 = ir.IntType(32)


class Lanes(types.Type):
    """The type of sixteen numbers of a dtype."""

    def __init__(self, dtype: Compiler) -> None:
        self.dtype = dtype
        super().__init__(name=f"Lanes({dtype})")


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Compiler, lanes: Lanes) -> None:
        number = manager.lookup(lanes.dtype).get_value_type()
        super().__init__(manager, lanes, ir.VectorType(number, LANES))


def larger(x: Compiler, y: Compiler) -> Compiler:
    """The larger of two numbers in each lane; NaN where `x` is. `_define` below compiles it."""
    raise NotImplementedError("lanes are a type of compiled code: Python has none")


def _define(function: Build, instruction: Build) -> None:
    """Let Numba apply a function of two arguments to lanes, or to lanes and a number."""

    @infer_global(function)
    class _Operator(AbstractTemplate):
        def generic(self, args: Compiler, kws: Compiler) -> Compiler:
            lanes = next((x for x in args if isinstance(x, Lanes)), None)
            if lanes is None or not all(x == lanes or isinstance(x, types.Number) for x in args):
                return None
            return signature(lanes, *args)

    def lower(context: Compiler, builder: Compiler, sig: Compiler, args: Compiler) -> Compiler:
        kinds = zip(args, sig.args, strict=True)
        lanes = sig.return_type
        return instruction(builder, *(_widen(context, builder, x, t, lanes) for x, t in kinds))

    for kinds in ((Lanes, Lanes), (Lanes, types.Number), (types.Number, Lanes)):
        lower_builtin(function, *kinds)(lower)


def _select_larger(builder: Compiler, x: Compiler, y: Compiler) -> Compiler:
    return builder.select(builder.fcmp_unordered(">", x, y), x, y)


_define(operator.add, lambda builder, x, y: builder.fadd(x, y))
_define(operator.sub, lambda builder, x, y: builder.fsub(x, y))
_define(operator.mul, lambda builder, x, y: builder.fmul(x, y))
_define(operator.truediv, lambda builder, x, y: builder.fdiv(x, y))
_define(larger, _select_larger)


def _widen(
    context: Compiler, builder: Compiler, value: Compiler, kind: Compiler, lanes: Lanes
) -> Compiler:
    """Lanes as they are; a number in every lane."""
    if isinstance(kind, Lanes):
        return value
    number = context.cast(builder, value, kind, lanes.dtype)
    empty = ir.Constant(ir.VectorType(number.type, LANES), ir.Undefined)
    first = builder.insert_element(empty, number, _INT32(0))
    return builder.shuffle_vector(first, empty, _indices([0] * LANES))


@_intrinsic
def load(typing: Compiler, array: Compiler, index: Compiler) -> Compiler:
    """``array[*index, :]`` of a contiguous array whose last axis is 16 long."""

    def build(context: Compiler, builder: Compiler, sig: Compiler, args: Compiler) -> Compiler:
        return _load(
            context, builder, sig.args[0], args[0], _place(context, builder, sig.args[0], *args)
        )

    return Lanes(array.dtype)(array, index), build


@_intrinsic
def store(typing: Compiler, array: Compiler, index: Compiler, lanes: Compiler) -> Compiler:
    """Write lanes, or a number in each, to ``array[*index, :]``."""

    def build(context: Compiler, builder: Compiler, sig: Compiler, args: Compiler) -> Compiler:
        kind = sig.args[0]
        place = _place(context, builder, kind, *args[:2])
        value = _widen(context, builder, args[2], sig.args[2], Lanes(kind.dtype))
        _store(context, builder, kind, args[0], place, value)
        return context.get_dummy_value()

    return types.none(array, index, lanes), build


@_intrinsic
def spread(typing: Compiler, number: Compiler) -> Compiler:
    """A float in every lane, which are of its type."""

    def build(context: Compiler, builder: Compiler, sig: Compiler, args: Compiler) -> Compiler:
        return _widen(context, builder, args[0], sig.args[0], sig.return_type)

    return Lanes(number)(number), build


@_intrinsic
def power_of_two(typing: Compiler, exponent: Compiler) -> Compiler:
    """``2**exponent`` of whole float32 from -126 to 127."""

    def build(context: Compiler, builder: Compiler, sig: Compiler, args: Compiler) -> Compiler:
        whole = ir.VectorType(_INT32, LANES)
        biased = builder.add(builder.fptosi(args[0], whole), whole([127] * LANES))
        return builder.bitcast(builder.shl(biased, whole([23] * LANES)), args[0].type)

    return exponent(exponent), build


def _unary(name: str) -> Compiler:
    """A function of LLVM's, lane by lane."""

    @_intrinsic
    def function(typing: Compiler, x: Compiler) -> Compiler:
        def build(context: Compiler, builder: Compiler, sig: Compiler, args: Compiler) -> Compiler:
            kind = args[0].type
            full_name = f"llvm.{name}.v{LANES}{kind.element.intrinsic_name}"
            called = ir.FunctionType(kind, [kind])
            return builder.call(
                cgutils.get_or_insert_function(builder.module, called, full_name), args
            )

        return x(x), build

    return function


sqrt, floor, _accurate_exp = _unary("sqrt"), _unary("floor"), _unary("exp")


def exp(x: Compiler) -> Compiler:
    """exp of lanes <= 0. `overload` below compiles it."""
    raise NotImplementedError("lanes are a type of compiled code: Python has none")


def _single_exp(x: Compiler) -> Compiler:
    """In float32 2**n times a polynomial, to 2e-7 relative (Moshier's Cephes, expf)."""
    x = larger(x, -87.0)
    n = floor(x * 1.44269504 + 0.5)
    x = x - n * 0.693359375 + n * 2.12194440e-4
    y = x * 1.9875691500e-4 + 1.3981999507e-3
    y = y * x + 8.3334519073e-3
    y = y * x + 4.1665795894e-2
    y = y * x + 1.6666665459e-1
    y = y * x + 5.0000001201e-1
    y = y * x * x + x + 1.0
    return y * power_of_two(n)


def _double_exp(x: Compiler) -> Compiler:
    return _accurate_exp(x)


def _compile_exp(x: Compiler) -> Build:
    return _single_exp if x.dtype == types.float32 else _double_exp


overload(exp, jit_options={"forceinline": True, "fastmath": {"contract"}})(_compile_exp)


@_intrinsic
def turn_in(
    typing: Compiler,
    source: Compiler,
    column: Compiler,
    rows: Compiler,
    stride: Compiler,
    target: Compiler,
    index: Compiler,
) -> Compiler:
    """Sixteen columns of sixteen rows of `source` as lanes, one column after the other.

    Row p starts at ``column + stride * rows[p]`` of the flat `source`; the first column's lanes
    go to ``target[*index]``. The sixteen rows after these are fetched into the cache meanwhile:
    there are too few in one piece for the processor to see what comes next.
    """

    def build(context: Compiler, builder: Compiler, sig: Compiler, args: Compiler) -> Compiler:
        ahead = builder.mul(args[3], args[3].type(LANES))
        vectors = []
        for start in _row_starts(context, builder, sig.args[2], *args[1:4]):
            vectors.append(_load(context, builder, sig.args[0], args[0], start))
            _prefetch(context, builder, sig.args[0], args[0], builder.add(start, ahead))
        first = _place(context, builder, sig.args[4], *args[4:6])
        for k, vector in enumerate(_transpose(builder, vectors)):
            place = builder.add(first, first.type(k * LANES))
            _store(context, builder, sig.args[4], args[4], place, vector)
        return context.get_dummy_value()

    return types.none(source, types.intp, rows, types.intp, target, index), build


@_intrinsic
def turn_out(
    typing: Compiler,
    source: Compiler,
    index: Compiler,
    target: Compiler,
    column: Compiler,
    rows: Compiler,
    stride: Compiler,
) -> Compiler:
    """The reverse of `turn_in`, from lanes in `source` to rows of `target`."""

    def build(context: Compiler, builder: Compiler, sig: Compiler, args: Compiler) -> Compiler:
        first = _place(context, builder, sig.args[0], *args[:2])
        places = (builder.add(first, first.type(k * LANES)) for k in range(LANES))
        vectors = [_load(context, builder, sig.args[0], args[0], place) for place in places]
        starts = _row_starts(context, builder, sig.args[4], *args[3:6])
        for start, vector in zip(starts, _transpose(builder, vectors), strict=True):
            _store(context, builder, sig.args[2], args[2], start, vector)
        return context.get_dummy_value()

    return types.none(source, index, target, types.intp, rows, types.intp), build


def _row_starts(
    context: Compiler,
    builder: Compiler,
    kind: Compiler,
    column: Compiler,
    rows: Compiler,
    stride: Compiler,
) -> list[Compiler]:
    starts = []
    for p in range(LANES):
        row = builder.load(_pointer(context, builder, kind, rows, ir.IntType(64)(p)))
        starts.append(builder.add(column, builder.mul(stride, row)))
    return starts


def _transpose(builder: Compiler, vectors: list[Compiler]) -> list[Compiler]:
    """Sixteen vectors of sixteen, rows to columns, by four rounds of zipping the halves."""
    half = LANES // 2
    zipped = [place for k in range(LANES) for place in (k, k + LANES)]
    low, high = _indices(zipped[:LANES]), _indices(zipped[LANES:])
    for _ in range(LANES.bit_length() - 1):
        pairs = zip(vectors[:half], vectors[half:], strict=True)
        vectors = [builder.shuffle_vector(*pair, part) for pair in pairs for part in (low, high)]
    return vectors


def _indices(places: list[int]) -> Compiler:
    return ir.VectorType(_INT32, len(places))(places)


def _place(
    context: Compiler, builder: Compiler, kind: Compiler, array: Compiler, index: Compiler
) -> Compiler:
    """Where ``array[*index]`` starts in a contiguous array, in numbers; no index wraps around."""
    shape = cgutils.unpack_tuple(builder, context.make_array(kind)(context, builder, array).shape)
    place = cgutils.unpack_tuple(builder, index)
    if len(place) + 1 != len(shape):
        raise ValueError(f"{len(place)} indices into an array of {len(shape)} axes")
    start = place[0]
    for length, step in zip(shape[1:-1], place[1:], strict=True):
        start = builder.add(builder.mul(start, length), step)
    return builder.mul(start, start.type(LANES))


def _pointer(
    context: Compiler, builder: Compiler, kind: Compiler, array: Compiler, place: Compiler
) -> Compiler:
    data = context.make_array(kind)(context, builder, array).data
    return builder.gep(data, [place], inbounds=True)


def _load(
    context: Compiler, builder: Compiler, kind: Compiler, array: Compiler, place: Compiler
) -> Compiler:
    lanes = context.get_value_type(Lanes(kind.dtype))
    pointer = _pointer(context, builder, kind, array, place)
    return builder.load(
        builder.bitcast(pointer, lanes.as_pointer()), align=kind.dtype.bitwidth // 8
    )


def _store(
    context: Compiler,
    builder: Compiler,
    kind: Compiler,
    array: Compiler,
    place: Compiler,
    lanes: Compiler,
) -> None:
    pointer = _pointer(context, builder, kind, array, place)
    target = builder.bitcast(pointer, lanes.type.as_pointer())
    builder.store(lanes, target, align=kind.dtype.bitwidth // 8)


def _prefetch(
    context: Compiler, builder: Compiler, kind: Compiler, array: Compiler, place: Compiler
) -> None:
    """Fetch what lies there for reading, into every cache; past the end it does nothing."""
    data = context.make_array(kind)(context, builder, array).data
    pointer = builder.bitcast(builder.gep(data, [place]), ir.IntType(8).as_pointer())
    called = ir.FunctionType(ir.VoidType(), [pointer.type, _INT32, _INT32, _INT32])
    fetch = cgutils.get_or_insert_function(builder.module, called, "llvm.prefetch.p0")
    builder.call(fetch, [pointer, _INT32(0), _INT32(3), _INT32(1)])
