"""What cannot work is refused before any work, by an error that names what was given and what is allowed."""

import inspect
import re

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors
from kernattn._runtime import elsewhere
from kernattn.solvers._losses.linear_model import LOSSES
from kernattn.transformer._config import NORMS, POSITIONS
from kernattn.transformer._members import MEMBERS
from refusals import DRAWN, F32, PHI, causal, every_form, linear, refused, x
from xp import KINDS


def test_all_are_kernattn_errors_and_builtin_ones():
    families = {
        "ShapeError": ValueError,
        "EmptyInputError": ValueError,
        "ParameterError": ValueError,
        "DTypeError": TypeError,
        "MixedLibraryError": TypeError,
        "StateMismatchError": ValueError,
        "BackendUnavailable": RuntimeError,
        "MissingExtra": ImportError,
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


@every_form
def test_masks_of_sequences_or_of_heads(form):
    """(3, 5) beside (3, 3, 5, 4) would be read as heads; other numbers of heads say which it is."""
    keys = x(3, 3, 5, 4), x(3, 3, 5, 4), x(3, 3, 5, 2)
    with refused(errors.ShapeError, "key_mask", (3, 5), (3, 1, 5), (1, 3, 5)):
        form(*keys, key_mask=np.ones((3, 5), bool))
    for shape in ((5,), (1, 5), (3, 1, 5), (1, 3, 5)):
        form(*keys, key_mask=np.ones(shape, bool))
    form(x(2, 3, 5, 4), x(2, 3, 5, 4), x(2, 3, 5, 2), key_mask=np.ones((3, 5), bool))


def test_rows_of_sequences_or_of_heads():
    keys = x(3, 3, 5, 4), x(3, 3, 5, 4), x(3, 3, 5, 2)
    with refused(errors.ShapeError, "key_bias", (3, 5), (3, 1, 5)):
        ka.softmax_attention(*keys, key_bias=np.zeros((3, 5), F32))
    with refused(errors.ShapeError, "segment_ids", (3, 5), (3, 1, 5)):
        ka.causal_linear_attention(*keys, PHI, segment_ids=np.zeros((3, 5), int))
    token = x(3, 3, 4), x(3, 3, 4), x(3, 3, 2)
    state = ka.initial_state(PHI, (3, 3), 2, token[0])
    with refused(errors.ShapeError, "key_mask", (3,), (3, 1)):
        ka.linear_attention_step(state, *token, PHI, key_mask=np.ones(3, bool))


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
        with refused(errors.DTypeError, "phi", "FeatureMap", repr(given)):
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


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ka.kernels.Gaussian(gamma=0.1), "lengthscale = 1 / sqrt(2 gamma)"),
        (lambda: ka.kernels.Matern(length_scale=2.0), "lengthscale here"),
        (lambda: ka.random_features(ka.kernels.Gaussian, 4, 16), "write its parameters in brackets"),
        (lambda: ka.random_features(ka.kernels.Gaussian(), 4, 16, "RBFSampler"), "'trigonometric'"),
        (lambda: ka.random_features(ka.kernels.Softmax(), 4, 16, "FAVOR+"), "'positive' with projection='orthogonal'"),
        (lambda: ka.random_features(ka.kernels.Softmax(), 4, 16, projection="orf"), "'orthogonal' here"),
        (lambda: ka.random_features(ka.kernels.Softmax(), 4, 16, projection="fast_food"), "did you mean 'fastfood'?"),
        (lambda: ka.features.nystrom(x(9, 4), ka.kernels.Gaussian(), 4, method="random"), "'uniform'"),
        (lambda: ka.features.nystrom(x(9, 4), ka.kernels.Gaussian(), 10), "the 9 rows"),
        (lambda: ka.features.nystrom(x(9, 4), ka.kernels.Gaussian(), n_components=4), "num_landmarks here"),
        (lambda: ka.random_features(ka.kernels.Gaussian(), 4, n_components=16), "num_features here"),
        (lambda: ka.random_features(ka.kernels.Gaussian(), 4, 16, seed=0), "rng here"),
        (lambda: ka.random_features(ka.kernels.Gaussian(), 4, 16, kind="iid"), "it takes kernel, dim, num_features,"),
        (lambda: ka.solvers.ridge(None, alpha=1.0), "penalty here"),
        (lambda: ka.kernels.Gaussian(active_dims=[0]), "of 1e30 leaves a column out"),
        (lambda: ka.solvers.gp(None, normalize_y=True), "in units of y"),
        (lambda: ka.solvers.kernel_ridge(x(9, 4), x(9), ka.kernels.Gaussian(), C=1.0), "1 / penalty"),
        (lambda: ka.linear_attention(x(3, 4), x(3, 4), x(3, 4), DRAWN, attn_mask=None), "key_mask is True where"),
        (lambda: ka.key_state(x(3, 4), x(3, 4), DRAWN, segment_ids=None), "ka.linear_attention where tokens see both"),
        (lambda: ka.softmax_attention(x(3, 4), x(3, 4), x(3, 4), segment_ids=None), "pattern=ka.patterns.documents"),
        (lambda: ka.random_features(lambda a, b: a, 3, 4), "ka.kernels.from_function makes a kernel"),
        (lambda: ka.linear_attention(x(3, 4), x(3, 4), x(3, 4), DRAWN, is_causal=True), "causal_linear_attention"),
        (lambda: ka.linear_attention(x(3, 4), x(3, 4), x(3, 4), DRAWN, scale=1.0), "Softmax(scale=...)"),
        (lambda: ka.softmax_attention(x(3, 4), x(3, 4), x(3, 4), is_causal=True), "causal here"),
        (lambda: ka.softmax_attention(query=x(3, 4), key=x(3, 4), value=x(3, 4)), "q, k and v here"),
        (lambda: ka.softmax_attention(x(3, 4), x(3, 4), x(3, 4), pattern=np.eye(3) > 0), "from_mask(mask)"),
        (lambda: ka.patterns.from_mask(np.eye(3)), "mask == 0"),
        (lambda: ka.patterns.local(window_size=3), "left= and right="),
        (lambda: ka.gated_linear_attention(x(3, 4), x(3, 4), x(3, 4), decay=0.9), "g= or gk="),
        (lambda: ka.solvers.jackknife(None, x(3, 4), x=x(9, 4), y=x(9), alpha=0.1), "1 - coverage"),
        (lambda: ka.softmax_attention(x(3, 4), x(3, 4), x(3, 4), None), "write scale=, causal=, key_mask=,"),
        (lambda: ka.solvers.linear_model(x(9, 4), DRAWN, x(9), loss="huber"), "write y=, loss=,"),
        (lambda: ka.solvers.linear_model(x(9, 4), DRAWN, y=x(9), loss="pinball"), "'quantile'"),
        (lambda: ka.solvers.ridge(x(9, 4)), "kernattn.solvers.moments("),
        (lambda: ka.put_states(ka.initial_state(DRAWN, (3,), 2, x(1, 4)), [0], [None]), "ka.stack_states"),
        (lambda: ka.take_states(ka.initial_state(DRAWN, (3,), 2, x(1, 4)), np.eye(3)), "index must be"),
        (lambda: ka.kernel_attention(x(3, 4), x(3, 4), x(3, 4), ka.kernels.Gaussian(), mask=None), "key_mask"),
        (lambda: ka.random_features("softmax", 4, 16), "KERNELS[name]()"),
        (lambda: ka.random_features(ka.kernels.Softmax(), 4, 16, "FAVOR++"), "'optimal_positive'"),
        (lambda: ka.random_features(ka.kernels.Softmax(), 4, 16, "elu + 1"), "ka.features.elu1()"),
        (lambda: ka.linear_attention(x(3, 4), x(3, 4), x(3, 4), ka.features.elu1), "call it"),
        (lambda: ka.linear_attention(x(3, 4), x(3, 4), x(3, 4), np.exp), "from_function"),
        (lambda: ka.attention.window_attention(x(3, 4), x(3, 4), x(3, 4), DRAWN, window_size=2), "window here"),
        (lambda: ka.softmax_attention(x(3, 4), x(3, 4), x(3, 4), window=2), "ka.patterns.local(left, right)"),
        (
            lambda: ka.gated_linear_attention(x(3, 4), x(3, 4), x(3, 4), use_qk_l2norm_in_kernel=True),
            "l2_normalise here",
        ),
        (lambda: ka.gated_linear_attention(x(3, 4), x(3, 4), x(3, 4), output_final_state=True), "always returned"),
        (lambda: ka.transformer.transfer({}, None, [], features=8), "num_features here"),
        (lambda: ka.transformer.Config(d_model=8, layers=1, heads=2), "dim here"),
        (lambda: ka.transformer.Config(dim=8, layers=1, num_heads=2), "heads here"),
        (lambda: ka.transformer.Config(dim=8, layers=1, heads=2, vocab=9, positions="RoPE"), "'rotary'"),
        (lambda: ka.transformer.Config(dim=8, layers=1, heads=2, vocab=9, norm="LayerNorm"), "'layer'"),
        (lambda: ka.transformer.Gated(member="Qwen3-Next", heads=2, key_dim=4, value_dim=4), "'gated_delta'"),
        (lambda: ka.transformer.Gated(member="delta", num_heads=2, key_dim=4, value_dim=4), "heads here"),
        (lambda: ka.transformer.generate({}, None, None, max_new_tokens=3), "steps here"),
        (lambda: ka.transformer.forward({}, None, None, DRAWN), "write attention=, key_mask="),
    ],
)
def test_names_of_other_libraries_are_told(call, words):
    with pytest.raises((ValueError, TypeError)) as told:
        call()
    assert words in str(told.value)


