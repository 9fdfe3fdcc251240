"""Matrix products of tiles that lie in cache, at the machine's peak for every shape and without a BLAS.

A register block of a few rows by one or two vectors is accumulated over the inner index: the compiler sees nothing but
multiply-adds of whole vectors. 32 registers hold 8 rows of two vectors; 16 hold 6, or 4, and every even height from 4
on is a sum of these; a last row alone has a block of its own. A cell is one chain of multiply-adds in the order of the
inner index, whatever block it falls into: no row's bits depend on the rows beside it.

Small products through a BLAS are slower (`kernattn bench --cases product-48-64-256`), cannot skip the half of a causal
product that is zero, and start threads of their own when they grow.
"""

from llvmlite import ir
from numba import types

from kernattn.ops._numba.codegen.compile import inner, intrinsic
from kernattn.ops._numba.codegen.registers import LINE, ROWS, TALL, Block, lanes


def _multiply_add(k, a, b, total):
    """Return total + a b."""
    return k.builder.call(k.multiply_add(), [a, b, total])


def _sum_products(k, height, vectors, add, a, b, inner, first=None):
    """Return the code of cells (i, j) of sum_k a[i, k] b[k, j], where a and b are (data, at, strides).

    The sums begin with `first`, if there is anything.
    """
    builder, (a_data, a_at, a_row, a_inner), (b_data, b_at, b_inner) = k.builder, a, b
    cells = [(i, j) for i in range(height) for j in range(vectors)]
    rows = [builder.mul(k.number(i), a_row) for i in range(height)]
    start = builder.block
    head, body, done = (builder.append_basic_block(name) for name in ("head", "body", "done"))
    builder.branch(head)

    builder.position_at_end(head)
    step = builder.phi(k.index)
    step.add_incoming(k.number(0), start)
    total = {cell: builder.phi(k.vector) for cell in cells}
    for cell in cells:
        total[cell].add_incoming(first[cell] if first else ir.Constant(k.vector, [0.0] * k.width), start)
    builder.cbranch(builder.icmp_signed("<", step, inner), body, done)

    builder.position_at_end(body)
    left = k.at(a_data, a_at, builder.mul(step, a_inner))
    right = k.at(b_data, b_at, builder.mul(step, b_inner))
    b_vectors = [k.load(k.at(right, j * k.width)) for j in range(vectors)]
    a_vectors = [k.splat(builder.load(k.at(left, row))) for row in rows]
    for i, j in cells:
        total[i, j].add_incoming(add(k, a_vectors[i], b_vectors[j], total[i, j]), body)
    step.add_incoming(builder.add(step, k.number(1)), body)
    builder.branch(head)

    builder.position_at_end(done)
    return total


def _cells(k, height, vectors, data, at, row):
    """Return the places of cells of a block."""
    return {
        (i, j): k.at(data, at, k.builder.mul(k.number(i), row), j * k.width)
        for i in range(height)
        for j in range(vectors)
    }


def _write(k, total, target):
    """Return what emits the stores of sums to the places of their cells."""

    def emit():
        for cell, place in target.items():
            k.store(total[cell], place)

    return emit


def _either(builder, choose, one, other):
    """Emit one of two pieces of code, and go on behind both."""
    yes, no, end = (builder.append_basic_block(name) for name in ("yes", "no", "end"))
    builder.cbranch(choose, yes, no)
    for block, emit in ((yes, one), (no, other)):
        builder.position_at_end(block)
        emit()
        builder.branch(end)
    builder.position_at_end(end)


