"""Pullbacks against central differences and against PyTorch, and what they refuse."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

import kernattn as ka
import maps
from kernattn.features import MapSpec
from kernattn.features._base.deterministic import ExactMap
from kernattn.features._base.spec_map import SpecMap
from laws import arrays
from tangents import inputs, weights
from xp import backends, to_numpy

BACKENDS = backends("causal_vjp")
NAMES = [
    "elu1", "relu", "exp", "trigonometric-softmax", "phase-ard", "positive-softmax", "hyperbolic-ard",
    "optimal_positive-softmax", "favor_sharp", "favor_sharp_asymmetric", "hedgehog", "hedgehogs",
]  # fmt: skip
STEP = 1e-6
D = maps.DIM


@dataclass(frozen=True, eq=False, repr=False)
class Plain(SpecMap, ExactMap):
    """A map that is its spec."""

    plain: MapSpec

    @property
    def spec(self):
        return self.plain


def agrees(f, given, gradients, what):
    """<gradient, t> is the derivative of the number f(*given) along t, one argument after the other."""
    for at, (x, gradient) in enumerate(zip(given, gradients, strict=True)):
        gradient = to_numpy(gradient)
        assert gradient.shape == x.shape, f"{what}: shape of argument {at}"
        assert gradient.dtype == np.float64
        t = np.random.default_rng(at).standard_normal(x.shape)
        up, down = ([*given[:at], x + step * t, *given[at + 1 :]] for step in (STEP, -STEP))
        wanted, found = (f(*up) - f(*down)) / (2 * STEP), np.sum(gradient * t)
        size = np.sqrt(np.sum(gradient**2)) + abs(f(*given)) * 1e-3
        assert abs(found - wanted) <= 1e-6 * size, f"{what}: {found} of argument {at}, wanted {wanted}"


@pytest.mark.parametrize("backend", BACKENDS, ids=repr)
@pytest.mark.parametrize("name", NAMES)
def test_causal_attention_and_its_states(name, backend):
    """Through both states, which are made by one call and read by another one."""
    phi = maps.make(name)
    q, k, v, (past_k, past_v), mask, ids = inputs()
    late = q[..., :2, :] + 0.1
    options = {"key_mask": mask, "segment_ids": ids * 0, "backend": backend.name}

    def run(past_k, past_v, q, k, v, late):
        before, back_before = ka.vjp(ka.key_state, past_k, past_v, phi, backend=backend.name)
        (out, after), back = ka.vjp(ka.causal_linear_attention, q, k, v, phi, state=before, **options)
        rows, back_rows = ka.vjp(ka.attend, after, late, phi, backend=backend.name)
        return (out, rows), (back_before, back, back_rows)

    given = past_k, past_v, q, k, v, late
    (out, rows), (back_before, back, back_rows) = run(*given)
    g, h = weights(out.shape), weights(rows.shape)
    of_after, of_late, _ = back_rows(h)
    found = back((g, of_after))
    of_past = back_before(found.state)
    gradients = of_past.k, of_past.v, found.q, found.k, found.v, of_late

    def number(*given):
        (out, rows), _ = run(*given)
        return np.sum(g * out) + np.sum(h * rows)

    agrees(number, given, gradients, "causal")
    assert (found.k[..., ~mask, :] == 0).all()
    assert (found.v[..., ~mask, :] == 0).all()


@pytest.mark.parametrize("backend", BACKENDS, ids=repr)
@pytest.mark.parametrize("name", ["elu1", "phase-ard", "positive-softmax"])
@pytest.mark.parametrize("n", [1, 2, 150])
def test_segments(name, n, backend):
    """Each segment's gradients are those of a call of its own; what came before belongs to the first of them."""
    phi = maps.make(name)
    q, k, v, history, mask, ids = inputs(n)
    past, options = ka.key_state(*history, phi), {"key_mask": mask, "segment_ids": ids, "backend": backend.name}
    (out, after), back = ka.vjp(ka.causal_linear_attention, q, k, v, phi, state=past, **options)
    g, of_after = weights(out.shape), after._replace(s=weights(after.s.shape), z=weights(after.z.shape))
    found = back((g, of_after))
    before = past
    for segment in np.unique(ids):
        own = (..., ids == segment, slice(None))
        (_, last), single = ka.vjp(
            ka.causal_linear_attention, q[own], k[own], v[own], phi, state=before, key_mask=mask[ids == segment]
        )
        final = segment == ids[-1]
        scale = np.exp(after.peak - last.peak)[..., None] if final else None
        of_last = of_after._replace(s=of_after.s / scale, z=of_after.z / scale[..., 0]) if final else None
        alone = single((g[own], of_last))
        for name_, x in alone._asdict().items():
            if name_ in "qkv":
                np.testing.assert_allclose(getattr(found, name_)[own], x, rtol=1e-8, atol=1e-9, err_msg=name_)
        if before is not None:
            for x, y in zip(found.state[:2], alone.state[:2], strict=True):
                np.testing.assert_allclose(x, y, rtol=1e-8, atol=1e-9)
        before = None


