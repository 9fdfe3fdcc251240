"""Arguments that nobody means to give: each is refused in words, by an error of kernattn, before any work."""

from dataclasses import dataclass

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors
from kernattn._runtime import checks
from kernattn.cli._features import _parse_kernel
from refusals import DRAWN, refused, x
from seam import MapSpec

K, F, P = ka.kernels, ka.features, ka.projections
VAST = 10**400
ROWS = x(5, 4)
STATE = ka.key_state(ROWS, ROWS, DRAWN, backend="reference")  # made by every worker: nothing to compile

NUMBERS = {
    "scale of attention": lambda given: ka.softmax_attention(ROWS, ROWS, ROWS, scale=given),
    "lengthscale": K.Gaussian,
    "scale": K.Softmax,
    "nu": K.Matern,
    "alpha": K.RationalQuadratic,
    "degree": K.Polynomial,
    "gamma": lambda given: K.Polynomial(2, given),
    "coef0": lambda given: K.Polynomial(2, 1.0, given),
    "skewedness": K.SkewedChi2,
    "factor": lambda given: given * DRAWN,
    "dim": lambda given: ka.random_features(K.Gaussian(), given, 8, rng=0),
    "num_features": lambda given: ka.random_features(K.Gaussian(), 4, given, rng=0),
    "chains": lambda given: P.Hadamard(chains=given),
    "steps": lambda given: P.Kac(steps=given) if given is not None else P.Kac(steps="x"),
    "rows": lambda given: P.Iid().draw(given, 4),
    "level": lambda given: F.quadrature(K.Gaussian(), 2, given),
    "cutoff": lambda given: F.nystrom(ROWS, K.Gaussian(), 3, cutoff=given, rng=0),
    "error": lambda given: DRAWN.num_features_for(ROWS, ROWS, error=given, probability=0.5),
    "probability": lambda given: DRAWN.num_features_for(ROWS, ROWS, error=0.1, probability=given),
    "value_dim": lambda given: ka.initial_state(DRAWN, (2,), given, ROWS),
    "batch_shape": lambda given: ka.initial_state(DRAWN, (given,), 2, ROWS),
    "significance": lambda given: ka.metrics.certify(DRAWN, significance=given),
    "confidence": lambda given: ka.metrics.mean_and_ci(np.arange(9.0), confidence=given),
}
NONE_MEANS_DEFAULT = ("scale of attention", "scale")


@pytest.mark.parametrize("given", [VAST, -VAST, np.nan, "3", None, np.ones(2), [1.0, "a"]], ids=str)
@pytest.mark.parametrize("what", NUMBERS)
def test_numbers(what, given):
    if (given is None and what in NONE_MEANS_DEFAULT) or (what == "lengthscale" and isinstance(given, np.ndarray)):
        return
    learnt = what == "scale of attention" and isinstance(given, np.ndarray)  # an array (), if it is one
    with pytest.raises(errors.ShapeError if learnt else errors.ParameterError):
        NUMBERS[what](np.nan if given is VAST and what == "rng" else given)


@pytest.mark.parametrize("given", [ROWS, ["cpu"], 3, {}], ids=["array", "list", "number", "dict"])
@pytest.mark.parametrize(
    "call",
    [
        lambda given: ka.linear_attention(ROWS, ROWS, ROWS, DRAWN, backend=given),
        lambda given: DRAWN(ROWS, backend=given),
        lambda given: ka.random_features(K.Gaussian(), 4, 8, given, rng=0),
        lambda given: ka.random_features(K.Polynomial(2), 4, 8, given, rng=0),
        lambda given: F.generalized(given, 4, 8, rng=0),
        lambda given: F.quadrature(K.Gaussian(), 2, 2, given),
        lambda given: P.Iid(norms=given),
        lambda given: P.Orthogonal(method=given),
        ka.precision,
        lambda given: ka.warmup([given]),
    ],
    ids=["backend", "map's backend", "estimator", "polynomial's", "f", "rule", "norms", "method", "products", "dtype"],
)
def test_names(call, given):
    with pytest.raises(errors.ParameterError):
        call(given)