def register_block(height, vectors, add=_multiply_add, goes_on=False):
    """Return the intrinsic that adds height x vectors of a product: c[i, j] (+)= sum_k a[i, k] b[k, j].

    `add` returns the code of another sum, total + f(a, b), of vectors. Where it `goes_on`, an old sum is what the new
    one begins with, as if its products came before; else it is added to the new one at the end.
    """

    @intrinsic
    def block(context, a, a_at, a_row, a_inner, b, b_at, b_inner, c, c_at, c_row, inner, accumulate):
        at = types.intp
        kinds = (a, at, at, at, b, at, at, c, at, at, at, types.boolean)

        def codegen(context, builder, signature, args):
            k = Block(context, builder, c.dtype)
            left, right = (k.pointer(a, args[0]), *args[1:4]), (k.pointer(b, args[4]), *args[5:7])
            target = _cells(k, height, vectors, k.pointer(c, args[7]), *args[8:10])
            first, zero = None, ir.Constant(k.vector, [0.0] * k.width)
            if goes_on:
                first = {cell: builder.select(args[11], k.load(place), zero) for cell, place in target.items()}
            total = _sum_products(k, height, vectors, add, left, right, args[10], first)

            def add_old():  # the new sum first, then the old one: rounded once in its units
                for cell, place in target.items():
                    k.store(builder.fadd(k.load(place), total[cell]), place)

            if goes_on:
                _write(k, total, target)()
            else:
                _either(builder, args[11], add_old, _write(k, total, target))
            return context.get_dummy_value()

        return types.void(*kinds), codegen

    return block


def _fading_block(height, vectors):
    """Return the intrinsic that adds a block of a product to what is left: c[i, j] = factor old[i, j] + the sum.

    Nothing is left of anything where the factor is 0. Rows of c and of old are equally long.
    """

    @intrinsic
    def block(context, a, a_at, a_row, a_inner, b, b_at, b_inner, old, old_at, factor, c, c_at, c_row, inner):
        at = types.intp
        kinds = (a, at, at, at, b, at, at, old, at, c.dtype, c, at, at, at)

        def codegen(context, builder, signature, args):
            k = Block(context, builder, c.dtype)
            left, right = (k.pointer(a, args[0]), *args[1:4]), (k.pointer(b, args[4]), *args[5:7])
            total = _sum_products(k, height, vectors, _multiply_add, left, right, args[13])
            before = _cells(k, height, vectors, k.pointer(old, args[7]), args[8], args[12])
            target = _cells(k, height, vectors, k.pointer(c, args[10]), *args[11:13])
            left_over = k.splat(args[9])

            def add_old():
                for cell, place in target.items():
                    k.store(_multiply_add(k, left_over, k.load(before[cell]), total[cell]), place)

            none = ir.Constant(args[9].type, 0.0)
            _either(builder, builder.fcmp_unordered("!=", args[9], none), add_old, _write(k, total, target))
            return context.get_dummy_value()

        return types.void(*kinds), codegen

    return block


_narrow, _wide, _tall = register_block(ROWS, 1), register_block(ROWS, 2), register_block(TALL, 2)
_row, _row_wide = register_block(1, 1), register_block(1, 2)


@inner
def is_tall(left):
    """Is the next block of the rows that are left a tall one? Not where two of ROWS rows hold them as well."""
    return TALL > ROWS and (left > 2 * ROWS or ROWS < left <= TALL)


FULL, UPPER, LOWER = 0, 1, 2
"""Shapes of a product: everything; only cells i <= j are wanted; a is lower triangular, a[i, k] = 0 for k > i."""


@inner
def product(a, a_at, a_row, a_inner, b, b_at, b_inner, c, c_at, c_row, m, n, inner, accumulate, shape):
    """Compute c[i, j] (+)= sum_k a[i, k] b[k, j] for i < m, j < n, k < inner.

    In flat arrays, x[i, j] lies at x_at + i x_row + j. Whole blocks are written: c must have room for m rounded up to
    ROWS rows and n rounded up to `lanes` columns, and what lies there in a and b must be readable.
    """
    width = lanes(c)
    for j in range(0, n, 2 * width):
        pairs = 0 if n - j <= width else min(m, j + width) if shape == UPPER else m
        rows = min(m, j + 2 * width) if shape == UPPER else m
        i = 0
        while i < pairs:
            left = pairs - i
            tall = is_tall(left)
            height = TALL if tall else ROWS if left > 1 else 1
            depth = min(inner, i + height) if shape == LOWER else inner
            x, y = a_at + i * a_row, c_at + i * c_row + j
            if tall:
                _tall(a, x, a_row, a_inner, b, b_at + j, b_inner, c, y, c_row, depth, accumulate)
            elif left == 1:
                _row_wide(a, x, a_row, a_inner, b, b_at + j, b_inner, c, y, c_row, depth, accumulate)
            else:
                _wide(a, x, a_row, a_inner, b, b_at + j, b_inner, c, y, c_row, depth, accumulate)
            i += height
        last = j if pairs == 0 else j + width
        while i < rows:
            height = ROWS if rows - i > 1 else 1
            depth = min(inner, i + height) if shape == LOWER else inner
            x, y = a_at + i * a_row, c_at + i * c_row + last
            if height == 1:
                _row(a, x, a_row, a_inner, b, b_at + last, b_inner, c, y, c_row, depth, accumulate)
            else:
                _narrow(a, x, a_row, a_inner, b, b_at + last, b_inner, c, y, c_row, depth, accumulate)
            i += height


