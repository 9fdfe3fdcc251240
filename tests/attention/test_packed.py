"""Packed sequences in which all tokens see all of their own: each is what it is alone, whatever the others hold."""

from itertools import pairwise

import numpy as np
import pytest

import kernattn as ka
import laws
from kernattn.errors import DTypeError, ShapeError
from xp import backends, to_numpy

N, ENDS = 90, (0, 1, 34, 60, 90)
IDS = np.repeat([3, 0, 3, 7], np.diff(ENDS))  # ids that come back are another segment
MAPS = {
    "elu1": ka.features.elu1(),
    "positive": ka.random_features(ka.kernels.Softmax(), 5, 12, "positive", rng=0),
    "trigonometric": ka.random_features(ka.kernels.Softmax(), 5, 64, "trigonometric", rng=0),
    "computed": ka.features.taylor2(),
}


@pytest.fixture(params=backends("hybrid"), ids=repr, scope="module")
def backend(request):
    return request.param


def arrays(dtype="float64"):
    """-> q of two query heads on one of keys, k, v."""
    return laws.arrays(8, (2, 2, N, 5), (2, 1, N, 5), (2, 1, N, 3), dtype=dtype)


def alone(q, k, v, phi, mask):
    """Attention of each sequence by itself."""
    parts = [slice(low, high) for low, high in pairwise(ENDS)]
    outs = [
        ka.linear_attention(q[..., part, :], k[..., part, :], v[..., part, :], phi, key_mask=mask[..., part])
        for part in parts
    ]
    return np.concatenate(outs, axis=-2)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_each_is_what_it_is_alone(name, dtype, backend):
    (q, k, v), a = arrays(dtype), backend.kind.asarray
    mask = np.random.default_rng(1).random((2, 1, N)) < 0.7
    out = to_numpy(
        ka.linear_attention(a(q), a(k), a(v), MAPS[name], key_mask=a(mask), segment_ids=a(IDS), backend=backend.name)
    )
    tolerance = dict.fromkeys(("rtol", "atol"), 1e-4 if dtype == "float32" else 1e-10)
    np.testing.assert_allclose(out, alone(q, k, v, MAPS[name], mask), **tolerance)


@pytest.mark.parametrize("filling", [np.nan, np.inf, 1e30])
def test_another_sequence_may_hold_anything(filling, backend):
    (q, k, v), a = arrays(), backend.kind.asarray

    def run():
        with np.errstate(all="ignore"):
            return to_numpy(
                ka.linear_attention(a(q), a(k), a(v), MAPS["positive"], segment_ids=a(IDS), backend=backend.name)
            )

    clean = run()
    for x in (k, v):
        x[..., 40, :] = filling
    spoilt, others = run(), (np.arange(N) < 34) | (np.arange(N) >= 60)
    np.testing.assert_array_equal(spoilt[..., others, :], clean[..., others, :])


def test_cotangents_are_those_of_each_alone(backend):
    if backend.kind.name != "numpy":
        pytest.skip("ka.vjp takes plain arrays")
    (q, k, v), phi = arrays(), MAPS["positive"]
    (g,) = laws.arrays(9, (2, 2, N, 3), dtype="float64")
    learnt = ka.with_numbers(phi, omega=phi.spec.omega)
    found = ka.vjp(ka.linear_attention, q, k, v, learnt, segment_ids=IDS, backend=backend.name)[1](g)
    total = 0.0
    for low, high in pairwise(ENDS):
        own = (Ellipsis, slice(low, high), slice(None))
        wanted = ka.vjp(ka.linear_attention, q[own], k[own], v[own], learnt)[1](g[own])
        for name in "qkv":
            np.testing.assert_allclose(getattr(found, name)[own], getattr(wanted, name), rtol=1e-9, atol=1e-11)
        total = total + wanted.phi.omega
    np.testing.assert_allclose(found.phi.omega, total, rtol=1e-9, atol=1e-11)


def test_torch_learns_through_it_also_in_a_graph():
    torch = pytest.importorskip("torch")
    (q, k, v), phi = arrays(), MAPS["positive"]
    given = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
    found = ka.vjp(ka.linear_attention, q, k, v, phi, segment_ids=IDS)

    def number(q, k, v, ids):
        return ka.linear_attention(q, k, v, phi, segment_ids=ids).square().sum()

    for run in (number, torch.compile(number, backend="eager", fullgraph=True)):
        gradients = torch.autograd.grad(run(*given, torch.tensor(IDS)), given)
        for x, y in zip(gradients, found[1](2 * found[0])[:3], strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-11)


def test_jax_traces_the_ids():
    jax = pytest.importorskip("jax")
    (q, k, v), phi = arrays("float32"), MAPS["elu1"]
    found, back = ka.vjp(ka.linear_attention, q, k, v, phi, segment_ids=IDS)

    def number(q, k, v, ids):
        return (ka.linear_attention(q, k, v, phi, segment_ids=ids) ** 2).sum()

    gradients = jax.jit(jax.grad(number, argnums=(0, 1, 2)))(*map(jax.numpy.asarray, (q, k, v, IDS)))
    for x, y in zip(gradients, back(2 * found)[:3], strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


def test_wrong_calls():
    q, k, v = arrays()
    with pytest.raises(ShapeError, match="as many queries as keys; got n = 4, l = 90"):
        ka.linear_attention(q[..., :4, :], k, v, MAPS["elu1"], segment_ids=IDS)
    with pytest.raises(DTypeError, match="segment_ids must have dtype"):
        ka.linear_attention(q, k, v, MAPS["elu1"], segment_ids=IDS.astype("f8"))
    with pytest.raises(TypeError, match=r"got an unexpected keyword.*ka\.linear_attention where tokens see both ways"):
        ka.key_state(k, v, MAPS["elu1"], segment_ids=IDS)