@pytest.mark.parametrize("backend", BACKENDS, ids=repr)
@pytest.mark.parametrize("name", NAMES)
def test_linear_attention_and_features(name, backend):
    phi = maps.make(name)
    q, k, v, _, mask, _ = inputs()
    options = {"key_mask": mask, "backend": backend.name}

    def number(q, k, v):
        return np.sum(g * ka.linear_attention(q, k, v, phi, **options))

    out, back = ka.vjp(ka.linear_attention, q, k, v, phi, **options)
    g = weights(out.shape)
    agrees(number, (q, k, v), back(g)[:3], "linear")
    for side in (*[phi] * phi._is_shared, phi.query, phi.key):
        features, back = ka.vjp(side, q, backend=backend.name)
        h = weights(features.shape)
        agrees(lambda x, side=side, h=h: np.sum(h * side(x)), (q,), back(h)[:1], "features")


@pytest.mark.parametrize("backend", backends("block_softmax_vjp"), ids=repr)
@pytest.mark.parametrize("length", [9, 12, 4])
@pytest.mark.parametrize("causal", [False, True])
def test_softmax_attention(causal, length, backend):
    q, k, v = arrays(3, (2, 3, 9, D), (2, 1, length, D), (2, 1, length, 3), dtype="float64")
    mask = np.arange(length) != 2
    options = {"causal": causal, "key_mask": mask, "backend": backend.name}

    def number(q, k, v, scale):
        return np.sum(g * ka.softmax_attention(q, k, v, scale=float(scale), **options))

    out, back = ka.vjp(ka.softmax_attention, q, k, v, scale=0.6, **options)
    g = weights(out.shape)
    agrees(number, (q, k, v, np.asarray(0.6)), back(g)[:4], "softmax")


@pytest.mark.parametrize("backend", backends("block_softmax_vjp"), ids=repr)
def test_patterns_biases_and_log_normalisers(backend):
    shapes = (2, 3, 9, D), (2, 1, 12, D), (2, 1, 12, 3), (2, 1, 12), (3, 9, 12)
    q, k, v, bias, pairs = arrays(3, *shapes, dtype="float64")
    options = {"pattern": ka.patterns.local(3, 1) | ka.patterns.sinks(1), "causal": True, "backend": backend.name}

    def number(q, k, v, scale, bias, pairs):
        out, lse = ka.attention.softmax_with_lse(
            q, k, v, scale=float(scale), key_bias=bias, score_bias=pairs, **options
        )
        return np.sum(g * out) + np.sum(h * lse)

    options |= {"key_bias": bias, "score_bias": pairs}
    (out, lse), back = ka.vjp(ka.attention.softmax_with_lse, q, k, v, scale=0.6, **options)
    g, h = weights(out.shape), weights(lse.shape)
    alone, without = ka.vjp(ka.softmax_attention, q, k, v, **options)[1](g), back((g, None))
    del options["key_bias"], options["score_bias"]
    agrees(number, (q, k, v, np.asarray(0.6), bias, pairs), back((g, h)), "softmax")
    assert alone._fields == ("q", "k", "v", "scale", "key_bias", "score_bias")
    assert all(x.shape == y.shape for x, y in zip(alone, without, strict=True))


@pytest.mark.parametrize(
    "name", ["phase-ard", "trigonometric-softmax", "hyperbolic-ard", "optimal_positive-softmax", "hedgehog"]
)
def test_numbers_of_a_map_are_learnt(name):
    spec = maps.make(name).spec
    q, k, v, _, mask, _ = inputs()
    names = tuple(part for part in ("omega", "offset", "row_weights") if getattr(spec, part) is not None)

    def call(*numbers):
        return ka.linear_attention(
            q, k, v, Plain(replace(spec, **dict(zip(names, numbers, strict=True)))), key_mask=mask
        )

    def causal(*numbers):
        phi = Plain(replace(spec, **dict(zip(names, numbers, strict=True))))
        return ka.causal_linear_attention(q, k, v, phi, key_mask=mask)[0]

    given = [getattr(spec, part) for part in names]
    out, back = ka.vjp(ka.linear_attention, q, k, v, learning(spec, names), key_mask=mask)
    g = weights(out.shape)
    agrees(lambda *x: np.sum(g * call(*x)), given, [getattr(back(g).phi, part) for part in names], "linear")
    _, back = ka.vjp(ka.causal_linear_attention, q, k, v, learning(spec, names), key_mask=mask)
    agrees(lambda *x: np.sum(g * causal(*x)), given, [getattr(back((g, None)).phi, x) for x in names], "causal")
    features, back = ka.vjp(learning(spec, names), q)
    h = weights(features.shape)
    agrees(
        lambda *x: np.sum(h * Plain(replace(spec, **dict(zip(names, x, strict=True))))(q)),
        given, [getattr(back(h).phi, x) for x in names], "features",
    )  # fmt: skip


