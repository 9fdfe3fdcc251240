"""elu + 1 of moderate numbers and their sums in one pass, where no row needs a unit of its own."""

from kernattn.ops._numba.codegen.compile import inner_exact
from kernattn.ops._numba.codegen.registers import lanes
from kernattn.ops._numba.codegen.vectors import all_of, every, load, store
from kernattn.ops._numba.kinds import ELU1, moderate_elu1


@inner_exact
def moderate_keys(phi, k, at, rows, tile, row, scales, sums):
    """Write features of keys (C, M), their log scales, 0, and sums_a of feature a; False where they are others."""
    width, features, zero = lanes(tile), phi.features, tile.dtype.type(0)
    if phi.kind != ELU1 or phi.moderate == 0 or phi.omega_t.size > 0 or features < width:
        return False
    limit, factor, last = phi.moderate * phi.moderate, phi.amplitude, features - width
    inside = every(load(tile, 0), zero) < limit
    for a in range(0, features, 4 * width):  # four vectors of columns at a time, of the last ones some twice
        a, b, c, d = min(a, last), min(a + width, last), min(a + 2 * width, last), min(a + 3 * width, last)
        total_a = total_b = total_c = total_d = every(load(tile, 0), zero)
        for j in range(rows):
            x, target = at + j * features, j * row
            x_a, x_b, x_c, x_d = load(k, x + a), load(k, x + b), load(k, x + c), load(k, x + d)
            inside = inside & (x_a * x_a < limit) & (x_b * x_b < limit) & (x_c * x_c < limit) & (x_d * x_d < limit)
            x_a, x_b = moderate_elu1(x_a, zero) * factor, moderate_elu1(x_b, zero) * factor
            x_c, x_d = moderate_elu1(x_c, zero) * factor, moderate_elu1(x_d, zero) * factor
            store(x_a, tile, target + a)
            store(x_b, tile, target + b)
            store(x_c, tile, target + c)
            store(x_d, tile, target + d)
            total_a, total_b = total_a + x_a, total_b + x_b
            total_c, total_d = total_c + x_c, total_d + x_d
        store(total_a, sums, a)
        store(total_b, sums, b)
        store(total_c, sums, c)
        store(total_d, sums, d)
    for j in range(rows):
        scales[j] = zero
    return all_of(inside)


@inner_exact
def moderate_queries(phi, tile, row, rows, z, normalisers):
    """Turn projections (D, C) into features, and normalisers over z; False where they must be made again."""
    width, features, zero = lanes(tile), phi.features, tile.dtype.type(0)
    if phi.kind != ELU1 or phi.moderate == 0:
        return False
    limit, last = phi.moderate * phi.moderate, row - width
    inside = every(load(tile, 0), zero) < limit
    for a in range(features if rows % width > 0 else 0):
        for i in range(rows, (rows + width - 1) // width * width):
            tile[a * row + i] = zero
    for i in range(0, rows, 3 * width):  # three vectors of columns at a time, the last one again where there are fewer
        j, k = min(i + width, last), min(i + 2 * width, last)
        total_i = total_j = total_k = every(load(tile, 0), zero)
        for b in range(features):
            a, weight = b * row, z[b]
            x_i, x_j, x_k = load(tile, a + i), load(tile, a + j), load(tile, a + k)
            inside = inside & (x_i * x_i < limit) & (x_j * x_j < limit) & (x_k * x_k < limit)
            x_i, x_j, x_k = moderate_elu1(x_i, zero), moderate_elu1(x_j, zero), moderate_elu1(x_k, zero)
            store(x_i, tile, a + i)
            store(x_j, tile, a + j)
            store(x_k, tile, a + k)
            total_i, total_j, total_k = total_i + x_i * weight, total_j + x_j * weight, total_k + x_k * weight
        store(total_i, normalisers, i)
        store(total_j, normalisers, j)
        store(total_k, normalisers, k)
    return all_of(inside)
