"""A step that writes its output where it is told to: the same numbers, and outputs that do not fit are refused."""

import numpy as np
import pytest

import kernattn as ka
import laws
from kernattn import errors
from refusals import DRAWN, PHI, refused, step, x
from xp import NUMPY, Kind, numpy_dtype

F32 = np.float32


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("phi", [PHI, DRAWN, ka.features.polynomial(2)], ids=["elu1", "positive", "no spec"])
def test_out_is_filled_and_returned(backend, dtype, phi):
    if backend.kind.name == "cupy" and dtype == "bfloat16":
        pytest.skip("tests/gpu")
    q, k, v = laws.arrays(0, (2, 3, 4), (2, 1, 4), (2, 1, 5), dtype=dtype)
    state = ka.key_state(*(backend.kind.asarray(a[..., None, :]) for a in (k, v)), phi, backend=backend.name)
    given = [backend.kind.asarray(a) for a in (q, k, v)]
    wanted, after = ka.linear_attention_step(state, *given, phi, backend=backend.name)
    out = backend.kind.asarray(np.full((2, 3, 5), np.nan, numpy_dtype(dtype)))
    for reuse in (False, True):
        got, state_after = ka.linear_attention_step(
            state, *given, phi, backend=backend.name, out=out, reuse_state=reuse
        )
        assert got is out
        laws.close(out, wanted, 0, "out")
        laws.close(state_after.s, after.s, 0, "s")
        out[...] = np.nan


def test_outputs_that_do_not_fit():
    q, k, v = x(3, 4), x(4), x(2)
    with refused(errors.ShapeError, "out", "(3, 2)", "(2,)"):
        step(q, k, v, out=x(2))
    with refused(errors.DTypeError, "out", "float32", "float64"):
        step(q, k, v, out=x(3, 2, dtype=np.float64))
    with refused(errors.DTypeError, "out", "NumPy", "list"):
        step(q, k, v, out=[0.0])
    with refused(errors.DTypeError, "out", "NumPy, CuPy or PyTorch", "array_api_strict"):
        step(q, k, v, out=Kind("strict").asarray(x(3, 2)))
    with refused(errors.ParameterError, "out", "C-contiguous", "strides (4, 12)"):
        step(q, k, v, out=x(2, 3).T)
    fixed = x(3, 2)
    fixed.flags.writeable = False
    with refused(errors.ParameterError, "out", "writeable", "read-only"):
        step(q, k, v, out=fixed)


@pytest.mark.parametrize("name", ["q", "k", "v", "s", "z", "peak", "key_mask"])
def test_outputs_that_overlap(name):
    """Every argument in turn shares its first number with `out`."""
    memory = np.zeros(100, F32)
    out, shared = memory[10:14].reshape(2, 2), memory[13:]
    state = ka.initial_state(PHI, (2,), 2, like=x(2))
    arguments = {"q": x(2, 2), "k": x(2, 2), "v": x(2, 2), "key_mask": np.ones(2, bool)} | state._asdict()
    old = arguments[name]
    arguments[name] = shared.view(old.dtype)[: old.size].reshape(old.shape)
    state = state._replace(**{part: arguments.pop(part) for part in ("s", "z", "peak")})
    arguments.pop("fingerprint")
    with refused(errors.ParameterError, "out", f"overlaps that of {name}"):
        ka.linear_attention_step(state, **arguments, phi=PHI, out=out)
    assert not memory.any()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_tensors(dtype):
    torch = pytest.importorskip("torch")
    q, k, v = laws.arrays(0, (3, 4), (3, 4), (3, 5), dtype=dtype)
    given = [Kind("torch").asarray(a, dtype) for a in (q, k, v)]
    state = ka.initial_state(PHI, (3,), 5, like=given[0])
    out = torch.full((3, 5), torch.nan, dtype=getattr(torch, dtype))
    wanted, _ = ka.linear_attention_step(ka.initial_state(PHI, (3,), 5, like=q), q, k, v, PHI)
    for backend in (None, "reference"):
        got, _ = ka.linear_attention_step(state, *given, PHI, out=out, backend=backend)
        assert got is out
        laws.close(out, wanted, 1e-6 if dtype == "float32" else 1e-2, "out")
    with refused(errors.ParameterError, "out", "C-contiguous", "strides (1, 3)"):
        ka.linear_attention_step(state, *given, PHI, out=torch.zeros(5, 3, dtype=out.dtype).T)
    with refused(errors.ParameterError, "out", "gradient"):
        ka.linear_attention_step(state, *given, PHI, out=torch.zeros(3, 5, dtype=out.dtype, requires_grad=True))
    with refused(errors.ParameterError, "out", "overlaps that of v"):
        ka.linear_attention_step(state, *given, PHI, out=given[2].view(3, 5))
    with refused(errors.MixedLibraryError, "out", "v"):
        ka.linear_attention_step(state, *given, PHI, out=NUMPY.asarray(v))


@pytest.mark.parametrize("backend", [None, "reference"])
def test_out_is_refused_where_a_gradient_is_recorded(backend):
    """At each call, whatever asks for it, and before anything is written; without a gradient it is filled."""
    torch = pytest.importorskip("torch")
    x, v, out = torch.ones(4), torch.full((2,), 3.0), torch.ones(2)
    plain = {"q": x, "k": x, "v": v}
    sums, gated = ka.initial_state(PHI, (), 2, like=x), ka.attention.GatedState(torch.ones(4, 2))
    learnt = ka.with_numbers(DRAWN, scale=torch.tensor(0.5, requires_grad=True))

    def recorded(state, given, name):
        given = {**given, **state._asdict()}
        given[name] = given[name].clone().requires_grad_()
        return type(state)(*(given[each] for each in state._fields)), {each: given[each] for each in plain}

    def step(state, given, phi=PHI, **options):
        return ka.linear_attention_step(state, **given, phi=phi, backend=backend, out=out, **options)

    def gated_step(state, given, **options):
        return ka.gated_linear_attention_step(state, **given, backend=backend, out=out, **options)

    drawn = ka.initial_state(DRAWN, (), 2, like=x)
    g = torch.tensor(-0.5, requires_grad=True)
    calls = [(step, *recorded(sums, plain, name), {}) for name in ("q", "k", "v", "s", "z")]
    calls += [(gated_step, *recorded(gated, plain, name), {}) for name in ("q", "k", "v", "s")]
    calls += [
        (step, drawn, plain, {"phi": learnt}),
        (step, sums, plain, {"g": g}),
        (gated_step, gated, plain, {"g": g}),
    ]
    for call, state, given, options in calls:
        for _ in range(2):
            with refused(errors.ParameterError, "out must be None", "gradient"):
                call(state, given, **options)
        assert out.eq(1).all()
        with torch.no_grad():
            assert call(state, given, **options)[0] is out
        assert not out.requires_grad
        out.fill_(1)


def test_arrays_that_cannot_be_written_to_have_no_out():
    jnp = pytest.importorskip("jax.numpy")
    state = ka.initial_state(PHI, (), 2, like=jnp.ones(4))
    with refused(errors.DTypeError, "out", "jax"):
        ka.linear_attention_step(state, jnp.ones(4), jnp.ones(4), jnp.ones(2), PHI, out=jnp.ones(2))
