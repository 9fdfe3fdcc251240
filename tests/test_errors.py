"""What cannot work is refused before any work, by an error that names what was given and what is allowed."""

import re
from dataclasses import replace

import kernattn as ka
import numpy as np
import pytest
from kernattn import errors
from xp import KINDS

PHI = ka.features.elu1()
DRAWN = ka.random_features(ka.kernels.Softmax(), 4, 8)
F32 = np.float32


def x(*shape, dtype=F32):
    return np.ones(shape, dtype)


def linear(q, k, v, phi=PHI, **kw):
    return ka.linear_attention(q, k, v, phi, **kw)


def causal(q, k, v, phi=PHI, **kw):
    return ka.causal_linear_attention(q, k, v, phi, **kw)


def step(q, k, v, phi=PHI, state=None, **kw):
    state = ka.initial_state(phi, (), 2, like=x(4)) if state is None else state
    return ka.linear_attention_step(state, q, k, v, phi, **kw)


FORMS = {"linear": linear, "causal": causal, "softmax": lambda q, k, v, **kw: ka.softmax_attention(q, k, v, **kw)}
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=list(FORMS))


def refused(error, *words):
    """All the words, in any order, in the message of that error."""
    return pytest.raises(error, match="".join(f"(?=.*{re.escape(str(word))})" for word in words))


def test_all_are_kernattn_errors_and_builtin_ones():
    families = {
        "ShapeError": ValueError,
        "EmptyInputError": ValueError,
        "ParameterError": ValueError,
        "DTypeError": TypeError,
        "MixedLibraryError": TypeError,
        "StateMismatchError": ValueError,
        "BackendUnavailable": RuntimeError,
        "NoClosedForm": ValueError,
    }
    for name, family in families.items():
        assert issubclass(getattr(errors, name), family)
        assert issubclass(getattr(errors, name), errors.KernattnError)


@every_form
@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        (((5,), (5, 4), (5, 2)), ["q", "(..., n, d)", "(5,)"]),
        (((5, 4), (4,), (5, 2)), ["k", "(4,)"]),
        (((5, 4), (5, 4), ()), ["v", "()"]),
        (((5, 3), (5, 4), (5, 2)), ["q", "k", 3, 4]),
        (((5, 4), (5, 4), (6, 2)), ["k", "v", 5, 6]),
        (((2, 5, 4), (3, 5, 4), (3, 5, 2)), ["(2,)", "(3,)"]),
        (((5, 4), (2, 5, 4), (3, 5, 2)), ["(2,)", "(3,)"]),
    ],
)
def test_bad_shapes(form, shapes, words):
    with refused(errors.ShapeError, *words):
        form(*(x(*shape) for shape in shapes))


@every_form
@pytest.mark.parametrize(
    ("shapes", "name", "shape"),
    [
        (((5, 0), (5, 0), (5, 2)), "q", (5, 0)),
        (((5, 4), (0, 4), (0, 2)), "k", (0, 4)),
        (((0, 4), (5, 4), (5, 2)), "q", (0, 4)),
        (((5, 4), (5, 4), (5, 0)), "v", (5, 0)),
        (((0, 5, 4), (5, 4), (5, 2)), "q", (0, 5, 4)),
    ],
)
def test_empty_inputs(form, shapes, name, shape):
    with refused(errors.EmptyInputError, name, shape):
        form(*(x(*shape) for shape in shapes))


@every_form
def test_dtypes(form):
    with refused(errors.DTypeError, "q", "int64", "float32"):
        form(x(5, 4, dtype=np.int64), x(5, 4), x(5, 2))
    with refused(errors.DTypeError, "v", "complex64"):
        form(x(5, 4), x(5, 4), x(5, 2, dtype=np.complex64))
    with refused(errors.DTypeError, "k", "bool"):
        form(x(5, 4), x(5, 4, dtype=bool), x(5, 2))
    with refused(errors.DTypeError, "float32", "float64", "one dtype"):
        form(x(5, 4), x(5, 4), x(5, 2, dtype=np.float64))
    with refused(errors.DTypeError, "float16", "float32"):
        form(x(5, 4), x(5, 4, dtype=np.float16), x(5, 2))
    with refused(errors.DTypeError, "q", "list"):
        form([[1.0]], x(5, 4), x(5, 2))
    with refused(errors.DTypeError, "k", "NoneType"):
        form(x(5, 4), None, x(5, 2))