@pytest.mark.parametrize(
    "given", ["gaussian", None, ROWS, K.Gaussian, 3, object()], ids=lambda given: type(given).__name__
)
def test_another_object_is_one_kind_of_error(given):
    calls = {
        "kernel": [
            lambda: ka.random_features(given, 4, 8, rng=0),
            lambda: F.estimators(given),
            lambda: F.recommend(ROWS, given, 8, rng=0),
            lambda: F.quadrature(given, 2, 2),
            lambda: F.nystrom(ROWS, given, 3, rng=0),
            lambda: K.Sum((given,)),
            lambda: K.Scaled(2.0, given),
        ],
        "projection": [
            lambda: ka.random_features(K.Gaussian(), 4, 8, projection=given, rng=0),
            lambda: P.Antithetic(given),
        ],
        "phi": [
            lambda: ka.linear_attention(ROWS, ROWS, ROWS, given),
            lambda: ka.key_state(ROWS, ROWS, given),
            lambda: ka.initial_state(given, (), 2, ROWS),
            lambda: ka.metrics.certify(given),
            lambda: F.ScaledMap(2.0, given),
            lambda: DRAWN + given,
            lambda: F.TensorProduct((given,)),
        ],
        "state": [lambda: ka.attend(given, ROWS, DRAWN), lambda: ka.merge_states(STATE, given)],
    }
    for what, each in calls.items():
        for call in each[:1] if what == "projection" and isinstance(given, str) else each:
            error = errors.ParameterError if what == "projection" and isinstance(given, str) else errors.DTypeError
            with pytest.raises(error):
                call()


@pytest.mark.parametrize("given", ["False", 1, 0, None, {}, ROWS], ids=str)
def test_booleans(given):
    with refused(errors.ParameterError, "causal must be True or False"):
        ka.softmax_attention(ROWS, ROWS, ROWS, causal=given)
    with refused(errors.ParameterError, "reuse_state must be True or False"):
        ka.linear_attention_step(STATE, ROWS[0], ROWS[0], ROWS[0], DRAWN, reuse_state=given)
    assert ka.softmax_attention(ROWS, ROWS, ROWS, causal=np.True_).shape == (5, 4)


def lattice(*shape):
    return np.ones((1,) * 38 + shape, np.float32)


@pytest.mark.parametrize(
    ("error", "call"),
    [
        (errors.ParameterError, lambda: ka.load("\ud800")),
        (errors.ParameterError, lambda: DRAWN.save("\ud800")),
        (errors.ParameterError, lambda: ka.studies.read_records(3)),
        (errors.ParameterError, lambda: ka.studies.study("attention", 3)),
        (errors.ParameterError, lambda: ka.studies.study("attention", "out", axes={"m": 3})),
        (errors.ParameterError, lambda: ka.studies.real_rows("digits", 2.5, 0)),
        (errors.ParameterError, lambda: ka.studies.real_rows("pixels", 1, 0)),
        (errors.ParameterError, lambda: ka.studies.real_rows("digits", 5, "a")),
        (errors.DTypeError, lambda: F.TensorSRHT(K.Polynomial(2), None, np.zeros((2, 4), int))),
        (errors.DTypeError, lambda: ka.metrics.variance_ratio(np.ones((6, 4)), np.ones(4, complex))),
        (errors.ShapeError, lambda: ka.attend(STATE, lattice(5, 4), DRAWN)),
        (errors.ShapeError, lambda: K.Gaussian()(lattice(5, 4), lattice(5, 4))),
        (errors.ShapeError, lambda: DRAWN.variance(lattice(5, 4), lattice(5, 4))),
    ],
)
def test_raw_errors_have_words(error, call):
    with pytest.raises(error):
        call()


def test_numbers_of_every_kind():
    assert K.Gaussian(np.float16(1.0)) == K.Gaussian()
    assert (np.uint64(2**63) * F.relu()).factor == (2**63 * F.relu()).factor == 2.0**63
    torch = pytest.importorskip("torch")
    with refused(errors.ParameterError, "lengthscale must be", "tensor"):
        K.Gaussian(torch.ones(3, requires_grad=True))


