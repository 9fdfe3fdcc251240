"""Exact weights on a window and those of features before it: a dense oracle, laws, pieces and tokens."""

import numpy as np
import pytest

import kernattn as ka
from attention.window_cases import FITTED, MAPS, POSITIVE, A, N, oracle, pieces, tokens
from kernattn._sums.peaked import PeakedSum
from kernattn.errors import DTypeError, ParameterError, ShapeError, StateMismatchError
from kernattn.ops.window_step import OP as STEP
from refusals import refused
from xp import KINDS, to_numpy


@pytest.mark.parametrize("backend", [None, "reference"])
@pytest.mark.parametrize(
    ("phi", "window"), [("positive", 7), ("trigonometric", 64), ("another scale", 1), ("elu1", 33), ("computed", 100)]
)
def test_agrees_with_the_oracle_whole_and_in_pieces(phi, window, backend):
    given, phi = tokens(), MAPS[phi]
    bias = np.array([[0.4], [-1.0]])
    wanted = oracle(*given, phi, window, bias=np.broadcast_to(bias, (2, 2, 2)))
    options = {"near_bias": bias, "backend": backend}
    out, state = A.window_attention(*given, phi, window, **options)
    np.testing.assert_allclose(out, wanted, rtol=1e-9, atol=1e-10)
    found, last = pieces((40, 41, 90), given, phi, window, **options)
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-10)
    for name in ("k", "v", "present"):
        np.testing.assert_array_equal(getattr(last, name), getattr(state, name))
    np.testing.assert_allclose(*(A.attend(x.linear, given[0], phi) for x in (state, last)), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-5), ("float16", 2e-3)])
