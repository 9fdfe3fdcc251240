"""One token of Mamba-2's state space, against its formula in float64."""

import numpy as np
import pytest

from kernattn.ops import OPS
from xp import backends


@pytest.mark.parametrize("backend", [x for x in backends("selective_step") if x.name != "gpu"])
@pytest.mark.parametrize(
    ("groups", "skip", "dtype", "strided"),
    [(1, True, "float32", False), (2, False, "float64", True), (4, True, "float16", False)],
)
def test_states_decay_are_added_to_and_read(backend, groups, skip, dtype, strided):
    rng, wide = np.random.default_rng(groups), "float64" if dtype == "float64" else "float32"
    before = rng.standard_normal((3, 4, 5, 7)).astype(wide)
    x, b, c = (rng.standard_normal(shape).astype(dtype) for shape in [(3, 4, 5), (3, groups, 7), (3, groups, 7)])
    dt, a = np.exp(rng.standard_normal((3, 4))).astype(wide), -np.exp(rng.standard_normal(4)).astype(wide)
    d = rng.standard_normal(4).astype(dtype) if skip else None
    state = np.asfortranarray(before) if strided else before.copy()
    out, after = OPS["selective_step"].implementation(x, backend.name)(state, x, dt, a, b, c, d)
    assert out.dtype == x.dtype
    assert after.dtype == wide
    close, coarse = (1e-12, 1e-12) if wide == "float64" else (1e-6, 1e-3 if dtype == "float16" else 1e-6)
    before, x, b, c, dt, a = (y.astype(float) for y in (before, x, b, c, dt, a))
    for i in range(3):
        for h in range(4):
            group = h // (4 // groups)
            wanted = np.exp(dt[i, h] * a[h]) * before[i, h] + np.outer(dt[i, h] * x[i, h], b[i, group])
            np.testing.assert_allclose(after[i, h], wanted, rtol=0, atol=close * np.max(np.abs(wanted)))
            read = wanted @ c[i, group] + (0 if d is None else d[h] * x[i, h])
            np.testing.assert_allclose(out[i, h], read, rtol=0, atol=coarse * np.max(np.abs(read)))
