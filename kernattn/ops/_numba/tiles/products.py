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


def _multiply_subtract(k, a, b, total):
    """Return total - a b."""
    return k.builder.call(k.multiply_add(), [k.builder.fneg(a), b, total])


def _opaque(k, value):
    """Return a value of which the compiler does not know how it was made.

    It would find every row from the one before, by an addition: a chain as long as the multiply-adds of a block.
    """
    return k.builder.asm(ir.FunctionType(value.type, [value.type]), "", "=r,0", [value], False)


def _sum_products(k, height, vectors, add, a, b, inner, first=None):
    """Return the code of cells (i, j) of sum_k a[i, k] b[k, j], where a and b are (data, at, strides).

    The sums begin with `first`, if there is anything.
    """
    builder, (a_data, a_at, a_row, a_inner), (b_data, b_at, b_inner) = k.builder, a, b
    cells = [(i, j) for i in range(height) for j in range(vectors)]
    rows = [_opaque(k, k.at(a_data, a_at, builder.mul(k.number(i), a_row))) for i in range(height)]
    start = builder.block
    head, body, done = (builder.append_basic_block(name) for name in ("head", "body", "done"))
    builder.branch(head)

    builder.position_at_end(head)
    step = builder.phi(k.index)
    step.add_incoming(k.number(0), start)
    left = builder.phi(k.index)
    left.add_incoming(k.number(0), start)
    total = {cell: builder.phi(k.vector) for cell in cells}
    for cell in cells:
        total[cell].add_incoming(first[cell] if first else ir.Constant(k.vector, [0.0] * k.width), start)
    builder.cbranch(builder.icmp_signed("<", step, inner), body, done)

    builder.position_at_end(body)
    right = k.at(b_data, b_at, builder.mul(step, b_inner))
    b_vectors = [k.load(k.at(right, j * k.width)) for j in range(vectors)]
    a_vectors = [k.splat(builder.load(k.at(row, left))) for row in rows]
    for i, j in cells:
        total[i, j].add_incoming(add(k, a_vectors[i], b_vectors[j], total[i, j]), body)
    step.add_incoming(builder.add(step, k.number(1)), body)
    left.add_incoming(_opaque(k, builder.add(left, a_inner)), body)
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
    """Return a function that emits the stores of sums to the places of their cells."""

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


FULL, UPPER, LOWER, LATER = 0, 1, 2, 3
"""Shapes of a product: everything; only cells i <= j are wanted; a is lower triangular, a[i, k] = 0 for k > i; or upper
triangular, a[i, k] = 0 for k < i."""

SHALLOW = 32
"""Sums of so many terms have no tall blocks: a core begins the next block before it ends one, where both are small."""


@inner
def product(a, a_at, a_row, a_inner, b, b_at, b_inner, c, c_at, c_row, m, n, inner, accumulate, shape):
    """Compute c[i, j] (+)= sum_k a[i, k] b[k, j] for i < m, j < n, k < inner.

    In flat arrays, x[i, j] lies at x_at + i x_row + j. Whole blocks are written: c must have room for m rounded up to
    ROWS rows and n rounded up to `lanes` columns, and what lies there in a and b must be readable.
    """
    width = lanes(c)
    for j in range(0, n, 2 * width):
        rows = min(m, j + 2 * width) if shape == UPPER else m
        # of few registers a block of one vector takes as long as one of two
        pairs = 0 if n - j <= width else min(m, j + width) if shape == UPPER and ROWS == TALL else rows
        i = 0
        while i < pairs:
            left = pairs - i
            tall = is_tall(left) and inner > SHALLOW
            height = TALL if tall else ROWS if left > 1 else 1
            first = i if shape == LATER else 0
            depth = min(inner, i + height) if shape == LOWER else inner - first
            x, y, z = a_at + i * a_row + first * a_inner, c_at + i * c_row + j, b_at + first * b_inner + j
            if tall:
                _tall(a, x, a_row, a_inner, b, z, b_inner, c, y, c_row, depth, accumulate)
            elif left == 1:
                _row_wide(a, x, a_row, a_inner, b, z, b_inner, c, y, c_row, depth, accumulate)
            else:
                _wide(a, x, a_row, a_inner, b, z, b_inner, c, y, c_row, depth, accumulate)
            i += height
        last = j if pairs == 0 else j + width
        while i < rows:
            height = ROWS if rows - i > 1 else 1
            first = i if shape == LATER else 0
            depth = min(inner, i + height) if shape == LOWER else inner - first
            x, y, z = a_at + i * a_row + first * a_inner, c_at + i * c_row + last, b_at + first * b_inner + last
            if height == 1:
                _row(a, x, a_row, a_inner, b, z, b_inner, c, y, c_row, depth, accumulate)
            else:
                _narrow(a, x, a_row, a_inner, b, z, b_inner, c, y, c_row, depth, accumulate)
            i += height