def test_keywords_of_ones_own_are_no_others():
    """`gamma` is a parameter of a polynomial kernel; what nobody knows stays Python's own error."""
    assert ka.kernels.Polynomial(gamma=0.5).gamma == 0.5
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'gammas'$"):
        ka.kernels.Gaussian(gammas=0.1)
    with pytest.raises(ValueError, match=r"got 'none'$"):
        ka.random_features(ka.kernels.Softmax(), 4, 16, projection="none")


def test_a_class_that_takes_any_keyword_takes_those_of_other_libraries():
    class Any(elsewhere.ToldKeywords):
        def __init__(self, rng=None, **more):
            self.more = more

    assert Any(seed=3).more == {"seed": 3}


def test_errors_inside_a_function_are_left_alone():
    """What a kernel of one's own makes of keywords is not what the function was given."""

    def weigh(x, /):
        return x

    with pytest.raises(TypeError, match=r"unexpected keyword argument 'alpha'$"):
        elsewhere.told_keywords(lambda rows: weigh(rows, alpha=1))(3)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", sorted(elsewhere.WHERE))
def test_what_is_looked_for_in_kernattn_itself_is_told(name):
    place = elsewhere.WHERE[name]
    with pytest.raises(AttributeError, match=re.escape(f"{name!r}: that is {place}")):
        getattr(ka, name)
    for path in re.findall(r"(?:ka|kernattn)\.([\w.]+)", place):
        room, _, member = path.partition(".")
        if room != "sklearn":
            assert callable(getattr(getattr(ka, room), member) if member else getattr(ka, room))


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("RBF", ka.kernels.Gaussian()),
        ("Matern52", ka.kernels.Matern(nu=2.5)),
        ("DotProduct", ka.kernels.Polynomial(degree=1)),
        ("WhiteKernel", None),
    ],
)
def test_kernels_of_other_libraries_are_told(name, ours):
    with pytest.raises(AttributeError, match=f"'kernattn.kernels' has no attribute '{name}': ") as told:
        getattr(ka.kernels, name)
    named = re.search(r"ka\.kernels\.\w+(\(.*\))?", str(told.value))
    assert ours is None or eval(named[0] if named[1] else f"{named[0]}()", {"ka": ka}) == ours
    with pytest.raises(AttributeError, match=r"attribute 'Nothing'$"):
        ka.kernels.Nothing  # noqa: B018