@every_form
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.name not in ("numpy", "readonly")], ids=repr)
def test_mixed_libraries(form, kind):
    name = {"strict": "array_api_strict"}.get(kind.name, kind.name)
    for given in ((kind.asarray(x(5, 4)), x(5, 4), x(5, 2)), (x(5, 4), x(5, 4), kind.asarray(x(5, 2)))):
        with refused(errors.MixedLibraryError, "numpy", name):
            form(*given)
    with refused(errors.MixedLibraryError, "numpy", name, "key_mask"):
        form(*(kind.asarray(x(*shape)) for shape in ((5, 4), (5, 4), (5, 2))), key_mask=np.ones(5, bool))


@every_form
def test_mixed_devices(form):
    strict = pytest.importorskip("array_api_strict")
    first, second = strict.Device("CPU_DEVICE"), strict.Device("device1")
    with refused(errors.MixedLibraryError, "device", "CPU_DEVICE", "device1"):
        form(*(strict.asarray(x(5, 4), device=device) for device in (first, second, first)))


@every_form
@pytest.mark.parametrize("dtype", [F32, np.int64, np.uint8])
def test_mask_dtypes(form, dtype):
    with refused(errors.DTypeError, "key_mask", "bool", np.dtype(dtype).name):
        form(x(5, 4), x(5, 4), x(5, 2), key_mask=np.ones(5, dtype))


@every_form
@pytest.mark.parametrize("shape", [(4,), (2, 5), (5, 1), (1,), ()])
def test_mask_shapes(form, shape):
    with refused(errors.ShapeError, "key_mask", shape):
        form(x(5, 4), x(5, 4), x(5, 2), key_mask=np.ones(shape, bool))


def test_segments():
    with refused(errors.DTypeError, "segment_ids", "float32", "int"):
        causal(x(5, 4), x(5, 4), x(5, 2), segment_ids=x(5))
    with refused(errors.ShapeError, "segment_ids", "(4,)"):
        causal(x(5, 4), x(5, 4), x(5, 2), segment_ids=np.zeros(4, int))
    with refused(errors.MixedLibraryError, "segment_ids"):
        causal(*(KINDS[2].asarray(x(*s)) for s in ((5, 4), (5, 4), (5, 2))), segment_ids=np.zeros(5, int))


def test_causal_takes_as_many_queries_as_keys():
    with refused(errors.ShapeError, "(3, 4)", "(5, 4)", "state"):
        causal(x(3, 4), x(5, 4), x(5, 2))


@pytest.mark.parametrize("form", [linear, causal])
def test_the_map(form):
    for given in (None, np.exp, "elu1", ka.features.elu1):
        with refused(errors.DTypeError, "phi", "FeatureMap", type(given).__name__):
            form(x(5, 4), x(5, 4), x(5, 2), given)
    with refused(errors.ShapeError, "d = 4", "(5, 3)"):
        form(x(5, 3), x(5, 3), x(5, 2), DRAWN)


def test_maps_check_their_input():
    with refused(errors.ShapeError, "d = 4", "(5, 3)"):
        DRAWN(x(5, 3))
    with refused(errors.ShapeError, "(..., n, d)", "(4,)"):
        DRAWN(x(4))
    with refused(errors.EmptyInputError, "(0, 4)"):
        DRAWN(x(0, 4))
    with refused(errors.EmptyInputError, "(5, 0)"):
        PHI(x(5, 0))
    with refused(errors.DTypeError, "int64"):
        DRAWN(np.ones((5, 4), np.int64))
    with refused(errors.DTypeError, "list"):
        DRAWN([[1.0] * 4])
    with refused(errors.ShapeError, "d = 4", "(5, 3)"):
        DRAWN.mean(x(5, 3), x(5, 3))
    with refused(errors.MixedLibraryError, "array_api_strict", "numpy"):
        DRAWN.variance(x(5, 4), KINDS[2].asarray(x(5, 4)))
    with refused(errors.ShapeError, "(2, 4)", "(3, 4)"):
        DRAWN.variance(x(2, 4), x(3, 4))


