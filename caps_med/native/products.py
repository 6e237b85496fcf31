"""Products of small matrices with sums that stay in registers."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils

from caps_med.native import LANES
from caps_med.native.lanes import INT32, Untyped, indices, intrinsic
from caps_med.native.memory import prefetch

INT64 = ir.IntType(64)


def multiplier(rows: int, vectors: int) -> Untyped:
    """A product with `rows` by ``16 * vectors`` numbers, each a separate chain of fused additions.

    Each sum runs in the order of `depth`, whatever the block in which it is computed, so it does
    not depend on its neighbours.

    Args:
        rows, vectors: rows and vectors of columns of the product. All sums are in registers at
            once: 24 vectors for processors with AVX-512.

    Returns:
        ``multiply(left, left_at, left_row, left_step, right, right_at, right_step, target,
        target_at, target_row, depth, add, ahead)`` of flat arrays: for each row i and column j, to
        ``target[target_at + i * target_row + j]``, or to zero unless `add`, the sum over k, from 0
        to `depth`, of ``left[left_at + i * left_row + k * left_step] * right[right_at + k *
        right_step + j]`` is added. Meanwhile `depth` vectors of `right` are fetched into the cache,
        from `ahead` on, for a product that follows; none if `ahead` is None.
    """

    @intrinsic
    def multiply(
        typing: Untyped, left: Untyped, left_at: Untyped, left_row: Untyped, left_step: Untyped,
        right: Untyped, right_at: Untyped, right_step: Untyped,
        target: Untyped, target_at: Untyped, target_row: Untyped, depth: Untyped,
        add: Untyped, ahead: Untyped,
    ) -> Untyped:  # fmt: skip
        def build(context: Untyped, builder: Untyped, sig: Untyped, args: Untyped) -> Untyped:
            product = _Product(context, builder, sig, args, rows, vectors)
            product.start(args[11])
            with cgutils.for_range(builder, args[10]) as loop:
                product.step(loop.index)
            product.finish()
            return context.get_dummy_value()

        place = types.intp
        return types.none(
            left, place, place, place, right, place, place, target, place, place, place, add, ahead
        ), build

    return multiply


class _Product:
    """The code of one product; see `multiplier`."""

    def __init__(
        self, context: Untyped, builder: Untyped, sig: Untyped, args: Untyped,
        rows: int, vectors: int,
    ) -> None:  # fmt: skip
        self.builder, self.vectors = builder, vectors
        number = context.get_value_type(sig.args[0].dtype)
        self.kind, self.align = ir.VectorType(number, LANES), sig.args[0].dtype.bitwidth // 8
        left, left_at, left_row, self.left_step = args[:4]
        right, right_at, self.right_step, target, target_at, target_row = args[4:10]

        def at(kind: Untyped, array: Untyped, place: Untyped) -> Untyped:
            data = context.make_array(kind)(context, builder, array).data
            return builder.gep(data, [place], inbounds=True)

        self.left = self._apart(at(sig.args[0], left, left_at), left_row, rows)
        self.right = at(sig.args[4], right, right_at)
        self.whole = at(sig.args[4], right, INT64(0))
        self.ahead = None if sig.args[12] == types.none else args[12]
        self.target = self._apart(at(sig.args[7], target, target_at), target_row, rows)
        self.sums = [
            [cgutils.alloca_once(builder, self.kind) for _ in range(vectors)] for _ in range(rows)
        ]
        called = ir.FunctionType(self.kind, [self.kind] * 3)
        name = f"llvm.fma.v{LANES}{number.intrinsic_name}"
        self.fma = cgutils.get_or_insert_function(builder.module, called, name)

    def start(self, add: Untyped) -> None:
        """Initialize the sums with zero, or with the present values."""
        zero = self.kind([0.0] * LANES)
        there = self.builder.trunc(add, ir.IntType(1)) if add.type.width > 1 else add
        for row, base in zip(self.sums, self.target, strict=True):
            for column, total in enumerate(row):
                begin = self.builder.select(there, self._load(base, column), zero)
                self.builder.store(begin, total)

    def step(self, k: Untyped) -> None:
        """Add the products of column k of the left and row k of the right matrix."""
        row = self.builder.gep(self.right, [self.builder.mul(k, self.right_step)])
        columns = [self._load(row, column) for column in range(self.vectors)]
        if self.ahead is not None:
            coming = self.builder.add(self.ahead, self.builder.mul(k, INT64(LANES)))
            prefetch(self.builder, self.whole, coming)
        place = self.builder.mul(k, self.left_step)
        for base, sums in zip(self.left, self.sums, strict=True):
            number = self._spread(self.builder.load(self.builder.gep(base, [place])))
            for column, total in zip(columns, sums, strict=True):
                value = self.builder.load(total)
                self.builder.store(self.builder.call(self.fma, [number, column, value]), total)

    def finish(self) -> None:
        """Write the sums."""
        for row, base in zip(self.sums, self.target, strict=True):
            for column, total in enumerate(row):
                target = self._vector(base, column)
                self.builder.store(self.builder.load(total), target, align=self.align)

    def _apart(self, first: Untyped, step: Untyped, count: int) -> list[Untyped]:
        places = (self.builder.mul(step, step.type(i)) for i in range(count))
        return [self.builder.gep(first, [place]) for place in places]

    def _vector(self, base: Untyped, column: int) -> Untyped:
        place = self.builder.gep(base, [INT64(column * LANES)])
        return self.builder.bitcast(place, self.kind.as_pointer())

    def _load(self, base: Untyped, column: int) -> Untyped:
        return self.builder.load(self._vector(base, column), align=self.align)

    def _spread(self, number: Untyped) -> Untyped:
        none = ir.Constant(self.kind, ir.Undefined)
        first = self.builder.insert_element(none, number, INT32(0))
        return self.builder.shuffle_vector(first, none, indices([0] * LANES))