def test_a_column_is_left_out_by_a_lengthscale_that_is_long():
    rows = np.array([[0.0, 0.0], [1.0, 1e6]])
    one = ka.kernels.Gaussian((1.0, 1e30)) * ka.kernels.Periodic((4.0, 1e30))
    assert np.array_equal(one(rows), (ka.kernels.Gaussian() * ka.kernels.Periodic(4.0))(rows[:, :1]))


@pytest.mark.parametrize("room", ["attention", "features"])
def test_functions_of_attention_and_of_kernels_say_which_keywords_they_take(room):
    """Every public function of queries, or of a kernel and data, names its parameters to who gives another."""
    room = getattr(ka, room)
    public = [each for each in map(room.__dict__.get, room.__all__) if inspect.isfunction(each)]
    found = [each for each in public if {"q", "data"} & set(inspect.signature(each).parameters)]
    assert len(found) > 3
    for function in found:
        with pytest.raises(TypeError, match=rf"^{function.__name__}\(\) got .* 'nothing': it takes .*"):
            function(nothing=1)


def test_every_parameter_that_is_told_is_one():
    """What stands for a keyword is a parameter of a public function or class."""
    rooms = (ka, ka.attention, ka.features, ka.kernels, ka.patterns, ka.solvers, ka.transformer)
    public = [getattr(room, name) for room in rooms for name in room.__all__]
    takes = {"random_state", "ridge", "seed"}  # of estimators and of a module, whose tests are beside them
    takes |= {name for each in public if inspect.isfunction(each) for name in inspect.signature(each).parameters}
    classes = (*ka.kernels.KERNELS.values(), ka.transformer.Config, ka.transformer.Gated)
    takes |= {name for each in classes for name in inspect.signature(each).parameters}
    assert {name for told in elsewhere.KEYWORDS.values() for name in told} <= takes


def test_every_name_that_is_told_is_one():
    names = {"kernel": ka.kernels.KERNELS, "projection": ka.projections.PROJECTIONS, "method": ka.features.LANDMARKS}
    names |= {"loss": LOSSES, "positions": POSITIONS, "norm": NORMS}
    names["member"] = MEMBERS
    names["estimator"] = (*ka.features.ESTIMATORS, *ka.features.LANDMARKS)
    known = {each for group in names.values() for each in group} | {"learned", "orthogonal", "precomputed"}
    for name, told in elsewhere.NAMES.items():
        assert not told.keys() & set(names[name]) - set(ka.features.LANDMARKS)
        for text in told.values():
            assert set(re.findall(r"'(\w+)'", text)) <= known, text
