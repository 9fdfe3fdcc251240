"""Arrays that hold no numbers where these are read, and states that are none: refused in words, before any work."""

import numpy as np
import pytest
from scipy import sparse

import kernattn as ka
from kernattn import errors
from refusals import DRAWN, refused, x

K = ka.kernels
ROWS = x(5, 4)
STATE = ka.key_state(ROWS, ROWS, DRAWN, backend="reference")  # made by every worker: nothing to compile


def test_masked_arrays():
    masked = np.ma.array(ROWS, mask=ROWS > 2)
    ka.linear_attention(ROWS, ROWS, ROWS, DRAWN)
    for call in (
        lambda: ka.linear_attention(masked, ROWS, ROWS, DRAWN),
        lambda: ka.softmax_attention(ROWS, masked, ROWS),
        lambda: ka.linear_attention(ROWS, ROWS, ROWS, DRAWN, key_mask=np.ma.array(np.ones(5, bool))),
        lambda: ka.causal_linear_attention(ROWS, ROWS, ROWS, DRAWN, segment_ids=np.ma.array(np.zeros(5, int))),
        lambda: K.Gaussian()(masked),
        lambda: DRAWN(masked),
        lambda: ka.random_features(K.Gaussian(), 4, 8, data=masked, rng=0),
        lambda: DRAWN.variance(masked, ROWS),
    ):
        with refused(errors.DTypeError, "without a mask", "masked array"):
            call()


def test_sparse_matrices():
    with refused(errors.DTypeError, "q must be a dense array", "toarray", "csr"):
        ka.linear_attention(sparse.csr_array(ROWS), ROWS, ROWS, DRAWN)
    with refused(errors.DTypeError, "CSR", "coo", "tocsr"):
        K.Gaussian()(sparse.coo_array(ROWS))


@pytest.mark.parametrize(
    ("part", "value"), [("indices", [0, 1, 99]), ("indices", [0, -1, 2]), ("indptr", [0, 2, 9]), ("indptr", [0, 9, 3])]
)
def test_csr_matrices_that_point_elsewhere(part, value):
    phi = ka.random_features(K.Polynomial(2), 4, 8, rng=0)
    rows = sparse.csr_array(np.array([[1.0, 2.0, 0.0, 0.0], [0.0, 0.0, 3.0, 0.0]]))
    assert phi(rows).shape == (2, 8)
    setattr(rows, part, np.array(value, np.int32))
    with refused(errors.ShapeError, "CSR", "columns 0 to 3"):
        phi(rows)


def test_tensors_without_numbers_in_strides():
    torch = pytest.importorskip("torch")
    rows = torch.ones(5, 4)
    ka.softmax_attention(rows, rows, rows)
    for given, word in ((rows.to_sparse(), "to_dense"), (torch.ones(5, 4, device="meta"), "meta")):
        with refused(errors.DTypeError, word):
            ka.softmax_attention(given, rows, rows)
        with refused(errors.DTypeError, word):
            DRAWN(given)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_have_no_shape():
    torch = pytest.importorskip("torch")
    nested = torch.nested.nested_tensor([torch.ones(3, 4), torch.ones(2, 4)], layout=torch.strided)
    state = ka.initial_state(DRAWN, (2,), 4, like=torch.ones(2, 4))
    for call in (
        lambda: ka.linear_attention(nested, nested, nested, DRAWN),
        lambda: ka.softmax_attention(nested, nested, nested),
        lambda: ka.linear_attention_step(state, nested, nested, nested, DRAWN),
    ):
        with refused(errors.DTypeError, "q must be a dense tensor", "to_padded_tensor", "nested"):
            call()


def test_arrays_that_jax_has_deleted():
    jax = pytest.importorskip("jax")
    rows, gone = (jax.numpy.asarray(ROWS.astype("f4")) for _ in range(2))
    for backend in (None, "reference"):
        ka.linear_attention(rows, rows, rows, DRAWN, backend=backend)  # the form passes from now on
    gone.delete()
    for call in (
        lambda: ka.linear_attention(rows, gone, rows, DRAWN),
        lambda: ka.linear_attention(rows, gone, rows, DRAWN, backend="reference"),
        lambda: ka.softmax_attention(gone, gone, gone),
        lambda: DRAWN(gone),
    ):
        with refused(errors.DTypeError, "must hold numbers", "deleted"):
            call()


