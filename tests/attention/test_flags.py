"""What the caller asks of NumPy's floating-point flags concerns no sum inside: numbers that vanish raise nothing."""

import warnings

import numpy as np
import pytest

import kernattn as ka

KERNELS = ka.kernels.Gaussian(), ka.kernels.Matern(1.2), ka.kernels.Gaussian() + ka.kernels.Laplacian()
PHI = ka.random_features(ka.kernels.Softmax(), 4, 8, "positive", rng=0)
ELU1 = ka.features.elu1()


def far_apart():
    """Return keys whose features differ by more octaves than a float has, and values."""
    k = np.random.default_rng(0).standard_normal((6, 4)) * np.array([[1], [100], [1], [60], [0], [1]])
    return k, np.ones((6, 2))


def merged(k, v, backend):
    states = [ka.key_state(k[at : at + 2], v[at : at + 2], PHI, backend=backend) for at in (0, 2, 4)]
    return ka.merge_states(ka.merge_states(states[0], states[1]), states[2])


def pulled(k, v, backend):
    rows = [x.astype(np.float32) for x in (k, k, v)]
    out, pullback = ka.vjp(ka.linear_attention, *rows, PHI, backend=backend)
    return pullback(np.ones_like(out))


CALLS = {
    "merge_states": merged,
    "linear": lambda k, v, backend: ka.linear_attention(k, k, v, PHI, backend=backend),
    "causal": lambda k, v, backend: ka.causal_linear_attention(k, k, v, PHI, backend=backend),
    "fading": lambda k, v, backend: ka.linear_attention_step(
        ka.key_state(k, v, ELU1), k[0], k[0], v[0], ELU1, gk=-1e3 * np.arange(4.0), backend=backend
    ),
    "stretches": lambda k, v, backend: ka.attention.gated_state(k, v, g=-abs(k[:, 0]) * 9, backend=backend),
    "gates": lambda k, v, backend: (ka.gates.gla(40 * k), ka.gates.hgrn2(np.full_like(k, 1e-300))),
    "kernels": lambda k, v, backend: [(f(k), f.matmul(k, k, v), ka.kernel_attention(k, k, v, f)) for f in KERNELS],
    "features": lambda k, v, backend: ka.features.nystrom(k, KERNELS[0], 3, rng=0)(1e-160 * k, backend=backend),
    "gradients": pulled,
    "exact": lambda k, v, backend: ka.softmax_attention(k, k, v, backend=backend),
}


@pytest.mark.parametrize("backend", [None, "reference"])
@pytest.mark.parametrize("name", CALLS)
def test_underflow_raises_nothing(name, backend):
    k, v = far_apart()
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        CALLS[name](k, v, backend)
