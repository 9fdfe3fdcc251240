"""Arrays in, the same kind of array out: same device, same dtype, inputs untouched, whatever their strides."""

import numpy as np
import pytest

import kernattn as ka
import laws
import maps
from xp import NUMPY, dtype_name, to_numpy

STATE_DTYPE = {"float16": "float32", "bfloat16": "float32", "float32": "float32", "float64": "float64"}
SOME = ["elu1", "relu", "polynomial", "generalized-sigmoid", "trigonometric-ard", "positive-softmax", "hyperbolic-ard"]


def every_form(phi, q, k, v, mask, ids):
    """-> every array that the linear forms return, by name; one-token inputs are the first rows."""
    out, state = ka.causal_linear_attention(q, k, v, phi, key_mask=mask, segment_ids=ids)
    first, begun = ka.causal_linear_attention(q, k, v, phi, state=state)
    token = [x[..., 0, :] for x in (q, k, v)]
    empty = ka.initial_state(phi, tuple(v.shape[:-2]), v.shape[-1], like=k)
    stepped, after = ka.linear_attention_step(empty, *token, phi, key_mask=mask[..., 0])
    summed = ka.key_state(k, v, phi, key_mask=mask)
    arrays = {
        "linear": ka.linear_attention(q, k, v, phi, key_mask=mask),
        "causal": out,
        "resumed": first,
        "step": stepped,
        "attend": ka.attend(ka.merge_states(summed, empty), q, phi),
        "softmax": ka.softmax_attention(q, k, v, causal=True, key_mask=mask),
    }
    return arrays, [state, begun, after, summed]


@pytest.mark.parametrize("name", SOME)
def test_the_same_kind_comes_out(name, xp):
    phi = maps.make(name)
    run, dtypes = every_form, xp.dtypes
    if xp.name == "jax":  # every dtype of every map is compiled
        import jax

        if name not in ("polynomial", "positive-softmax"):
            pytest.skip("test_jax.py has it")
        run, dtypes = (
            jax.jit(every_form, static_argnums=0),
            ["float64"] if name == "polynomial" else ["float32", "bfloat16"],
        )
    for dtype in dtypes:
        q, k, v = laws.arrays(1, (2, 10, maps.DIM), (2, 10, maps.DIM), (2, 10, 3), dtype=dtype)
        mask, ids = np.arange(10) % 3 != 1, np.arange(10) // 6
        wanted, _ = every_form(phi, *(to_numpy(x) for x in (q, k, v)), mask, ids)
        with xp.wide():
            given = [xp.asarray(x) for x in (q, k, v)]
            arrays, states = run(phi, *given, xp.asarray(mask), xp.asarray(ids))
        rounding = max(laws.ROUNDING[dtype], laws.BASE[dtype])
        for form, got in arrays.items():
            assert xp.holds(got), form
            assert dtype_name(got) == dtype, form
            scale = max(1.0, np.abs(wanted[form]).max())
            laws.close(got, wanted[form], 20 * rounding * scale, f"{form} in {dtype}")
        for state in states:
            assert isinstance(state, ka.LinearState)
            assert int(state.fingerprint) == phi.fingerprint
            assert all(xp.holds(x) and dtype_name(x) == STATE_DTYPE[dtype] for x in state[:3])
        for before, after in zip((q, k, v), given, strict=True):
            np.testing.assert_array_equal(to_numpy(after), to_numpy(before), err_msg="an input was written")


def strided(x):
    """The same values in other memory."""
    wide = np.repeat(np.repeat(x, 2, axis=-1), 3, axis=-2)
    yield "steps", wide[..., ::3, ::2]
    yield "reversed", np.ascontiguousarray(x[..., ::-1, ::-1])[..., ::-1, ::-1]
    yield "fortran", np.asfortranarray(x)
    yield "transposed", np.ascontiguousarray(np.swapaxes(x, -1, -2)).swapaxes(-1, -2)
    yield "unaligned", np.frombuffer(b"\0" + x.tobytes(), dtype=np.uint8)[1:].view(x.dtype).reshape(x.shape)


