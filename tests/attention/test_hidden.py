"""What stands in a masked key has no effect, be it NaN or infinite, and gets no gradient: forward and backward."""

import numpy as np
import pytest

import kernattn as ka
import maps
from tangents import weights
from xp import to_numpy

D, N, NEAR = maps.DIM, 12, ka.patterns.local(3)
MASK = np.random.default_rng(2).random((2, N)) < 0.6
MASK[:, :2] = False  # rows of causal calls that see nothing
ROTATIONS = np.random.default_rng(1).standard_normal((2, D, 2))
MIXTURES = np.random.default_rng(3).standard_normal((4, N))
MAPS = ["elu1", "positive-softmax", "trigonometric-softmax", "taylor2", "nystrom", "polynomial", "sum"]

CALLS = {
    "softmax": lambda q, k, v, b, m, **o: ka.softmax_attention(q, k, v, key_bias=b, key_mask=m, causal=True, **o),
    "lse": lambda q, k, v, _, m, **o: ka.attention.softmax_with_lse(q, k, v, key_mask=m, **o),
    "pattern": lambda q, k, v, b, m, **o: ka.softmax_attention(q, k, v, key_bias=b, key_mask=m, pattern=NEAR, **o),
    "gaussian": lambda q, k, v, _, m, **o: ka.kernel_attention(q, k, v, ka.kernels.Gaussian(), key_mask=m),
    "laplacian": lambda q, k, v, _, m, **o: ka.kernel_attention(q, k, v, ka.kernels.Laplacian(), key_mask=m),
    "nystrom attention": lambda q, k, v, _, m, **o: ka.attention.nystrom_attention(
        q, k, v, num_landmarks=4, key_mask=m, **o
    ),
    "linformer": lambda q, k, v, _, m, **o: ka.attention.linformer_attention(
        q, k, v, *2 * (ka._arrays.namespaces.like(MIXTURES, q),), key_mask=m, **o
    ),
    "lsh": lambda _, k, v, __, m, **o: ka.attention.lsh_attention(k, v, rotations=ROTATIONS, chunk=4, key_mask=m, **o),
}


def of_map(name):
    """All that linear attention returns, whole and token by token."""
    phi = maps.make(name)

    def run(q, k, v, _, mask, **options):
        out = ka.linear_attention(q, k, v, phi, key_mask=mask, **options)
        causal, z, _ = ka.attention.causal_with_lse(q, k, v, phi, key_mask=mask, **options)
        state = ka.key_state(k, v, phi, key_mask=mask, **options)
        token = q[..., -1, :], k[..., 0, :], v[..., 0, :], phi
        step, state = ka.linear_attention_step(state, *token, key_mask=mask[..., 0], **options)
        near = ka.attention.scatterbrain_attention(q, k, v, phi, NEAR, key_mask=mask, **options)
        return out, causal, z.log, step, state.s, near

    return run


CALLS |= {name: of_map(name) for name in MAPS}


def inputs(bad):
    """q, k, v, a bias and a mask, and what holds no key replaced by `bad`; heads share k."""
    rng = np.random.default_rng(0)
    q, k, v, bias = (0.5 * rng.standard_normal(shape) for shape in ((2, N, D), (N, D), (2, N, 3), (2, N)))
    k[~MASK.any(axis=0)] = bad
    v[~MASK] = bias[~MASK] = bad
    return q, k, v, bias, MASK


def flat(found):
    return [found] if not isinstance(found, tuple) else [x for each in found for x in flat(each)]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", CALLS)
def test_values(name, bad, backend):
    wanted, found = (flat(CALLS[name](*inputs(x), backend=backend.name)) for x in (0.0, bad))
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)


def pulled_by_torch(call, backend, *given):
    torch = pytest.importorskip("torch")
    for *rows, mask in given:
        rows = [torch.tensor(x, requires_grad=True) for x in rows]
        found = flat(call(*rows, torch.tensor(mask), backend=backend))
        cotangents = [torch.tensor(weights(x.shape)) for x in found]
        yield torch.autograd.grad(found, rows, cotangents, allow_unused=True, materialize_grads=True)


def pulled_by_jax(call, backend, *given):
    jax = pytest.importorskip("jax")

    @jax.jit
    def pulled(*rows):
        found, pull = jax.vjp(lambda *rows: flat(call(*rows, jax.numpy.asarray(MASK), backend=backend)), *rows)
        return pull([weights(x.shape) for x in found])

    with jax.enable_x64(True):
        for *rows, _ in given:
            yield pulled(*map(jax.numpy.asarray, rows))


@pytest.mark.parametrize(
    ("name", "pulled", "backend"),
    [
        *((name, pulled_by_torch, "reference") for name in CALLS),
        *((name, pulled_by_torch, None) for name in ("softmax", "pattern", "lsh", "elu1", "taylor2")),
        *((name, pulled_by_jax, None) for name in ("softmax", "pattern")),  # each takes XLA seconds
    ],
)
def test_gradients(name, pulled, backend):
    found = pulled(CALLS[name], backend, *map(inputs, (0.0, np.nan, np.inf)))
    clean, *others = ([to_numpy(x) for x in each] for each in found)
    _, k, v, bias = clean
    assert np.any(k != 0)
    for x, hidden in ((k, ~MASK.any(axis=0)), (v, ~MASK), (bias, ~MASK)):
        assert not np.any(x[hidden])
    for each in others:
        for x, y in zip(each, clean, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)


def test_a_key_that_one_head_hides_and_another_sees(backend):
    """NaN stays in the head that sees it, and cotangents have the shapes of keys and values that heads share."""
    (q, k, v, *_), mask = inputs(0.0), np.arange(2 * N).reshape(2, N) != 4
    spoilt = np.where(np.arange(N)[:, None] == 4, np.nan, k)
    clean, found, other = (
        ka.vjp(ka.softmax_attention, *given, key_mask=mask, backend=backend.name)[1](weights((2, N, 3)))
        for given in ((q, k, v), (q, spoilt, v), (q, np.stack([k, k]), v[0]))
    )
    np.testing.assert_allclose(found.q[0], clean.q[0], rtol=1e-12)
    assert np.isnan(found.q[1]).all()
    assert (clean.k.shape, other.v.shape) == (k.shape, v[0].shape)
