"""Scores of rows by rows, both of which lie one number behind the other: nothing is transposed.

A block of two rows by four is accumulated in whole vectors, whose elements are added in the end: the sums of all eight
at once, by interleaving. A score is one chain for each element of a vector, whatever block it falls into.
"""

from llvmlite import ir
from numba import types

from kernattn.ops._numba.codegen.compile import inner, intrinsic
from kernattn.ops._numba.codegen.memory import pad
from kernattn.ops._numba.codegen.registers import Block, lanes

HIGH, WIDE = 2, 4
"""Keys and rows of a block."""


def _sum_elements(k, four):
    """Return the sums of the elements of four vectors as one vector of four."""
    builder, lane, width = k.builder, ir.IntType(32), k.width

    def pick(a, b, picks):
        return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(lane, len(picks)), picks))

    def add_neighbours(a, b):
        picks = [at + base for at in range(0, width, 4) for base in (0, 2, width, width + 2)]
        return builder.fadd(pick(a, b, picks), pick(a, b, [i + 1 for i in picks]))

    if width < 4:
        sums = [builder.fadd(*(builder.extract_element(x, lane(i)) for i in range(2))) for x in four]
        total = ir.Constant(ir.VectorType(k.scalar, 4), ir.Undefined)
        for i, x in enumerate(sums):
            total = builder.insert_element(total, x, lane(i))
        return total
    total = add_neighbours(add_neighbours(*four[:2]), add_neighbours(*four[2:]))
    while width > 4:
        width //= 2
        total = builder.fadd(pick(total, total, list(range(width))), pick(total, total, list(range(width, 2 * width))))
    return total


@intrinsic
def _block(context, a, a_at, a_row, b, b_at, b_row, inner, c, c_at, c_row):
    """Write c[i, j] = sum_k a[i, k] b[j, k] for two i and four j."""
    at = types.intp

    def codegen(context, builder, signature, args):
        k = Block(context, builder, c.dtype)
        a_data, b_data = (k.at(k.pointer(kind, args[i]), args[i + 1]) for kind, i in ((a, 0), (b, 3)))
        left = [k.at(a_data, builder.mul(k.number(i), args[2])) for i in range(HIGH)]
        right = [k.at(b_data, builder.mul(k.number(j), args[5])) for j in range(WIDE)]
        cells = [(i, j) for i in range(HIGH) for j in range(WIDE)]
        start = builder.block
        head, body, done = (builder.append_basic_block(name) for name in ("head", "body", "done"))
        builder.branch(head)

        builder.position_at_end(head)
        step = builder.phi(k.index)
        step.add_incoming(k.number(0), start)
        total = {cell: builder.phi(k.vector) for cell in cells}
        for cell in cells:
            total[cell].add_incoming(ir.Constant(k.vector, [0.0] * k.width), start)
        builder.cbranch(builder.icmp_signed("<", step, args[6]), body, done)

        builder.position_at_end(body)
        x, y = ([k.load(k.at(row, step)) for row in rows] for rows in (left, right))
        for i, j in cells:
            more = builder.call(k.multiply_add(), [x[i], y[j], total[i, j]])
            total[i, j].add_incoming(more, body)
        step.add_incoming(builder.add(step, k.number(k.width)), body)
        builder.branch(head)

        builder.position_at_end(done)
        four = ir.VectorType(k.scalar, WIDE).as_pointer()
        for i in range(HIGH):
            place = k.at(k.pointer(c, args[7]), args[8], builder.mul(k.number(i), args[9]))
            sums = _sum_elements(k, [total[i, j] for j in range(WIDE)])
            builder.store(sums, builder.bitcast(place, four)).align = k.align
        return context.get_dummy_value()

    return types.void(a, at, at, b, at, at, at, c, at, at), codegen


@inner
def dots(a, a_at, a_row, b, b_at, b_row, inner, c, c_at, c_row, m, n, upper):
    """Compute c[i, j] = sum_k a[i, k] b[j, k] for i < m, j < n, k < inner; where `upper`, for i <= j alone.

    Whole blocks are written and whole vectors are read: up to the next even m, the next n that four divides.
    """
    depth = pad(inner, lanes(c))
    for i in range(0, m, HIGH):
        for j in range(i // WIDE * WIDE if upper else 0, n, WIDE):
            _block(a, a_at + i * a_row, a_row, b, b_at + j * b_row, b_row, depth, c, c_at + i * c_row + j, c_row)