def test_narrow_inputs(dtype, tolerance):
    given = tokens(dtype=dtype)
    out, state = A.window_attention(*given, POSITIVE, 20)
    assert out.dtype == state.k.dtype == dtype
    assert state.s.dtype == "float32"
    np.testing.assert_allclose(to_numpy(out), oracle(*given, POSITIVE, 20), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("backend", [None, "reference"])
def test_ends(backend):
    """No window is linear attention, one of all tokens exact attention."""
    given = tokens()
    out, state = A.window_attention(*given, POSITIVE, 0, backend=backend)
    linear, last = ka.causal_linear_attention(*given, POSITIVE, backend=backend)
    np.testing.assert_allclose(out, linear, rtol=1e-12)
    np.testing.assert_array_equal(state.s, last.s)
    out, state = A.window_attention(*given, POSITIVE, N, backend=backend)
    np.testing.assert_allclose(out, ka.softmax_attention(*given, causal=True), rtol=1e-12)
    assert not state.z.any()


def test_tokens_one_by_one_in_memory_of_one_size():
    given = tokens()
    wanted = oracle(*given, POSITIVE, 9)
    state = A.initial_window_state(POSITIVE, 9, (2, 2, 1), 3, like=given[1])
    sizes = {sum(x.nbytes for x in state[:-1])}
    for t in range(60):
        out, state = A.window_attention_step(state, *(x[..., t, :] for x in given), POSITIVE)
        np.testing.assert_allclose(out, wanted[..., t, :], rtol=1e-9, atol=1e-10)
        sizes.add(sum(x.nbytes for x in state[:-1]))
    assert len(sizes) == 1
    assert all(x.base is None or x.base.nbytes <= 2 * x.nbytes for x in state[:-1])  # no view of all tokens


@pytest.mark.parametrize("name", ["positive", "trigonometric", "fitted"])
def test_a_step_in_loops_is_that_of_array_operations(name):
    """Of heads that share keys, with biases, tokens masked in one sequence alone, and in narrow dtypes."""
    phi, bias = FITTED if name == "fitted" else MAPS[name], np.array([[0.4], [-1.0]])
    q, k, v = tokens(30, seed=11)
    mask = np.random.default_rng(2).random((2, 1, 1, 30)) < 0.7
    states = [A.initial_window_state(phi, 5, (2, 2, 1), 3, like=k)] * 2
    for t in range(30):
        given = [x[..., t, :] for x in (q, k, v)]
        before = [x.copy() for x in (*given, *states[0][:-1])]
        made = [
            A.window_attention_step(each, *given, phi, key_mask=mask[..., t], near_bias=bias, backend=backend)
            for each, backend in zip(states, ("cpu", "reference"), strict=True)
        ]
        for x, y in zip((*given, *states[0][:-1]), before, strict=True):
            np.testing.assert_array_equal(x, y)  # nothing is written into
        (out, states[0]), (wanted, states[1]) = made
        np.testing.assert_allclose(out, wanted, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(*(x.z * np.exp(x.peak) for x in states), rtol=1e-9)
        np.testing.assert_allclose(*(x.s * np.exp(x.peak)[..., None] for x in states), rtol=1e-9, atol=1e-10)
        there = states[0].present[..., None]  # where there is no token, anything may stand
        np.testing.assert_array_equal(states[0].present, states[1].present)
        np.testing.assert_array_equal(states[0].k * there, states[1].k * there)
    for dtype, tolerance in (("float32", 1e-5), ("float16", 2e-3)) if name == "positive" else ():
        state = A.WindowState(
            *(x.astype("float32") for x in states[1][:3]), *(x.astype(dtype) for x in states[1][3:5]), *states[1][5:]
        )
        out, after = A.window_attention_step(state, *(x.astype(dtype) for x in given), phi, near_bias=bias)
        wanted, _ = A.window_attention_step(states[1], *given, phi, near_bias=bias, backend="reference")
        assert out.dtype == after.k.dtype == dtype
        np.testing.assert_allclose(out, wanted, rtol=tolerance, atol=tolerance)


def test_a_step_by_its_array_operations_is_that_of_the_loop():
    given = tokens(9, seed=12)
    state = A.window_attention(*(x[..., :8, :] for x in given), POSITIVE, 4)[1]
    q, k, v = (x[..., 8, :] for x in given)
    mask, bias = np.array([[[True]], [[False]]]), np.full((2, 2, 2), 0.3)
    arguments = (*state[3:6], q, k, v, POSITIVE.query_spec, POSITIVE.key_spec, 0.5, mask, bias)
    sums = PeakedSum(*state[:3])
    (out, *rest), (wanted, *same) = (STEP.function(name)(sums, *arguments) for name in ("cpu", "reference"))
    np.testing.assert_allclose(out, wanted, rtol=1e-12, atol=1e-13)
    for x, y in zip(rest[1:], same[1:], strict=True):
        np.testing.assert_array_equal(x, y)
    np.testing.assert_allclose(*(x.z * np.exp(x.peak) for x in (rest[0], same[0])), rtol=1e-12)
    np.testing.assert_allclose(*(x.s * np.exp(x.peak)[..., None] for x in (rest[0], same[0])), rtol=1e-12, atol=1e-13)


def test_a_step_of_values_near_the_end_of_floats_is_that_of_whole_sequences():
    q, k, v = (x.astype("float32") for x in tokens(9, seed=12))
    v = v * np.float32(1e38)
    state = A.window_attention(*(x[..., :8, :] for x in (q, k, v)), POSITIVE, 4)[1]
    out, _ = A.window_attention_step(state, *(x[..., 8, :] for x in (q, k, v)), POSITIVE)
    wanted, _ = A.window_attention(q, k, v, POSITIVE, 4)
    np.testing.assert_allclose(out, wanted[..., 8, :], rtol=1e-5)


@pytest.mark.parametrize("backend", [None, "reference"])
def test_masked_tokens_are_as_none(backend):
    """Wherever they stand, and whatever; in pieces, too."""
    q, k, v = tokens()
    mask = np.random.default_rng(2).random((2, 1, 1, N)) < 0.6
    mask[0, ..., 100:], mask[1, ..., :30] = False, False  # padded behind, and before
    for x in (q, k, v):
        x[np.broadcast_to(~mask, x.shape[:-1])] = np.nan
    out, state = A.window_attention(q, k, v, POSITIVE, 11, key_mask=mask, backend=backend)
    found, last = pieces((33, 90), (q, k, v), POSITIVE, 11, key_mask=mask, backend=backend)
    for at, there in enumerate(mask[:, 0, 0]):
        wanted = oracle(*(x[at][..., there, :] for x in (q, k, v)), POSITIVE, 11)
        for each in (out, found):
            np.testing.assert_allclose(each[at][..., there, :], wanted, rtol=1e-9, atol=1e-10)
            assert not each[at][..., ~there, :].any()
        np.testing.assert_array_equal(state.k[at], k[at][..., there, :][..., -11:, :])
    np.testing.assert_array_equal(last.k, state.k)
    nobody = np.zeros((2, 1, 1), bool)
    token = [x[..., 0, :] for x in (q, k, v)]
    none, same = A.window_attention_step(state, *token, POSITIVE, key_mask=nobody, backend=backend)
    assert not none.any()
    for x, y in zip(same[:-1], state[:-1], strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("backend", [None, "reference"])
def test_segments(backend):
    given = tokens()
    ids = np.sort(np.random.default_rng(3).integers(0, 4, (2, 1, 1, N)), axis=-1)
    out, state = A.window_attention(*given, POSITIVE, 10, segment_ids=ids, backend=backend)
    np.testing.assert_allclose(out, oracle(*given, POSITIVE, 10, ids), rtol=1e-9, atol=1e-10)
    cut = next(t for t in range(60, N) if (ids[..., t] == ids[..., t - 1]).all())
    found, last = pieces((cut,), given, POSITIVE, 10, segment_ids=ids, backend=backend)
    np.testing.assert_allclose(found, out, rtol=1e-9, atol=1e-10)
    more = tokens(5, seed=4)
    ends = [A.window_attention(*more, POSITIVE, 10, state=x, backend=backend)[0] for x in (state, last)]
    np.testing.assert_allclose(*ends, rtol=1e-9, atol=1e-10)
    alone = [x[:1, ..., ids[0, 0, 0] == ids[0, 0, 0, -1], :] for x in given]
    wanted = A.window_attention(*alone, POSITIVE, 10)[1]
    np.testing.assert_allclose(
        A.window_attention(*(x[:1] for x in more), POSITIVE, 10, state=wanted)[0], ends[0][:1], rtol=1e-9, atol=1e-10
    )


@pytest.mark.parametrize("window", [0, 3, N])
def test_pieces_of_segments_of_which_none_but_masked_tokens_came_yet(window):
    """A segment forgets the one before when it begins, whether or not its first tokens are there."""
    given, rng = tokens(), np.random.default_rng(5)
    ids, mask = np.arange(N) // 12, rng.random((2, 1, 1, N)) < 0.5
    mask[0, ..., 72:76] = mask[1, ..., 24:90] = False
    options = {"segment_ids": ids, "key_mask": mask}
    out, _ = A.window_attention(*given, POSITIVE, window, **options)
    for cuts in ((76,), (30, 76, 88)):
        found, _ = pieces(cuts, given, POSITIVE, window, **options)
        np.testing.assert_allclose(found, out, rtol=1e-9, atol=1e-10)
    there = mask[0, 0, 0]
    alone = A.window_attention(*(x[:1, ..., there, :] for x in given), POSITIVE, window, segment_ids=ids[there])[0]
    np.testing.assert_allclose(out[:1][..., there, :], alone, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("backend", [None, "reference"])
def test_blind_to_what_comes(backend):
    """Bit for bit."""
    given = tokens(seed=5)
    before, _ = A.window_attention(*given, POSITIVE, 70, backend=backend)
    for what in (np.nan, 1e6, -3.0):
        other = [x.copy() for x in given]
        for x in other:
            x[..., 97:, :] = what
        after, _ = A.window_attention(*other, POSITIVE, 70, backend=backend)
        np.testing.assert_array_equal(after[..., :97, :], before[..., :97, :])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.name in ("strict", "torch", "jax")], ids=repr)
def test_every_library(kind):
    given = tokens(40)
    mask = np.random.default_rng(9).random((2, 1, 1, 40)) < 0.7
    wanted, state = A.window_attention(*given, POSITIVE, 6, key_mask=mask, near_bias=0.5)
    with kind.wide():
        run = kind.whole(lambda *x: A.window_attention(*x[:3], POSITIVE, 6, key_mask=x[3], near_bias=0.5))
        out, after = run(*map(kind.asarray, (*given, mask)))
        assert kind.holds(out)
        np.testing.assert_allclose(to_numpy(out), wanted, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(to_numpy(after.v), state.v)


def test_states_are_kept_and_put_in_order(tmp_path):
    state = A.window_attention(*tokens(), POSITIVE, 12)[1]
    more = tokens(3, seed=4)
    wanted, _ = A.window_attention(*more, POSITIVE, 12, state=state)
    ka.save_state(state, tmp_path / "state.npz")
    order = [1, 0, 1]
    again = ka.take_states(ka.load_state(tmp_path / "state.npz"), order)
    out, _ = A.window_attention(*(x[order] for x in more), POSITIVE, 12, state=again)
    np.testing.assert_array_equal(out, wanted[order])


def test_a_number_for_a_bias_beside_gradients_of_torch():
    torch = pytest.importorskip("torch")
    given = tokens(6)
    (out, _), pullback = ka.vjp(A.window_attention, *given, POSITIVE, 4, near_bias=np.asarray(0.5, given[0].dtype))
    tensors = [torch.tensor(x, requires_grad=True) for x in given]
    A.window_attention(*tensors, POSITIVE, 4, near_bias=0.5)[0].sum().backward()
    for x, wanted in zip(tensors, pullback((np.ones_like(out), None)), strict=False):
        np.testing.assert_allclose(x.grad.numpy(), wanted, rtol=1e-4, atol=1e-6)


def test_bad_input_is_refused():
    q, k, v = tokens(6)
    state = A.window_attention(q, k, v, POSITIVE, 4)[1]
    with refused(ParameterError, "window", "-1"):
        A.window_attention(q, k, v, POSITIVE, -1)
    with refused(StateMismatchError, "state.k", "5"):
        A.window_attention(q, k, v, POSITIVE, 5, state=state)
    with refused(DTypeError, "WindowState", "LinearState"):
        A.window_attention(q, k, v, POSITIVE, 4, state=state.linear)
    token = [x[..., 0, :] for x in (q, k, v)]
    with refused(DTypeError, "WindowState", "LinearState"):
        A.window_attention_step(state.linear, *token, POSITIVE)
    with refused(DTypeError, "state.k must be an array", "NoneType"):
        A.window_attention_step(state._replace(k=None), *token, POSITIVE)
    with refused(ParameterError, "backend must be None or one of"):
        A.window_attention_step(state, *token, POSITIVE, backend=np.zeros(3))
    with refused(StateMismatchError, "fingerprint"):
        A.window_attention(q, k, v, POSITIVE.redraw(5), 4, state=state)
    with refused(ParameterError, "the window", "more than 2**70 GiB"):
        A.initial_window_state(POSITIVE, 10**400, (), 1, like=q)
    with refused(ParameterError, "the state's window", "GiB"):
        A.window_attention(q, k, v, POSITIVE, 2**60)
    with refused(ShapeError, "near_bias", "(3,)"):
        A.window_attention(q, k, v, POSITIVE, 4, near_bias=np.zeros(3))
    with refused(ShapeError, "as many queries"):
        A.window_attention(q[..., 1:, :], k, v, POSITIVE, 4)
    with refused(ParameterError, "segment_ids", "one stretch"):
        A.scatterbrain_attention(q, k, v, POSITIVE, ka.patterns.sinks(1), segment_ids=np.zeros(6, int))
    with refused(ParameterError, "one stretch"):
        ka.vjp(A.scatterbrain_attention, q, k, v, POSITIVE, ka.patterns.local(2, dilation=2))


@pytest.mark.parametrize("backend", [None, "reference"])
def test_a_bias_that_is_a_number_keeps_its_digits_beside_16_bits(backend):
    phi, zero, v = 2980.0 * POSITIVE, np.zeros((2, 4), np.float16), np.array([[0], [1]], np.float16)
    wanted = 1 / (1 + 2980 / np.exp(7.998))  # rounded to float16, the bias would be 0.002 less
    out, _ = A.window_attention(zero, zero, v, phi, 1, near_bias=7.998, backend=backend)
    np.testing.assert_allclose(out[1], wanted, rtol=2**-11)
    _, state = A.window_attention(zero[:1], zero[:1], v[:1], phi, 1, near_bias=7.998, backend=backend)
    out, _ = A.window_attention_step(state, zero[1], zero[1], v[1], phi, near_bias=7.998, backend=backend)
    np.testing.assert_allclose(out, wanted, rtol=2**-11)