@pytest.mark.parametrize(
    "call",
    [
        lambda given: P.Iid().draw(4, 4, rng=given),
        K.Gaussian,
        lambda given: F.nystrom(ROWS, K.Gaussian(), 3, method=given, rng=0),
        lambda given: ka.warmup([given]),
        lambda given: ka.studies.real_rows(given, 3, 0),
        lambda given: ka.random_features(K.Gaussian([1.0] * 10**5), 10**5, 8, given, rng=0),
    ],
)
def test_messages_stay_short(call):
    with pytest.raises(errors.ParameterError) as found:
        call("a" * 10**6)
    assert len(str(found.value)) < 700


@pytest.mark.parametrize("size", [1e-30, 1e39, 1e100, 1e154, 1e300])
@pytest.mark.parametrize(
    "kernel", [K.Softmax(), K.Gaussian(), K.Polynomial(3, coef0=1.0)], ids=lambda k: type(k).__name__
)
def test_data_of_every_size_works_or_is_refused(kernel, size):
    data = size * np.random.default_rng(0).standard_normal((5, 4))
    names = ("auto", *(name for name in F.estimators(kernel) if name != "exact"))
    calls = [lambda name=name: ka.random_features(kernel, 4, 8, name, data=data, rng=0) for name in names]
    if not isinstance(kernel, K.Polynomial):
        calls += [lambda: F.recommend(data, kernel, 8, rng=0), lambda: F.quadrature(kernel, 4, 2, data=data)]
    for call in calls:
        if size <= 1e39:
            call()
        else:
            with refused(errors.ParameterError, "data must hold numbers up to 1e+40 in the kernel's own scale"):
                call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: ka.random_features(K.Gaussian(), 4, 2**31, rng=0),
        lambda: ka.random_features(K.Gaussian(), 10**6, 2**31 - 2, rng=0),
        lambda: ka.random_features(K.Gaussian(), 10**6, 2**31 - 2, projection="iid", rng=0),
        lambda: ka.random_features(K.Gaussian(), 10**6, 2**31 - 2, projection="hadamard", rng=0),
        lambda: ka.random_features(K.Polynomial(9), 10**6, 2**31 - 2, "rademacher_sketch", rng=0),
        lambda: ka.random_features(K.Polynomial(9), 10**6, 2**31 - 2, "complex_to_real", rng=0),
        lambda: ka.random_features(K.Polynomial(10**5), 10, 2**31 - 2, "tensor_srht", rng=0),
        lambda: ka.random_features(K.AdditiveChi2(), 4, 4 * (2**28 - 1), rng=0),
        lambda: ka.initial_state(DRAWN, (2**30, 2**30), 2, ROWS),
        lambda: F.polynomial(10**6)(ROWS),
    ],
)
def test_what_no_machine_has_room_for(call):
    with pytest.raises(errors.ParameterError):
        call()


@dataclass(frozen=True, eq=False)
class OwnSpec(F.FeatureMap):
    """A map of one's own whose spec may not fit its rows."""

    spec: MapSpec = None
    dim = None
    scaled_query = scaled_key = redraw = None

    def num_features_of(self, dim):
        return self.spec.num_features_of(dim)


def test_specs_of_ones_own():
    short, plain = {"row_weights": np.ones(3)}, {"row_weights": [1.0] * 4}
    for wrong in (short, plain, {"offset": np.ones(9)}, {"omega": np.ones(4)}):
        with pytest.raises(errors.KernattnError):
            MapSpec("exp", **{"omega": np.ones((6, 4)), **wrong})
    with refused(errors.ParameterError, "kind must be one of", "'log'"):
        MapSpec("log")
    with refused(errors.ParameterError, "amplitude must be a positive number"):
        MapSpec("exp", amplitude=0.0)
    for spec in (MapSpec("exp", row_weights=np.ones(3)), MapSpec("exp", offset=np.ones(5))):
        for call in (
            lambda spec=spec: ka.key_state(ROWS, ROWS, OwnSpec(spec)),
            lambda spec=spec: ka.linear_attention(ROWS, ROWS, ROWS, OwnSpec(spec)),
            lambda spec=spec: OwnSpec(spec)(ROWS),
        ):
            with refused(errors.ShapeError, "(4,)"):
                call()