_fading_narrow, _fading_wide = _fading_block(ROWS, 1), _fading_block(ROWS, 2)


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
            if wide:
                _fading_wide(a, x, a_row, a_inner, b, b_at + j, b_inner, old, y, factor, c, z, c_row, inner)
            else:
                _fading_narrow(a, x, a_row, a_inner, b, b_at + j, b_inner, old, y, factor, c, z, c_row, inner)
            i += ROWS


def _solving_block(height, vectors):
    """Return the intrinsic that replaces rows first to first + height of y by those of x, where rows before are x."""

    @intrinsic
    def block(context, a, a_at, a_row, a_inner, y, y_at, y_row, first):
        at = types.intp

        def codegen(context, builder, signature, args):
            k, (_, a_at, a_row, a_inner, _, y_at, y_row, first) = Block(context, builder, y.dtype), args
            a_data, y_data = k.pointer(a, args[0]), k.pointer(y, args[4])
            a_first = builder.add(a_at, builder.mul(first, a_row))
            target = _cells(k, height, vectors, y_data, builder.add(y_at, builder.mul(first, y_row)), y_row)
            right = {cell: k.load(place) for cell, place in target.items()}
            left, rows = (a_data, a_first, a_row, a_inner), (y_data, y_at, y_row)
            x = _sum_products(k, height, vectors, _multiply_subtract, left, rows, first, right)
            own = k.at(a_data, a_first, builder.mul(first, a_inner))
            for i in range(height):
                for j in range(i):
                    place = k.at(own, builder.mul(k.number(i), a_row), builder.mul(k.number(j), a_inner))
                    factor = k.splat(builder.load(place))
                    for c in range(vectors):
                        x[i, c] = _multiply_subtract(k, factor, x[j, c], x[i, c])
            _write(k, x, target)()
            return context.get_dummy_value()

        return types.void(a, at, at, at, y, at, at, at), codegen

    return block


_solve_narrow, _solve_wide = _solving_block(ROWS, 1), _solving_block(ROWS, 2)


@inner
def solve(a, a_at, a_row, a_inner, y, y_at, y_row, m, n):
    """Replace y by the x for which (I + a) x = y, with an a below its diagonal: row after row, in blocks of rows.

    Of a, what lies below the diagonal is read. Rows of y are there up to a multiple of ROWS, as those of a are.
    """
    width = lanes(y)
    for j in range(0, n, 2 * width):
        for i in range(0, m, ROWS):
            if n - j > width:
                _solve_wide(a, a_at, a_row, a_inner, y, y_at + j, y_row, i)
            else:
                _solve_narrow(a, a_at, a_row, a_inner, y, y_at + j, y_row, i)


@inner
def panel_product(a, rows, inner, panels, begin, count, c, c_row):
    """Compute c[i, j] = sum_k a[i, k] b[k, begin + j] for j < count, with b as `packing.panels` lays it out.

    A column panel of b is contiguous: the rows of a wide b itself would fall into one set of the cache.
    """
    width = 2 * LINE // c.itemsize
    for j in range(0, count, width):
        columns = min(width, count - j)
        product(a, 0, inner, 1, panels, (begin + j) * inner, width, c, j, c_row, rows, columns, inner, False, FULL)


def turned(k, rows):
    """Return the code of a square block of vectors, transposed: log2(lanes) rounds of interleaving."""
    n, lane = k.width, ir.IntType(32)

    def interleave(x, y, high):
        picks = [i // 2 + (n // 2 if high else 0) + (n if i % 2 else 0) for i in range(n)]
        return k.builder.shuffle_vector(x, y, ir.Constant(ir.VectorType(lane, n), picks))

    for _ in range(n.bit_length() - 1):
        rows = [interleave(rows[i // 2], rows[i // 2 + n // 2], i % 2) for i in range(n)]
    return rows


@intrinsic
def _transpose_block(context, a, a_at, a_row, b, b_at, b_row):
    """Write a square block of lanes x lanes of a, transposed, to b."""
    at = types.intp

    def codegen(context, builder, signature, args):
        k = Block(context, builder, b.dtype)
        source, target = k.pointer(a, args[0]), k.pointer(b, args[3])
        rows = [k.load(k.at(source, args[1], builder.mul(k.number(i), args[2]))) for i in range(k.width)]
        for i, row in enumerate(turned(k, rows)):
            k.store(row, k.at(target, args[4], builder.mul(k.number(i), args[5])))
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
