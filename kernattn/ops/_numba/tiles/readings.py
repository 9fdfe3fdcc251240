"""What rows read of a state at the start of a chunk and of what its tokens wrote, in one pass: no sum comes twice."""

from llvmlite import ir
from numba import types

from kernattn.ops._numba.codegen.compile import inner, intrinsic
from kernattn.ops._numba.codegen.registers import ROWS, TALL, Block, lanes
from kernattn.ops._numba.tiles.products import _cells, _multiply_add, _sum_products, is_tall


def _reading_block(height, vectors):
    """Return the intrinsic that writes height x vectors of what `read` computes.

    Nothing is left of anything where a factor is 0.
    """

    @intrinsic
    def block(context, a, a_at, a_row, b, b_at, b_row, inner, factors, first, s, s_row, w, w_at, w_row, depth, scale,
              c, c_at, c_row):  # fmt: skip
        at = types.intp
        kinds = (a, at, at, b, at, at, at, factors, at, s, at, w, at, at, at, c.dtype, c, at, at)

        def codegen(context, builder, signature, args):
            k, one = Block(context, builder, c.dtype), ir.Constant(context.get_value_type(at), 1)
            left, right = (k.pointer(a, args[0]), args[1], args[2], one), (k.pointer(b, args[3]), args[4], args[5])
            start = _sum_products(k, height, vectors, _multiply_add, left, right, args[6])
            left, right = (k.pointer(s, args[9]), args[8], one, args[10]), (k.pointer(w, args[11]), args[12], args[13])
            own = _sum_products(k, height, vectors, _multiply_add, left, right, args[14])
            target = _cells(k, height, vectors, k.pointer(c, args[16]), args[17], args[18])
            scale, data = k.splat(args[15]), k.pointer(factors, args[7])
            for i in range(height):
                factor = k.splat(builder.load(k.at(data, args[8], i)))
                none = builder.fcmp_ordered("==", factor, ir.Constant(k.vector, [0.0] * k.width))
                for j in range(vectors):
                    total = _multiply_add(k, factor, start[i, j], own[i, j])
                    k.store(builder.fmul(scale, builder.select(none, own[i, j], total)), target[i, j])
            return context.get_dummy_value()

        return types.void(*kinds), codegen

    return block


_narrow, _wide, _tall = _reading_block(ROWS, 1), _reading_block(ROWS, 2), _reading_block(TALL, 2)


@inner
def read(a, a_row, b, b_row, inner, factors, s, s_row, w, w_row, count, scale, c, c_at, c_row, m, n):
    """Compute c[i, j] = scale (factor_i sum_k a[i, k] b[k, j] + sum_{k <= i} s[k, i] w[k, j]) for i < m, j < n.

    The second sum has `count` terms at most. Whole blocks are written, as those of `product`.
    """
    width = lanes(c)
    for j in range(0, n, 2 * width):
        i, pairs = 0, n - j > width
        while i < m:
            tall = pairs and is_tall(m - i)
            height = TALL if tall else ROWS
            x, z, depth = i * a_row, c_at + i * c_row + j, min(count, i + height)
            if tall:
                _tall(a, x, a_row, b, j, b_row, inner, factors, i, s, s_row, w, j, w_row, depth, scale, c, z, c_row)
            elif pairs:
                _wide(a, x, a_row, b, j, b_row, inner, factors, i, s, s_row, w, j, w_row, depth, scale, c, z, c_row)
            else:
                _narrow(a, x, a_row, b, j, b_row, inner, factors, i, s, s_row, w, j, w_row, depth, scale, c, z, c_row)
            i += height
