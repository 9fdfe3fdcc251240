"""Arrays of classes derived from NumPy's are taken as the numbers that they hold; what comes back is NumPy's own."""

import numpy as np
import pytest

import kernattn as ka

PHI = ka.random_features(ka.kernels.Softmax(), 4, 8, "positive", rng=0)
GAUSSIAN, MATERN = ka.kernels.Gaussian(), ka.kernels.Matern(1.2)
NEAR = ka.patterns.local(2, 0)


class Doubling(np.ndarray):
    """Whatever arithmetic makes of it is twice as much: no result may be made by it."""

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        plain = [np.asarray(x) for x in inputs]
        found = getattr(ufunc, method)(*plain, **options)
        return (2 * found).view(Doubling) if isinstance(found, np.ndarray) and found.dtype.kind == "f" else found


def step(q, k, v, backend):
    state = ka.key_state(k, v, PHI, backend=backend)
    held = ka.LinearState(*(x.view(Doubling) for x in state[:3]), state.fingerprint)
    return ka.linear_attention_step(held, q[0], k[0], v[0], PHI, backend=backend)


def merged(q, k, v, backend):
    state = ka.key_state(k, v, PHI, backend=backend)
    held = ka.LinearState(*(x.view(type(k)) for x in state[:3]), state.fingerprint)
    return ka.attend(ka.merge_states(held, state), q, PHI, backend=backend), ka.stack_states([held, state])


def pulled(q, k, v, backend):
    out, pullback = ka.vjp(ka.linear_attention, q, k, v, PHI, backend=backend)
    return pullback(np.ones_like(out).view(type(k)))[:3]


CALLS = {
    "linear": lambda q, k, v, backend: ka.linear_attention(q, k, v, PHI, backend=backend),
    "causal": lambda q, k, v, backend: ka.causal_linear_attention(q, k, v, PHI, backend=backend),
    "computed features": lambda q, k, v, backend: ka.linear_attention(q, k, v, 2 * PHI + PHI, backend=backend),
    "step": step,
    "merged": merged,
    "exact": lambda q, k, v, backend: ka.attention.softmax_with_lse(q, k, v, pattern=NEAR, backend=backend),
    "window": lambda q, k, v, backend: ka.attention.window_attention(q, k, v, PHI, 2, backend=backend),
    "gated": lambda q, k, v, backend: ka.gated_linear_attention(q, k, v, g=-abs(np.asarray(q[:, 0])), backend=backend),
    "features": lambda q, k, v, backend: (PHI(q, backend=backend), PHI.scaled(k), ka.features.relu().scaled(v)),
    "gradients": pulled,
    "kernels": lambda q, k, v, backend: (GAUSSIAN(q, k), GAUSSIAN.pairs(q, k), MATERN.matmul(q, k, v), MATERN.diag(k)),
    "gates": lambda q, k, v, backend: tuple(ka.gates.gla(k).values()),
    "stretches": lambda q, k, v, backend: ka.attention.gated_state(k, v, gk=(-(np.asarray(k) ** 2)).view(type(k))),
}


def arrays(value):
    """Return all arrays of nested tuples."""
    return [x for each in value for x in arrays(each)] if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("backend", [None, "reference"])
@pytest.mark.parametrize("name", CALLS)
def test_a_derived_class_changes_nothing(name, backend):
    rows = np.random.default_rng(0).standard_normal((3, 6, 4))
    for derived in ((0, 1, 2), (1,)):  # all of them, and the keys alone
        given = [x.view(Doubling) if at in derived else x for at, x in enumerate(rows)]
        found, wanted = (arrays(CALLS[name](*x, backend)) for x in (given, rows))
        for x, y in zip(found, wanted, strict=True):
            if isinstance(y, np.ndarray):
                assert type(x) is np.ndarray
            np.testing.assert_array_equal(x, y)