_fading_narrow, _fading_wide, _fading_tall = _fading_block(ROWS, 1), _fading_block(ROWS, 2), _fading_block(TALL, 2)


@inner
def fading_product(a, a_at, a_row, a_inner, b, b_at, b_inner, old, old_at, factor, c, c_at, c_row, m, n, inner):
    """Compute c[i, j] = factor old[i, j] + sum_k a[i, k] b[k, j] in one pass, of blocks as those of `product`.

    c may be old. Its rows have room for whole blocks, as those of old have.
    """
    width = lanes(c)
    for j in range(0, n, 2 * width):
        i, wide = 0, n - j > width
        while i < m:
            x, y, z = a_at + i * a_row, old_at + i * c_row + j, c_at + i * c_row + j
            tall = wide and is_tall(m - i)
            if tall:
                _fading_tall(a, x, a_row, a_inner, b, b_at + j, b_inner, old, y, factor, c, z, c_row, inner)
            elif wide:
                _fading_wide(a, x, a_row, a_inner, b, b_at + j, b_inner, old, y, factor, c, z, c_row, inner)
            else:
                _fading_narrow(a, x, a_row, a_inner, b, b_at + j, b_inner, old, y, factor, c, z, c_row, inner)
            i += TALL if tall else ROWS


@inner
def panel_product(a, rows, inner, panels, begin, count, c, c_row):
    """Compute c[i, j] = sum_k a[i, k] b[k, begin + j] for j < count, with b as `packing.panels` lays it out.

    A column panel of b is contiguous: the rows of a wide b itself would fall into one set of the cache.
    """
    width = 2 * LINE // c.itemsize
    for j in range(0, count, width):
        columns = min(width, count - j)
        product(a, 0, inner, 1, panels, (begin + j) * inner, width, c, j, c_row, rows, columns, inner, False, FULL)


@intrinsic
def _transpose_block(context, a, a_at, a_row, b, b_at, b_row):
    """Write a square block of lanes x lanes of a, transposed, to b: log2(lanes) rounds of interleaving."""
    at = types.intp

    def codegen(context, builder, signature, args):
        k = Block(context, builder, b.dtype)
        source, target = k.pointer(a, args[0]), k.pointer(b, args[3])
        n, lane = k.width, ir.IntType(32)
        rows = [k.load(k.at(source, args[1], builder.mul(k.number(i), args[2]))) for i in range(n)]

        def interleave(x, y, high):
            picks = [i // 2 + (n // 2 if high else 0) + (n if i % 2 else 0) for i in range(n)]
            return builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(lane, n), picks))

        for _ in range(n.bit_length() - 1):
            rows = [interleave(rows[i // 2], rows[i // 2 + n // 2], i % 2) for i in range(n)]
        for i in range(n):
            k.store(rows[i], k.at(target, args[4], builder.mul(k.number(i), args[5])))
        return context.get_dummy_value()

    return types.void(a, at, at, b, at, at), codegen


@inner
def transpose(a, a_at, a_row, m, n, b, b_at, b_row):
    """Write b[j, i] = a[i, j] for i < m, j < n in flat arrays."""
    width = lanes(b)
    whole_m, whole_n = m // width * width, n // width * width
    for i in range(0, whole_m, width):
        for j in range(0, whole_n, width):
            _transpose_block(a, a_at + i * a_row + j, a_row, b, b_at + j * b_row + i, b_row)
    for i in range(0 if whole_n < n else whole_m, m):
        for j in range(whole_n if i < whole_m else 0, n):
            b[b_at + j * b_row + i] = a[a_at + i * a_row + j]
