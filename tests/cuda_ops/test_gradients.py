"""`ka.vjp` of the stand-in's arrays: the compiled kernels are chosen, and agree with array operations."""

import numpy as np
import pytest

import kernattn as ka
import laws
from cuda_ops.cases import array, to64
from cuda_ops.pullbacks import wide
from kernattn.ops.block_softmax_vjp import reference
from seam import ALL

PHI = ka.random_features(ka.kernels.Softmax(), 5, 74, estimator="hyperbolic", rng=0)


def pullbacks(asarray, backend):
    """What every pullback finds."""
    q, k, v, late = (asarray(x) for x in laws.arrays(1, *((2, 70, c) for c in (5, 5, 7, 5)), dtype="float32"))
    mask = asarray(np.arange(70) % 4 != 2)
    given = {"key_mask": mask, "backend": backend}
    numbers = {"omega": asarray(PHI.spec.omega), "scale": asarray(np.asarray(5**-0.5))}
    learnt = ka.with_numbers(PHI, **numbers)
    before, back_before = ka.vjp(ka.key_state, k, v, PHI, backend=backend)
    (out, after), back = ka.vjp(ka.causal_linear_attention, q, k, v, learnt, state=before, **given)
    rows, back_rows = ka.vjp(ka.attend, after, late, PHI, backend=backend)
    of_after, of_late, _ = back_rows(asarray(rows))
    found = back((asarray(out), of_after))
    yield from (of_late, *found[:3], found.phi.omega, found.phi.scale, *back_before(found.state)[:2])
    out, back = ka.vjp(ka.linear_attention, q, k, v, PHI, **given)
    yield from back(out)[:3]
    out, back = ka.vjp(ka.softmax_attention, q, k, v, causal=True, **given)
    yield from back(out)[:4]
    features, back = ka.vjp(PHI, q, backend=backend)
    yield back(features).x


def test_every_pullback(cupy, monkeypatch, slab_tiles):
    slab_tiles(1)
    wanted = list(pullbacks(np.asarray, "reference"))
    for op in ("features_vjp", "key_state_vjp", "attend_vjp", "causal_vjp", "block_softmax_vjp"):
        monkeypatch.delattr(f"kernattn.ops.{op}.reference.{op}")
    for at, (x, y) in enumerate(zip(pullbacks(cupy.asarray, "gpu"), wanted, strict=True)):
        assert isinstance(x, cupy.ndarray)
        assert x.dtype == np.float32
        error = np.max(np.abs(to64(x) - y)) / max(np.max(np.abs(y)), 1e-3)
        assert error <= 1e-4, f"{at}: {error}"


@pytest.mark.parametrize("phi", [ka.features.elu1(), ka.features.relu()])
def test_maps_whose_rows_have_no_scale(cupy, slab_tiles, phi):
    """On the way back rows of queries have one, over their normalisers: kernels took it for maps with scales alone."""
    slab_tiles(1)
    given = laws.arrays(1, *((2, 150, c) for c in (5, 5, 7, 7)), dtype="float32")

    def pulled(asarray, backend):
        q, k, v, g = (asarray(x) for x in given)
        yield from ka.vjp(ka.causal_linear_attention, q, k, v, phi, backend=backend)[1]((g, None))[:3]
        yield from ka.vjp(ka.linear_attention, q, k, v, phi, backend=backend)[1](g)[:3]

    for at, (x, y) in enumerate(zip(pulled(cupy.asarray, "gpu"), pulled(np.asarray, "reference"), strict=True)):
        np.testing.assert_allclose(to64(x), y, rtol=0, atol=1e-4 * np.max(np.abs(y)), err_msg=str(at))