@pytest.mark.parametrize("draw", [np.int64(3), np.array(3), np.array([3, 3])], ids=str)
def test_draws_are_compared_whatever_holds_them(draw):
    with refused(errors.StateMismatchError, "fingerprint 3,"):
        ka.attend(STATE._replace(fingerprint=draw), ROWS, DRAWN)
    same = np.full_like(draw, STATE.fingerprint)
    np.testing.assert_array_equal(
        ka.attend(STATE._replace(fingerprint=same), ROWS, DRAWN), ka.attend(STATE, ROWS, DRAWN)
    )


@pytest.mark.parametrize("draw", [None, "a", 3.0, {}, np.array([3, 4])], ids=str)
def test_what_is_no_draw(draw):
    state = STATE._replace(fingerprint=draw)
    for call in (
        lambda: ka.attend(state, ROWS, DRAWN),
        lambda: ka.merge_states(STATE, state),
        lambda: ka.linear_attention_step(state, ROWS[0], ROWS[0], ROWS[0], DRAWN),
        lambda: ka.causal_linear_attention(ROWS, ROWS, ROWS, DRAWN, state=state),
    ):
        with refused(errors.DTypeError, "draw must be an integer"):
            call()


def test_draws_that_come_out_of_jit():
    jax = pytest.importorskip("jax")
    rows = jax.numpy.asarray(ROWS)
    state = jax.jit(lambda k: ka.key_state(k, k, DRAWN, backend="reference"))(rows)
    state = state._replace(fingerprint=jax.numpy.asarray(state.fingerprint))  # kernattn.jax would keep it an integer
    ka.attend(state, rows, DRAWN)
    with refused(errors.StateMismatchError, f"fingerprint {DRAWN.fingerprint},"):
        ka.attend(state, rows, DRAWN.redraw(1))
    jax.jit(lambda state: ka.attend(state, rows, DRAWN, backend="reference"))(state)  # traced: nothing to look at


@pytest.mark.parametrize(
    "parts",
    [
        {"z": np.ones(3, np.float32)},
        {"z": np.ones((2, 8), np.float32)},
        {"z": np.ones(8)},
        {"peak": np.zeros(3, np.float32)},
        {"s": np.ones(8, np.float32)},
    ],
    ids=["z too short", "z of two heads", "z of float64", "peak too long", "s without e"],
)
def test_states_that_do_not_fit_themselves(parts):
    for call in (
        lambda: ka.merge_states(STATE, STATE._replace(**parts)),
        lambda: ka.attend(STATE._replace(**parts), ROWS, DRAWN),
        lambda: ka.linear_attention_step(STATE._replace(**parts), ROWS[0], ROWS[0], ROWS[0], DRAWN),
    ):
        with refused(errors.StateMismatchError, "must hold s (..., M, e)"):
            call()


@pytest.mark.parametrize(
    "call",
    [
        lambda x: ka.random_features(K.Softmax(), 4, 8, data=x, rng=0)(x),
        lambda x: ka.features.fit(K.Softmax(), x, 8, rng=0)(x),
        ka.kernels.usual_lengthscale,
        lambda x: ka.solvers.kernel_ridge(x, x[:, 0], K.Gaussian(), num_landmarks=2, penalty=1.0).weights,
        lambda x: DRAWN.variance(x, x),
    ],
)
def test_numbers_that_are_traced_cannot_be_read(call):
    """What decides on the host says so of an array of jit, and where to call it instead."""
    jax = pytest.importorskip("jax")
    with refused(errors.ParameterError, "known", "traced", "outside of"):
        jax.jit(call)(jax.numpy.ones((40, 4)))


def test_a_pair_in_a_list():
    with refused(errors.DTypeError, "tuple (queries, keys)", "list of 2"):
        ka.random_features(K.Softmax(), 4, 8, data=[np.ones((9, 4)), np.ones((9, 4))])


def test_a_map_with_numbers_that_are_given_is_shown_in_a_line(tmp_path):
    learnt = ka.with_numbers(DRAWN, omega=np.ones_like(DRAWN.spec.omega))
    with refused(errors.ParameterError, "save `base`") as told:
        learnt.save(tmp_path / "map.npz")
    assert "\n" not in str(told.value)
