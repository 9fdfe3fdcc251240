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


def register_block(height, vectors, add=_multiply_add):
    """Return the intrinsic that adds height x vectors of a product: c[i, j] (+)= sum_k a[i, k] b[k, j].

    `add` returns the code of another sum, total + f(a, b), of vectors.
    """

    @intrinsic
    def block(context, a, a_at, a_row, a_inner, b, b_at, b_inner, c, c_at, c_row, inner, accumulate):
        at = types.intp
        kinds = (a, at, at, at, b, at, at, c, at, at, at, types.boolean)

        def codegen(context, builder, signature, args):
            k = Block(context, builder, c.dtype)
            a_data, b_data, c_data = k.pointer(a, args[0]), k.pointer(b, args[4]), k.pointer(c, args[7])
            (a_at, a_row, a_inner), (b_at, b_inner), (c_at, c_row, inner, accumulate) = args[1:4], args[5:7], args[8:]
            cells = [(i, j) for i in range(height) for j in range(vectors)]
            rows = [builder.mul(k.number(i), a_row) for i in range(height)]
            target = {(i, j): k.at(c_data, c_at, builder.mul(k.number(i), c_row), j * k.width) for i, j in cells}

            start = builder.block
            head, body, done = (builder.append_basic_block(name) for name in ("head", "body", "done"))
            builder.branch(head)

            builder.position_at_end(head)
            step = builder.phi(k.index)
            step.add_incoming(k.number(0), start)
            total = {cell: builder.phi(k.vector) for cell in cells}
            for cell in cells:
                total[cell].add_incoming(ir.Constant(k.vector, [0.0] * k.width), start)
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
            add_old, store, end = (builder.append_basic_block(name) for name in ("add", "store", "end"))
            builder.cbranch(accumulate, add_old, store)

            builder.position_at_end(add_old)  # the new sum first, then the old one: rounded once in its units
            for cell in cells:
                k.store(builder.fadd(k.load(target[cell]), total[cell]), target[cell])
            builder.branch(end)

            builder.position_at_end(store)
            for cell in cells:
                k.store(total[cell], target[cell])
            builder.branch(end)

            builder.position_at_end(end)
            return context.get_dummy_value()

        return types.void(*kinds), codegen

    return block


_narrow, _wide, _tall = register_block(ROWS, 1), register_block(ROWS, 2), register_block(TALL, 2)
_row, _row_wide = register_block(1, 1), register_block(1, 2)

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
            tall = TALL > ROWS and (left > 2 * ROWS or ROWS < left <= TALL)
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
