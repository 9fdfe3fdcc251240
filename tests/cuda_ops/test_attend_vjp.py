"""The kernels of `attend_vjp` and `key_state_vjp` on the emulation against array operations in float64."""

import numpy as np
import pytest

from cuda_ops.cases import array, specs
from cuda_ops.pullbacks import CASES, agree, wide
from kernattn._sums.cotangents import in_units_of
from kernattn.ops.attend.reference import attend
from kernattn.ops.attend_vjp import reference as attend_reference
from kernattn.ops.key_state_vjp import reference as key_state_reference

pytestmark = pytest.mark.slow  # every pullback has a usual test in test_gradients.py


def problem(cupy, spec, dtype, lead, key_lead, n, d, e):
    from kernattn.ops.attend.gpu import attend
    from kernattn.ops.key_state.gpu import key_state

    rng = np.random.default_rng(n)
    q, k = (array(cupy, 0.5 * rng.normal(size=(*axes, n, d)), dtype) for axes in (lead, key_lead))
    v = array(cupy, rng.normal(size=(*key_lead, n, e)), dtype)
    mask = cupy.asarray(rng.random((*key_lead, n)) < 0.7)
    state = key_state(k, v, spec, mask)
    out, normaliser = attend(state, q, spec.unscaled, v.dtype, True)
    g = rng.normal(size=out.shape)
    g[..., n // 2, :] = 0
    return spec, q, k, v, mask, state, out, normaliser, array(cupy, g, dtype)


def pullbacks(cupy, spec, q, k, v, mask, state, out, normaliser, g, learn):
    """What both ops find, and what is wanted."""
    from kernattn.ops.attend_vjp.gpu import attend_vjp
    from kernattn.ops.key_state_vjp.gpu import key_state_vjp

    given = q, spec.unscaled, out, normaliser, g, learn
    found, of_q = attend_vjp(state, *given)
    exact = (
        wide(out)
        if out.dtype == state.s.dtype
        else attend(wide(state), wide(q), given[1], np.dtype(np.float64), False)[0]
    )
    wanted = attend_reference.attend_vjp(wide(state), *map(wide, given[:2]), exact, *map(wide, given[3:]))
    of_keys = key_state_vjp(k, v, spec, mask, found, learn)
    assert [of_q.x.dtype, of_keys[0].x.dtype, of_keys[1].dtype] == [x.dtype for x in (q, k, v)]
    right = key_state_reference.key_state_vjp(wide(k), wide(v), spec, wide(mask), wide(found), learn)
    sums = (in_units_of(wide(state), wide(x)) for x in (found, wanted[0]))
    return (next(sums), of_q, *of_keys), (next(sums), wanted[1], *right)


@pytest.mark.parametrize(("kind", "dtype"), CASES)
def test_pullbacks(cupy, slab_tiles, kind, dtype):
    slab_tiles(1)
    grouped = (2, 1) if dtype in ("float32", "float64") else (2, 2)  # of 16 bits that is another instance
    for shape in (((2, 2), grouped, 150, 5, 7, 37), ((), (), 3, 70, 70, 16)):
        given = problem(cupy, specs(np.random.default_rng(0), kind, *shape[-3::2]), dtype, *shape[:-1])
        for learn in (True, False):
            agree(*pullbacks(cupy, *given, learn), dtype)