# ---- states --------------------------------------------------------------------------------------------------------------------------------


def test_states_of_another_draw():
    other = DRAWN.redraw(7)
    state = ka.key_state(x(5, 4), x(5, 2), DRAWN)
    words = (DRAWN.draw, other.draw)
    with refused(errors.StateMismatchError, *words):
        ka.attend(state, x(5, 4), other)
    with refused(errors.StateMismatchError, *words):
        causal(x(5, 4), x(5, 4), x(5, 2), other, state=state)
    with refused(errors.StateMismatchError, *words):
        step(x(4), x(4), x(2), other, state=state)
    with refused(errors.StateMismatchError, *words):
        ka.merge_states(state, ka.key_state(x(5, 4), x(5, 2), other))
    # the same size, another function
    with refused(errors.StateMismatchError, PHI.draw, ka.features.relu().draw):
        ka.attend(ka.key_state(x(5, 4), x(5, 2), PHI), x(5, 4), ka.features.relu())


def test_states_of_other_shapes():
    state = ka.key_state(x(3, 5, 4), x(3, 5, 2), PHI)
    with refused(errors.StateMismatchError, "(2,)", "(3, 4, 2)"):
        causal(x(2, 5, 4), x(2, 5, 4), x(2, 5, 2), state=state)
    with refused(errors.StateMismatchError, "()", "(3, 4, 2)"):
        step(x(4), x(4), x(2), state=state)
    with refused(errors.StateMismatchError, "M = 6", "(3, 4, 2)"):
        ka.attend(state, x(3, 5, 6), PHI)
    with refused(errors.StateMismatchError, "(3, 4, 2)", "(2, 4, 2)"):
        ka.merge_states(state, ka.key_state(x(2, 5, 4), x(2, 5, 2), PHI))
    with refused(errors.ShapeError, "(2,)", "(3,"):
        ka.attend(state, x(2, 5, 4), PHI)
    damaged = state._replace(peak=state.peak[..., :0])
    with refused(errors.StateMismatchError, "peak"):
        ka.attend(damaged, x(3, 5, 4), PHI)


@pytest.mark.parametrize("e", [1, 3])
def test_states_of_another_value_dimension(e):
    """Also e = 1, which would broadcast."""
    state = ka.key_state(x(5, 4), x(5, e), PHI)
    with refused(errors.StateMismatchError, f"(4, {e})", "(5, 2)"):
        causal(x(5, 4), x(5, 4), x(5, 2), state=state)
    with refused(errors.StateMismatchError, f"(4, {e})", "(2,)"):
        step(x(4), x(4), x(2), state=state)
    with refused(errors.StateMismatchError, f"(4, {e})", "(4, 2)"):
        ka.merge_states(state, ka.key_state(x(5, 4), x(5, 2), PHI))


def test_states_of_other_dtypes_and_libraries():
    state = ka.key_state(x(5, 4), x(5, 2), PHI)
    wide = ka.key_state(x(5, 4, dtype=float), x(5, 2, dtype=float), PHI)
    with refused(errors.DTypeError, "float32", "float64"):
        ka.attend(wide, x(5, 4), PHI)
    with refused(errors.DTypeError, "float32", "float64"):
        causal(*(x(*s, dtype=float) for s in ((5, 4), (5, 4), (5, 2))), state=state)
    with refused(errors.StateMismatchError, "float32", "float64"):
        ka.merge_states(state, wide)
    strict = KINDS[2].asarray
    with refused(errors.MixedLibraryError, "numpy", "array_api_strict"):
        ka.attend(state, strict(x(5, 4)), PHI)
    with refused(errors.MixedLibraryError, "numpy", "array_api_strict"):
        ka.merge_states(state, ka.key_state(strict(x(5, 4)), strict(x(5, 2)), PHI))