def learning(spec, names):
    return ka.with_numbers(Plain(spec), **{name: getattr(spec, name) for name in names})


def test_numbers_that_no_side_depends_on():
    """The weights of rows' log scales cancel between the features of a query."""
    phi = maps.make("positive-softmax")
    q, k, v, _, _, _ = inputs()
    out, back = ka.vjp(ka.attend, ka.key_state(k, v, phi), q, ka.with_numbers(phi, row_weights=phi.spec.row_weights))
    assert (back(weights(out.shape)).phi.row_weights == np.zeros(D)).all()


@pytest.mark.parametrize(
    ("name", "number"),
    [("positive-ard", "lengthscale"), ("trigonometric-softmax", "scale"), ("positive-one", "lengthscale")],
)
def test_scales_of_kernels_are_learnt(name, number):
    phi = maps.random(ka.kernels.Gaussian(1.3), "positive") if name == "positive-one" else maps.make(name)
    q, k, v, _, mask, _ = inputs()
    value = np.asarray(D**-0.5 if number == "scale" else phi.kernel.lengthscale)

    def attention(x):
        kernel = type(phi.kernel)(**{number: float(x) if x.ndim == 0 else x})
        return np.sum(g * ka.linear_attention(q, k, v, replace(phi, kernel=kernel), key_mask=mask))

    out, back = ka.vjp(ka.linear_attention, q, k, v, ka.with_numbers(phi, **{number: value}), key_mask=mask)
    g = weights(out.shape)
    agrees(attention, [value], [getattr(back(g).phi, number)], number)


@pytest.mark.parametrize("name", ["elu1", "relu", "trigonometric-softmax", "hyperbolic-ard"])
def test_pytorch_finds_the_same(name):
    torch = pytest.importorskip("torch")
    phi = maps.make(name)
    q, k, v, _, mask, ids = inputs(150, scale=2.0)
    tensors = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
    out, _ = ka.causal_linear_attention(*tensors, phi, key_mask=torch.tensor(mask), segment_ids=torch.tensor(ids))
    g = weights(out.shape)
    wanted = torch.autograd.grad(torch.sum(out * torch.tensor(g)), tensors)
    plain = [x.detach() for x in tensors]
    _, back = ka.vjp(
        ka.causal_linear_attention, *plain, phi, key_mask=torch.tensor(mask), segment_ids=torch.tensor(ids)
    )
    for x, y in zip(back((torch.tensor(g), None))[:3], wanted, strict=True):
        assert isinstance(x, torch.Tensor)
        np.testing.assert_allclose(to_numpy(x), to_numpy(y), rtol=1e-7, atol=1e-9 * float(y.abs().max()))


def test_pytorch_differentiates_pullbacks():
    torch = pytest.importorskip("torch")
    phi = maps.make("positive-softmax")
    tensors = [torch.tensor(x, requires_grad=True) for x in inputs(3)[:3]]

    def gradients(*tensors):
        (out, _), back = ka.vjp(ka.causal_linear_attention, *tensors, phi)
        return back((torch.sin(out), None))[:3]

    assert torch.autograd.gradcheck(gradients, tensors, fast_mode=True)


def test_rows_of_one_head_are_shared_among_threads(monkeypatch, on_threads):
    pytest.importorskip("numba")
    phi, found = maps.make("positive-softmax"), []
    q, k, v = arrays(8, (3000, D), (3000, D), (3000, 3), dtype="float64")
    on_threads(3)
    for threads in ("1", "3"):
        monkeypatch.setenv("KERNATTN_NUM_THREADS", threads)
        out, back = ka.vjp(ka.linear_attention, q, k, v, ka.with_numbers(phi, omega=phi.spec.omega), backend="cpu")
        gradients = back(weights(out.shape))
        found.append([*gradients[:3], gradients.phi.omega])
    for x, y in zip(*found, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-11 * np.abs(y).max())


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_gradients_have_the_dtype_of_their_arguments(dtype):
    phi = maps.make("positive-softmax")
    wide = inputs(20)[:3]
    narrow = [x.astype(dtype) for x in wide]
    (out, after), back = ka.vjp(ka.causal_linear_attention, *narrow, ka.with_numbers(phi, omega=phi.spec.omega))
    g = weights(out.shape)
    found = back((g.astype(dtype), after))
    assert [x.dtype.name for x in found[:3]] == [dtype] * 3
    assert found.phi.omega.dtype == np.float32
    assert found.phi.offset is None
    assert found.state is None
    (_, after), back = ka.vjp(ka.causal_linear_attention, *wide, phi)
    for x, y in zip(found[:3], back((g, after))[:3], strict=True):
        np.testing.assert_allclose(x, y, atol=(2e-2 if dtype == "float16" else 1e-4) * np.abs(y).max())