@pytest.mark.parametrize("name", SOME)
def test_any_strides(name, backend):
    phi = maps.make(name)
    q, k, v = laws.arrays(2, (2, 9, maps.DIM), (2, 9, maps.DIM), (2, 9, 3))
    if backend.kind is not NUMPY:
        pytest.skip("strided NumPy arrays are for backends that take them")
    wanted = ka.causal_linear_attention(q, k, v, phi, backend=backend.name)[0]
    everything = ka.linear_attention(q, k, v, phi, backend=backend.name)
    for (layout, q_), (_, k_), (_, v_) in zip(strided(q), strided(k), strided(v), strict=True):
        got = ka.causal_linear_attention(q_, k_, v_, phi, backend=backend.name)[0]
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5, err_msg=layout)
        got = ka.linear_attention(q_, k_, v_, phi, backend=backend.name)
        np.testing.assert_allclose(got, everything, rtol=1e-4, atol=1e-5, err_msg=layout)


def test_broadcast_views(backend):
    """Zero strides: one key head for every group, without a copy by the caller."""
    phi = maps.make("positive-softmax")
    q, k, v = laws.arrays(3, (4, 9, maps.DIM), (9, maps.DIM), (9, 3))
    views = [np.broadcast_to(x, (4, *x.shape)) for x in (k, v)]
    if backend.kind is not NUMPY:
        views = [x.copy() for x in views]
    for got, wanted in zip(laws.causal(phi, q, *views, backend)[0], laws.causal(phi, q, k, v, backend)[0], strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SOME)
def test_the_device_is_kept(name):
    """array-api-strict has devices that do not mix."""
    strict = pytest.importorskip("array_api_strict")
    device = strict.Device("device1")
    phi = maps.make(name)
    q, k, v = (
        strict.asarray(x, device=device) for x in laws.arrays(1, (2, 10, maps.DIM), (2, 10, maps.DIM), (2, 10, 3))
    )
    mask, ids = (strict.asarray(x, device=device) for x in (np.arange(10) % 3 != 1, np.arange(10) // 6))
    arrays, states = every_form(phi, q, k, v, mask, ids)
    for form, got in [*arrays.items(), ("features", phi(q)), ("mean", got_or_none(phi, q))]:
        assert got is None or got.device == device, form
    for state in states:
        assert all(x.device == device for x in state[:3])


def got_or_none(phi, x):
    try:
        return phi.mean(x, x)
    except ka.errors.NoClosedForm:
        return None


def test_a_device_without_float64():
    """float32 work never makes a float64 array on the device."""
    strict = pytest.importorskip("array_api_strict")
    device = strict.Device("no_float64")
    q, k, v = (
        strict.asarray(x, device=device) for x in laws.arrays(1, (2, 10, maps.DIM), (2, 10, maps.DIM), (2, 10, 3))
    )
    mask, ids = (strict.asarray(x, device=device) for x in (np.arange(10) % 3 != 1, np.arange(10) // 6))
    for name in maps.MAPS:
        arrays, _ = every_form(maps.make(name), q, k, v, mask, ids)
        assert all(str(x.dtype).endswith("float32") for x in arrays.values()), name


def test_numpy_inputs_are_never_written(backend):
    phi = maps.make("positive-ard")
    q, k, v = laws.arrays(4, (2, 70, maps.DIM), (2, 70, maps.DIM), (2, 70, 3))
    copies = [x.copy() for x in (q, k, v)]
    _, state = laws.causal(phi, q, k, v, backend)
    kept = [to_numpy(x).copy() for x in state[:3]]
    laws.causal(phi, q, k, v, backend, state=state)
    laws.steps(phi, q[:, :3], k[:, :3], v[:, :3], backend, state=state)
    laws.attend(phi, state, q, backend)
    ka.merge_states(state, state)
    for x, y in zip((q, k, v, *state[:3]), (*copies, *kept), strict=True):
        np.testing.assert_array_equal(to_numpy(x), y)


def test_results_share_no_memory_with_inputs(backend):
    phi = maps.make("elu1")
    q, k, v = laws.arrays(4, (1, maps.DIM), (1, maps.DIM), (1, 3))
    if backend.kind is not NUMPY:
        pytest.skip("NumPy only")
    out, state = ka.causal_linear_attention(q, k, v, phi, backend=backend.name)
    summed = ka.key_state(k, v, phi, backend=backend.name)
    for x in (out, *state[:3], *summed[:3]):
        assert not any(np.shares_memory(x, y) for y in (q, k, v))