@pytest.mark.parametrize("given", [None, "state", (1, 2, 3, 4), np.ones(3)], ids=["None", "str", "tuple", "ndarray"])
def test_no_states(given):
    name = type(given).__name__
    with refused(errors.DTypeError, "state", "LinearState", name):
        ka.attend(given, x(5, 4), PHI)
    with refused(errors.DTypeError, "LinearState", name):
        ka.linear_attention_step(given, x(4), x(4), x(2), PHI)
    with refused(errors.DTypeError, "a", "LinearState", name):
        ka.merge_states(given, ka.key_state(x(5, 4), x(5, 2), PHI))
    if given is not None:
        with refused(errors.DTypeError, "LinearState", name):
            causal(x(5, 4), x(5, 4), x(5, 2), state=given)


def test_step_shapes():
    with refused(errors.ShapeError, "q", "k", 3, 4):
        step(x(3), x(4), x(2))
    with refused(errors.ShapeError, "v", "()"):
        step(x(4), x(4), x())
    with refused(errors.EmptyInputError, "v", "(0,)"):
        step(x(4), x(4), x(0))
    with refused(errors.DTypeError, "key_mask", "bool", "int64"):
        step(x(4), x(4), x(2), key_mask=np.ones((), np.int64))
    with refused(errors.ShapeError, "key_mask", "(4,)"):
        step(x(4), x(4), x(2), key_mask=np.ones(4, bool))


def test_initial_state():
    with refused(errors.ParameterError, "value_dim", "0"):
        ka.initial_state(PHI, (2,), 0, like=x(4))
    with refused(errors.ParameterError, "batch_shape", "-1"):
        ka.initial_state(PHI, (-1,), 3, like=x(4))
    with refused(errors.DTypeError, "like", "int64"):
        ka.initial_state(PHI, (2,), 3, like=np.ones(4, np.int64))
    with refused(errors.ShapeError, "like", "d = 4", "(3,)"):
        ka.initial_state(DRAWN, (2,), 3, like=x(3))
    with refused(errors.DTypeError, "phi", "str"):
        ka.initial_state("elu1", (2,), 3, like=x(4))
    with refused(errors.ShapeError, "like", "()"):
        ka.initial_state(PHI, (2,), 3, like=x())


# ---- parameters ----------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf, "1", None, True, [1.0]], ids=repr)
def test_scales(scale):
    if scale is not None:
        with refused(errors.ParameterError, "scale", repr(scale)):
            ka.softmax_attention(x(5, 4), x(5, 4), x(5, 2), scale=scale)
        with refused(errors.ParameterError, "scale", repr(scale)):
            ka.kernels.Softmax(scale=scale)
    with refused(errors.ParameterError, "scale", repr(scale)):
        ka.features.generalized("relu", 4, 8, scale=scale)


def test_softmax_kernel_has_no_negative_scale():
    with refused(errors.ParameterError, "scale", "-0.5"):
        ka.kernels.Softmax(scale=-0.5)


@pytest.mark.parametrize("lengthscale", [0.0, -1.0, np.nan, np.inf, "1", [1.0, -1.0], np.ones((2, 2)), np.array([]), [1.0, np.nan]], ids=repr)
def test_lengthscales(lengthscale):
    with refused((errors.ParameterError, errors.ShapeError), "lengthscale"):
        ka.kernels.Gaussian(lengthscale)


def test_kernels_check_their_input():
    kernel = ka.kernels.Gaussian(np.ones(4))
    with refused(errors.ShapeError, "lengthscale", "4", "d = 3"):
        kernel(x(5, 3))
    with refused(errors.ShapeError, "(5, 4)", "(5, 3)"):
        ka.kernels.Softmax()(x(5, 4), x(5, 3))
    with refused(errors.DTypeError, "int64"):
        kernel(np.ones((5, 4), np.int64))
    with refused(errors.MixedLibraryError, "numpy", "array_api_strict"):
        kernel(x(5, 4), KINDS[2].asarray(x(5, 4)))