def padded(asarray, backend, bad):
    """What pullbacks find where rows from the 100th on, and a whole entry, hold `bad` and have no cotangent."""
    q, k, v, g = laws.arrays(1, *((2, 150, c) for c in (5, 5, 7, 7)), dtype="float32")
    g[:, 100:] = 0
    for x in (q, k, v):
        x[:, 100:] *= np.float32(bad)
    ids, (q, k, v, g) = asarray(np.arange(150) // 50), (asarray(x) for x in (q, k, v, g))
    for segment_ids in (None, ids):
        _, back = ka.vjp(ka.causal_linear_attention, q, k, v, PHI, segment_ids=segment_ids, backend=backend)
        yield from back((g, None))[:3]
    _, back = ka.vjp(ka.softmax_attention, q, k, v, causal=True, backend=backend)
    yield from back(g)[:3]
    mask = asarray(np.arange(50) % 4 != 2)
    q, k, v, g = (x.reshape(6, 50, -1) for x in (q, k, v, g))
    _, back = ka.vjp(ka.linear_attention, q, k, v, PHI, key_mask=mask, backend=backend)
    yield from back(g)[:3]
    _, back = ka.vjp(ka.softmax_attention, q, k, v, key_mask=mask, backend=backend)
    yield from back(g)[:3]


@pytest.mark.parametrize("bad", [np.nan, pytest.param(np.inf, marks=pytest.mark.slow)])
def test_padding_that_no_cotangent_reaches_leaves_no_trace(cupy, slab_tiles, bad):
    slab_tiles(1)
    with np.errstate(invalid="ignore"):
        wanted = list(padded(np.asarray, "reference", bad))
        for at, (x, y) in enumerate(zip(padded(cupy.asarray, "gpu", bad), wanted, strict=True)):
            np.testing.assert_allclose(to64(x), y, rtol=0, atol=1e-4 * np.max(np.abs(y)), err_msg=str(at))
            assert np.isfinite(y).all()


def test_outputs_that_were_not_rounded(cupy):
    """g.v and g.o nearly cancel where weights are far apart: rounded outputs cost dq and dk most of their digits."""
    from kernattn.ops.block_softmax.gpu import block_softmax
    from kernattn.ops.block_softmax_vjp.gpu import block_softmax_vjp

    q, k, v, g = (array(cupy, x, "float16") for x in np.random.default_rng(0).normal(size=(4, 2, 64, 16)) * 2)
    given = q, k, v, 0.5, ALL, None, None, None
    rounded, lse, whole = block_softmax(*given, keep=True)
    np.testing.assert_array_equal(rounded.get(), block_softmax(*given)[0].get())
    exact = [to64(x) if hasattr(x, "get") else x for x in (*given, whole, lse, g, None)]
    wanted, errors = reference.block_softmax_vjp(*exact)[:2], []
    for out in (whole, rounded):
        found = block_softmax_vjp(*given, out, lse, g, None)
        errors.append([np.mean((to64(x) - y) ** 2) for x, y in zip(found[:2], wanted, strict=True)])
    assert all(better < worse / 4 for better, worse in zip(*errors, strict=True))


def test_linear_attention_does_not_read_what_was_rounded(cupy):
    """Outputs that lost digits before they became float32 are taken as they are: dq of rounded ones is more exact."""
    from kernattn.ops.attend.gpu import attend
    from kernattn.ops.attend.reference import attend as full
    from kernattn.ops.attend_vjp import reference as attend_reference
    from kernattn.ops.attend_vjp.gpu import attend_vjp
    from kernattn.ops.causal.gpu import causal
    from kernattn.ops.causal.reference import causal as each
    from kernattn.ops.causal_vjp import reference as causal_reference
    from kernattn.ops.causal_vjp.gpu import causal_vjp
    from kernattn.ops.key_state.gpu import key_state

    spec, rng = PHI.spec.unscaled, np.random.default_rng(0)
    q, k = (array(cupy, x, "float16") for x in rng.normal(size=(2, 40, 5)) / 4)
    v, g = (array(cupy, x + 8, "float16") for x in rng.normal(size=(2, 40, 5)))
    state, tokens = key_state(k, v, spec, None), (q, k, v, spec, spec, None, None, None)
    for back, law, means, given, (out, normaliser), rest in (
        (attend_vjp, attend_reference.attend_vjp, full, (state, q, spec), attend(state, q, spec, v.dtype, True), ()),
        (causal_vjp, causal_reference.causal_vjp, each, tokens, causal(*tokens, True)[:2], (None,)),
    ):
        lost = out.astype(np.float32)
        exact = means(*map(wide, given), *((np.dtype(np.float64),) if back is attend_vjp else ()), True)
        wanted = law(*map(wide, given), *exact[:2], wide(g), *rest, False)
        errors = []
        for o in (out, lost):
            found = back(*given, o, normaliser, g, *rest, False)
            of_q = found[1] if back is attend_vjp else found[0]
            errors.append(np.mean((to64(of_q.x) - (wanted[1] if back is attend_vjp else wanted[0]).x) ** 2))
        assert errors[0] < errors[1] / 3