def test_what_is_refused_is_named():
    q, k, v, *_ = inputs()
    phi = maps.make("positive-softmax")
    error = ka.errors.ParameterError
    for call, words in [
        (lambda: ka.vjp(ka.gated_linear_attention_step, None, q, k, v), "function must be one of linear_attention"),
        (lambda: ka.vjp(ka.linear_attention, q, k, v, maps.make("polynomial")), "a map with a spec"),
        (lambda: ka.with_numbers(phi, offset=q), "a map with one spec that has offset"),
        (lambda: ka.with_numbers(phi, lengthscale=q), "kernel with a lengthscale"),
        (lambda: ka.with_numbers(phi, scale=np.asarray(-1.0)), "scale must be positive; got -1.0"),
        (lambda: ka.with_numbers(phi, scale=np.asarray(np.nan)), "scale must be positive; got nan"),
        (lambda: ka.with_numbers(phi, omega=phi.spec.omega * np.inf), "omega must hold finite numbers"),
        (lambda: ka.vjp(ka.causal_linear_attention, q, k, v, phi)[1](q), "must be a pair"),
    ]:
        with pytest.raises(error, match=words):
            call()
    out, back = ka.vjp(ka.linear_attention, q, k, v, phi)
    with pytest.raises(ka.errors.ShapeError, match="the result's shape"):
        back(out[..., :1])
    with pytest.raises(ka.errors.DTypeError, match="the result's dtype"):
        back(out.astype(np.float32))
    with pytest.raises(ka.errors.DTypeError, match="must be a LinearState"):
        ka.vjp(ka.key_state, k, v, phi)[1](v)
    with pytest.raises(TypeError, match="phi"):
        ka.vjp(ka.linear_attention, q, k, v)
    with pytest.raises(ka.errors.BackendUnavailable, match="backend 'gpu'"):
        ka.vjp(phi, q, backend="gpu")


def test_a_number_is_learnt_by_steps_of_numpy():
    """A step makes a scalar of an array (); the map takes it."""
    phi = ka.random_features(ka.kernels.Gaussian(lengthscale=2.0), D, 16, rng=1)
    q, *_ = inputs()
    lengthscale = np.asarray(2.0)
    for _ in range(2):
        out, back = ka.vjp(ka.with_numbers(phi, lengthscale=lengthscale), q)
        lengthscale = lengthscale - 1e-3 * back(out).phi.lengthscale
    assert isinstance(lengthscale, np.generic)
    with pytest.raises(ka.errors.ParameterError, match="save `base`, and `numbers` beside it"):
        ka.with_numbers(phi, lengthscale=lengthscale).save("map.npz")


def test_the_old_spelling_of_what_is_learnt_works_and_warns():
    q, k, v, *_ = inputs()
    phi = maps.make("positive-softmax")
    numbers = {"omega": phi.spec.omega, "scale": np.asarray(D**-0.5)}
    out, back = ka.vjp(ka.linear_attention, q, k, v, ka.with_numbers(phi, **numbers))
    with pytest.warns(DeprecationWarning, match="with_numbers"):
        _, old = ka.vjp(ka.linear_attention, q, k, v, phi, learn=("omega", "scale"))
    for name in numbers:
        np.testing.assert_allclose(getattr(old(out).phi, name), getattr(back(out).phi, name), rtol=1e-12)
    for names, words in [("omega", "a tuple of names"), (("kernel",), "one of omega, offset")]:
        with (
            pytest.warns(DeprecationWarning, match="with_numbers"),
            pytest.raises(ka.errors.ParameterError, match=words),
        ):
            ka.vjp(ka.linear_attention, q, k, v, phi, learn=names)
    with (
        pytest.warns(DeprecationWarning, match="with_numbers"),
        pytest.raises(ka.errors.ParameterError, match="which has no map"),
    ):
        ka.vjp(ka.softmax_attention, q, k, v, learn=("scale",))


def test_a_scale_that_is_an_array_is_learnt():
    q, k, v, *_ = inputs()
    out, back = ka.vjp(ka.softmax_attention, q, k, v, scale=0.3)
    same, array = ka.vjp(ka.softmax_attention, q, k, v, scale=np.asarray(0.3))
    np.testing.assert_allclose(same, out, rtol=1e-12)
    for x, y in zip(array(out)[:4], back(out)[:4], strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)