@pytest.mark.parametrize("number", [0, -3, 2.5, "8", None, True], ids=repr)
def test_sizes(number):
    kernel = ka.kernels.Softmax()
    with refused(errors.ParameterError, "num_features", repr(number)):
        ka.random_features(kernel, 4, number)
    with refused(errors.ParameterError, "dim", repr(number)):
        ka.random_features(kernel, number, 8)
    with refused(errors.ParameterError, repr(number)):
        ka.features.generalized("relu", 4, number)
    with refused(errors.ParameterError, repr(number)):
        ka.features.generalized("relu", number, 8)
    with refused(errors.ParameterError, "degree", repr(number)):
        ka.features.polynomial(number)
    with refused(errors.ParameterError, repr(number)):
        ka.projections.orthogonal(number, 4)
    with refused(errors.ParameterError, repr(number)):
        ka.projections.iid(4, number)


def test_names():
    kernel = ka.kernels.Softmax()
    with refused(errors.ParameterError, "estimator", "'favor'", "positive", "trigonometric"):
        ka.random_features(kernel, 4, 8, estimator="favor")
    with refused(errors.ParameterError, "'sobol'", "iid", "orthogonal"):
        ka.random_features(kernel, 4, 8, projection="sobol")
    with refused(errors.ParameterError, "'sobol'", "iid", "orthogonal"):
        ka.features.generalized("relu", 4, 8, projection="sobol")
    with refused(errors.ParameterError, "'nothing'", "relu"):
        ka.features.generalized("nothing", 4, 8)
    with refused(errors.ParameterError, "norms", "'unit'", "chi", "sqrt_d"):
        ka.projections.Orthogonal(norms="unit")
    with refused(errors.ParameterError, "norms", "'unit'", "chi", "sqrt_d"):
        ka.projections.Iid(norms="unit")
    with refused(errors.ParameterError, "method", "'svd'", "qr", "gram_schmidt"):
        ka.projections.Orthogonal(method="svd")
    with refused(errors.ParameterError, "rng", "-1"):
        ka.random_features(kernel, 4, 8, rng=-1)
    for given in ("softmax", None, ka.kernels.Softmax):
        with refused(errors.ParameterError, "kernel" if given is not ka.kernels.Softmax else "Softmax", "Gaussian"):
            ka.random_features(given, 4, 8)


@pytest.mark.parametrize("estimator", ["trigonometric", "hyperbolic"])
def test_pairs_need_an_even_number(estimator):
    with refused(errors.ParameterError, estimator, "even", 7):
        ka.random_features(ka.kernels.Softmax(), 4, 7, estimator=estimator)


def test_lengthscale_of_another_dimension():
    with refused(errors.ShapeError, 3, 4):
        ka.random_features(ka.kernels.Gaussian(np.ones(3)), 4, 8)


def test_data():
    kernel = ka.kernels.Softmax()
    for shape in ((5, 3), (4,), (2, 5, 4)):
        with refused(errors.ShapeError, "data", shape):
            ka.random_features(kernel, 4, 8, data=x(*shape))
    with refused(errors.EmptyInputError, "data", "(0, 4)"):
        ka.random_features(kernel, 4, 8, data=x(0, 4))
    with refused(errors.ParameterError, "data", "finite"):
        ka.random_features(kernel, 4, 8, data=np.full((5, 4), np.nan))
    with refused(errors.DTypeError, "data", "int64"):
        ka.random_features(kernel, 4, 8, data=np.ones((5, 4), np.int64))


def test_tilt():
    phi = ka.random_features(ka.kernels.Softmax(), 4, 8, estimator="optimal_positive")
    for tilt in (0.125, 1.0, np.nan):
        with refused(errors.ParameterError, "tilt", tilt):
            replace(phi, tilt=tilt)
