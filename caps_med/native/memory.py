"""Lanes in memory: loaded and stored, as they are or transposed.

`load` and `store` take arrays whose last axis is the position. `load_16`, `store_16` and those for
fewer columns take votes and capsules as stored in memory, a position's numbers side by side.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils

from caps_med.native import LANES
from caps_med.native.lanes import INT32, Lanes, Untyped, indices, intrinsic, widen


@intrinsic
def load(typing: Untyped, array: Untyped, index: Untyped) -> Untyped:
    """``array[*index, :]`` of a contiguous array whose last axis is 16 long."""

    def build(context: Untyped, builder: Untyped, sig: Untyped, args: Untyped) -> Untyped:
        return _load(
            context, builder, sig.args[0], args[0], _place(context, builder, sig.args[0], *args)
        )

    return Lanes(array.dtype)(array, index), build


@intrinsic
def store(typing: Untyped, array: Untyped, index: Untyped, lanes: Untyped) -> Untyped:
    """Write lanes, or a number in each, to ``array[*index, :]``."""

    def build(context: Untyped, builder: Untyped, sig: Untyped, args: Untyped) -> Untyped:
        kind = sig.args[0]
        place = _place(context, builder, kind, *args[:2])
        value = widen(context, builder, args[2], sig.args[2], Lanes(kind.dtype))
        _store(context, builder, kind, args[0], place, value)
        return context.get_dummy_value()

    return types.none(array, index, lanes), build


@intrinsic
def load_at(typing: Untyped, array: Untyped, place: Untyped) -> Untyped:
    """Sixteen numbers of a flat array from `place` on."""

    def build(context: Untyped, builder: Untyped, sig: Untyped, args: Untyped) -> Untyped:
        return _load(context, builder, sig.args[0], *args)

    return Lanes(array.dtype)(array, types.intp), build


@intrinsic
def store_at(typing: Untyped, array: Untyped, place: Untyped, lanes: Untyped) -> Untyped:
    """Write lanes, or a number in each, to a flat array from `place` on."""

    def build(context: Untyped, builder: Untyped, sig: Untyped, args: Untyped) -> Untyped:
        kind = sig.args[0]
        value = widen(context, builder, args[2], sig.args[2], Lanes(kind.dtype))
        _store(context, builder, kind, args[0], args[1], value)
        return context.get_dummy_value()

    return types.none(array, types.intp, lanes), build


@intrinsic
def prefetch_for_store(typing: Untyped, array: Untyped, place: Untyped) -> Untyped:
    """Fetch the cache line of a place of a flat array that will be written."""

    def build(context: Untyped, builder: Untyped, sig: Untyped, args: Untyped) -> Untyped:
        prefetch(builder, _data(context, builder, sig.args[0], args[0]), args[1], for_store=True)
        return context.get_dummy_value()

    return types.none(array, types.intp), build


def _transposed_loader(width: int) -> Untyped:
    """See `TRANSPOSED`."""

    @intrinsic
    def load_transposed(
        typing: Untyped,
        source: Untyped,
        column: Untyped,
        rows: Untyped,
        stride: Untyped,
        target: Untyped,
        index: Untyped,
    ) -> Untyped:
        def build(context: Untyped, builder: Untyped, sig: Untyped, args: Untyped) -> Untyped:
            data = _data(context, builder, sig.args[0], args[0])
            ahead = builder.mul(args[3], args[3].type(LANES))
            vectors = []
            for start in _row_starts(context, builder, sig.args[2], *args[1:4]):
                vectors.append(_load(context, builder, sig.args[0], args[0], start, width))
                prefetch(builder, data, builder.add(start, ahead))
            first = _place(context, builder, sig.args[4], *args[4:6])
            for k, vector in enumerate(_zipped(builder, vectors, LANES)):
                place = builder.add(first, first.type(k * LANES))
                _store(context, builder, sig.args[4], args[4], place, vector)
            return context.get_dummy_value()

        return types.none(source, types.intp, rows, types.intp, target, index), build

    return load_transposed


def _transposed_storer(width: int) -> Untyped:
    """See `TRANSPOSED`."""

    @intrinsic
    def store_transposed(
        typing: Untyped,
        source: Untyped,
        index: Untyped,
        target: Untyped,
        column: Untyped,
        rows: Untyped,
        stride: Untyped,
    ) -> Untyped:
        def build(context: Untyped, builder: Untyped, sig: Untyped, args: Untyped) -> Untyped:
            first = _place(context, builder, sig.args[0], *args[:2])
            places = (builder.add(first, first.type(k * LANES)) for k in range(width))
            vectors = [_load(context, builder, sig.args[0], args[0], place) for place in places]
            pieces = _split(builder, _zipped(builder, vectors, width), width)
            data = _data(context, builder, sig.args[2], args[2])
            ahead = builder.mul(args[5], args[5].type(LANES))
            starts = _row_starts(context, builder, sig.args[4], *args[3:6])
            for start, piece in zip(starts, pieces, strict=True):
                prefetch(builder, data, builder.add(start, ahead), for_store=True)
                _store(context, builder, sig.args[2], args[2], start, piece)
            return context.get_dummy_value()

        return types.none(source, index, target, types.intp, rows, types.intp), build

    return store_transposed


#: ``load_transposed(source, column, rows, stride, target, index)`` takes so many columns of sixteen
#: rows of `source` as lanes, one column after the other. Row p starts at
#: ``column + stride * rows[p]`` of the flat `source`; the first column's lanes go to
#: ``target[*index]``. The sixteen rows after these are fetched into the cache meanwhile: there are
#: too few in one piece for the processor to see what comes next.
load_16, load_8, load_4 = (_transposed_loader(width) for width in (16, 8, 4))
#: ``store_transposed(source, index, target, column, rows, stride)`` is the reverse, from lanes in
#: `source` to rows of `target`; the rows after these, which are written next, are fetched as well.
store_16, store_8, store_4 = (_transposed_storer(width) for width in (16, 8, 4))


def _row_starts(
    context: Untyped,
    builder: Untyped,
    kind: Untyped,
    column: Untyped,
    rows: Untyped,
    stride: Untyped,
) -> list[Untyped]:
    starts = []
    for p in range(LANES):
        row = builder.load(_pointer(context, builder, kind, rows, ir.IntType(64)(p)))
        starts.append(builder.add(column, builder.mul(stride, row)))
    return starts


def _zipped(builder: Untyped, vectors: list[Untyped], count: int) -> list[Untyped]:
    """Rows to columns, or back: the halves of the list are zipped until each vector holds `count`.

    Sixteen vectors with up to sixteen numbers become as many vectors of sixteen as each had
    numbers; with `count` below sixteen it is the reverse, which `_split` completes.
    """
    for _ in range(count.bit_length() - 1):
        half = len(vectors) // 2
        pairs = zip(vectors[:half], vectors[half:], strict=True)
        vectors = [part for pair in pairs for part in _zip(builder, *pair)]
    return vectors


def _zip(builder: Untyped, x: Untyped, y: Untyped) -> list[Untyped]:
    """The numbers of two vectors in turn, in vectors of at most sixteen."""
    length = x.type.count
    turns = [place for k in range(length) for place in (k, k + length)]
    parts = [turns[start : start + LANES] for start in range(0, len(turns), LANES)]
    return [builder.shuffle_vector(x, y, indices(part)) for part in parts]


def _split(builder: Untyped, vectors: list[Untyped], width: int) -> list[Untyped]:
    """Vectors of sixteen in pieces of `width`."""
    starts = range(0, LANES, width)
    return [
        builder.shuffle_vector(vector, vector, indices([*range(start, start + width)]))
        for vector in vectors
        for start in starts
    ]


def _place(
    context: Untyped, builder: Untyped, kind: Untyped, array: Untyped, index: Untyped
) -> Untyped:
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
    context: Untyped, builder: Untyped, kind: Untyped, array: Untyped, place: Untyped
) -> Untyped:
    return builder.gep(_data(context, builder, kind, array), [place], inbounds=True)


def _data(context: Untyped, builder: Untyped, kind: Untyped, array: Untyped) -> Untyped:
    return context.make_array(kind)(context, builder, array).data


def _load(
    context: Untyped,
    builder: Untyped,
    kind: Untyped,
    array: Untyped,
    place: Untyped,
    width: int = LANES,
) -> Untyped:
    vector = ir.VectorType(context.get_value_type(kind.dtype), width)
    pointer = _pointer(context, builder, kind, array, place)
    return builder.load(
        builder.bitcast(pointer, vector.as_pointer()), align=kind.dtype.bitwidth // 8
    )


def _store(
    context: Untyped,
    builder: Untyped,
    kind: Untyped,
    array: Untyped,
    place: Untyped,
    lanes: Untyped,
) -> None:
    pointer = _pointer(context, builder, kind, array, place)
    target = builder.bitcast(pointer, lanes.type.as_pointer())
    builder.store(lanes, target, align=kind.dtype.bitwidth // 8)


def prefetch(builder: Untyped, data: Untyped, place: Untyped, for_store: bool = False) -> None:
    """Fetch the cache line of a place into every cache; past the end of the data, nothing."""
    address = builder.bitcast(builder.gep(data, [place]), ir.IntType(8).as_pointer())
    called = ir.FunctionType(ir.VoidType(), [address.type, INT32, INT32, INT32])
    fetch = cgutils.get_or_insert_function(builder.module, called, "llvm.prefetch.p0")
    builder.call(fetch, [address, INT32(int(for_store)), INT32(3), INT32(1)])