@pytest.mark.parametrize(
    ("words", "call"),
    [
        ("causal must be True or False", lambda: F.recommend(ROWS, K.Softmax(), 8, values=ROWS, causal=ROWS)),
        ("rng must be", lambda: F.from_function(np.abs, 4, rng="x")),
        ("rng must be", lambda: F.from_function(np.abs, 4).redraw("x")),
        ("rng must be", lambda: F.elu1().redraw("x")),
        ("rng must be", lambda: F.nystrom(np.ones((3, 2)), ka.kernels.Gaussian(), 2).redraw("x")),
        ("dim must be left out, or be 4", lambda: ka.solvers.initial_moments(DRAWN, dim=99)),
        ("head must be below 1", lambda: ka.patterns.local(1).plan(3).mask(1)),
        ("head must be a non-negative integer", lambda: ka.patterns.local(1).plan(3).reach(2, None)),
        ("head must be below 0", lambda: ka.patterns.Plan("all").mask()),
        ("cosine must lie in [-1, 1]", lambda: P.Pair(1.5)),
        ("norms must be one of", lambda: P.Pair(0.0, "near")),
        ("f must be a function", lambda: ka.transformer.reversible(None, np.sin, ROWS, ROWS)),
        ("x2 must be an array", lambda: ka.transformer.reversible(np.sin, np.sin, ROWS, None)),
        ("y1 and y2 must be of one shape", lambda: ka.transformer.reversible_inverse(np.sin, np.sin, ROWS, ROWS[:3])),
        ("dilation must be", lambda: ka.patterns.longformer(2, [0], dilation=np.array(0))),
        ("grid must be a tuple", lambda: ka.transformer.Config(dim=8, layers=1, heads=2, vocab=9, length=9, grid=ROWS)),
    ],
)
def test_what_was_ignored_or_ended_in_raw_errors(words, call):
    with refused(errors.KernattnError, words):
        call()


@pytest.mark.parametrize("estimator", ["auto", "positive"])
def test_choices_by_causal_attention(estimator):
    with refused(errors.ParameterError, "causal must be True or False"):
        ka.random_features(K.Softmax(), 4, 8, estimator, data=ROWS, values=ROWS, causal=ROWS)


@pytest.mark.parametrize("method", ["uniform", "rpcholesky", "greedy"])
def test_landmarks_that_the_machine_has_no_room_for(method, monkeypatch):
    x = np.random.default_rng(0).standard_normal((60, 2))
    monkeypatch.setattr(checks, "_memory", lambda: 20_000)
    assert F.nystrom(x, K.Gaussian(), 5, method=method, rng=0).num_features == 5
    with refused(errors.ParameterError, "landmarks", "GiB"):
        F.nystrom(x, K.Gaussian(), 50, method=method, rng=0)
    with refused(errors.ParameterError, "landmarks", "GiB"):
        ka.solvers.kernel_ridge(x, x[:, 0], K.Gaussian(), penalty=1.0, num_landmarks=50, method=method, rng=0)


@pytest.mark.parametrize(
    "text",
    [f"gaussian(lengthscale={'-' * 5000}1)", f"gaussian{'(' * 50_000})", "gaussian() + g()", f"gaussian({'9' * 5000})"],
    ids=["minus signs", "brackets", "a sum", "digits"],
)
def test_kernels_of_commands(text):
    with refused(errors.ParameterError, "--kernel takes parameters as gaussian(name=number)") as found:
        _parse_kernel(text)
    assert len(str(found.value)) < 300


def test_tables_are_not_archives(tmp_path):
    (tmp_path / "x.txt").write_text("1,2\n")
    with refused(errors.FileFormatError, "x.txt cannot be read as an .npz of plain numbers: no file of numpy.savez"):
        ka.studies.study("attention", tmp_path / "out", data=tmp_path / "x.txt")
