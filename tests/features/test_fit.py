"""Maps that are fitted: the gradient, what is planted is found, no map is worse than a random one, and bad input."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors
from kernattn.features._fitted import learn, losses, size
from kernattn.features._fitted.losses import Batch
from seam import MapSpec
from xp import KINDS as LIBRARIES

K, fit = ka.kernels, ka.features.fit
D, M = 4, 8


@pytest.fixture
def few_steps(monkeypatch):
    monkeypatch.setattr(learn, "STEPS", 60)


@pytest.fixture
def five_steps(monkeypatch):
    monkeypatch.setattr(learn, "STEPS", 5)


def clusters(n, rng, d=8, sizes=(1.5, 0.2)):
    """Rows about four centres that are always the same."""
    centres = sizes[0] * np.random.default_rng(7).standard_normal((4, d))
    return centres[rng.integers(4, size=n)] + sizes[1] * rng.standard_normal((n, d))


def spec_of(kind, d, seed, **options):
    rng = np.random.default_rng(seed)
    frequencies = M // 2 if kind in ("exp_pair", "sincos") else M
    offset = None if kind == "sincos" else rng.standard_normal(M)
    return MapSpec(kind, rng.standard_normal((frequencies, d)) / 2, None, offset, amplitude=0.5, **options)


LOSSES = {
    "a softmax of pairs": ("exp_pair", "hedgehog", "attention", False),
    "causal": ("exp", "hedgehog", "attention", True),
    "quadratic": ("exp_pair", "exponential", "attention", False),
    "frequencies": ("exp", "omega", "attention", True),
    "kernel": ("exp", "exponential", "kernel", False),
    "kernel by cosines": ("sincos", "omega", "kernel", False),
}


@pytest.mark.parametrize("name", LOSSES)
def test_the_gradient_is_that_of_the_loss(name):
    """By the numbers that are learnt, those of scaled rows, against central differences."""
    shape, kind, objective, causal = LOSSES[name]
    rng = np.random.default_rng(1)
    q, k, v = rng.standard_normal((20, D)) + 0.5, 2 * rng.standard_normal((20, D)), rng.standard_normal((20, 3))
    bases = [learn.start_of(spec_of(shape, D, seed), kind) for seed in (2, 3)]
    scalings = [learn.Scaling.of(q), learn.Scaling.of(k)]
    names = learn.LEARNT[kind]
    numbers = [scaling.numbers(base, names) for scaling, base in zip(scalings, bases, strict=True)]
    kernel = K.Softmax() if objective == "attention" else K.Gaussian(2.0)

    def loss_of(numbers):
        specs = tuple(s.spec(b, x) for s, b, x in zip(scalings, bases, numbers, strict=True))
        if objective == "attention":
            return losses.attention_loss(kernel, Batch(q, k, v), specs, np.random.default_rng(4), causal)
        return losses.kernel_loss(kernel, Batch(q, k, None), specs)

    _, gradients = loss_of(numbers)
    for side in (0, 1):
        own = scalings[side].gradient(bases[side].kind, gradients[side], tuple(numbers[side]))
        assert own.keys() == numbers[side].keys()
        for which, g in own.items():
            t = rng.standard_normal(g.shape)
            ends = []
            for step in (1e-6, -1e-6):
                moved = [dict(each) for each in numbers]
                moved[side][which] = moved[side][which] + step * t
                ends.append(loss_of(moved)[0])
            size = 1e-6 * np.sqrt(np.sum(g**2)) + 1e-9
            assert abs(np.sum(g * t) - (ends[0] - ends[1]) / 2e-6) <= size, (side, which)


def test_numbers_for_scaled_rows_are_the_same_map():
    x = 3 * np.random.default_rng(1).standard_normal((9, D)) + 2
    scaling = learn.Scaling.of(x)
    for shape in ("exp", "exp_pair"):
        base = learn.start_of(spec_of(shape, D, 2), "exponential")
        again = scaling.spec(base, scaling.numbers(base, learn.LEARNT["exponential"]))
        np.testing.assert_allclose(losses.logs_of(x, again), losses.logs_of(x, base), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", ["hedgehog", "exponential", "omega"])
def test_what_is_planted_is_found(kind, monkeypatch):
    """Few clusters need few features; random ones do not know where they lie."""
    monkeypatch.setattr(learn, "STEPS", 120)
    rng = np.random.default_rng(1)
    x, held = clusters(128, rng), clusters(64, rng)
    phi = fit(K.Softmax(), (x, x), M, kind=kind, rng=2)
    assert phi.kind == kind
    assert phi.error < 0.5 * phi.random_error
    exact = ka.softmax_attention(held, held, held)
    random = ka.random_features(K.Softmax(), 8, M, "auto", data=(x, x), rng=3)
    error, other = (np.linalg.norm(ka.linear_attention(held, held, held, each) - exact) for each in (phi, random))
    assert error < 0.5 * other


def test_a_kernel_is_fitted(few_steps):
    x = clusters(64, np.random.default_rng(1))
    phi = fit(K.Gaussian(3.0), x, M, objective="kernel", rng=2)
    assert (phi.kind, phi.keys, phi.error < phi.random_error) == ("omega", None, True)
    rms = np.sqrt(np.mean((phi(x) @ phi(x).T - K.Gaussian(3.0)(x)) ** 2))
    assert rms < 0.5
    np.testing.assert_allclose(phi.bias(x, x), np.sum(phi(x) ** 2, axis=-1) - 1, atol=1e-12)


def test_no_map_is_worse_than_a_random_one_on_rows_that_judge(few_steps, monkeypatch):
    """A fit that went astray is dropped; else its error is the less of the two."""
    rng, dropped = np.random.default_rng(1), 0
    x = rng.standard_normal((48, D))
    for rate in (0.02, 30.0):
        monkeypatch.setattr(learn, "MOST", rate)
        monkeypatch.setattr(learn, "RATE", 100 * rate)
        for seed in range(2):
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                phi = fit(K.Softmax(), (x, x), M, rng=seed)
            if isinstance(phi, ka.features.Fitted):
                assert phi.error < phi.random_error
                assert not told
            else:
                dropped += 1
                (line,) = told
                assert line.filename == __file__
                assert "the random map is returned" in str(line.message)
                assert type(phi).__name__ != "Fitted"
    assert dropped >= 2


@pytest.mark.parametrize("kind", LIBRARIES, ids=repr)
def test_every_library_gives_the_same_map(kind, monkeypatch):
    monkeypatch.setattr(learn, "STEPS", 40)
    x = clusters(80, np.random.default_rng(1)).astype(np.float32)
    wanted = fit(K.Softmax(), (x, x + x), M, values=x[:, :2], causal=True, rng=2)
    given = [kind.asarray(rows) for rows in (x, x + x, x[:, :2])]
    phi = fit(K.Softmax(), tuple(given[:2]), M, values=given[2], causal=True, rng=2)
    for mine, other in ((phi.queries, wanted.queries), (phi.keys, wanted.keys)):
        np.testing.assert_allclose(mine.omega, other.omega, rtol=1e-9, atol=1e-9)


def test_a_map_of_one_array_is_one(few_steps, tmp_path):
    """It is saved, and learnt on, as a map that is drawn is."""
    x = clusters(80, np.random.default_rng(1))
    phi = fit(K.Softmax(), x, M, rng=2)
    assert phi.spec is phi.query_spec is phi.key_spec
    assert phi.redraw(0) is phi
    phi.save(tmp_path / "map.npz")
    again = ka.load(tmp_path / "map.npz")
    assert again.fingerprint == phi.fingerprint
    np.testing.assert_array_equal(again(x), phi(x))
    assert again.error == phi.error
    np.testing.assert_allclose(np.sum(phi(x), axis=-1), phi.spec.amplitude)
    apart = fit(K.Softmax(), (x, x), M, rng=2)
    assert apart.spec is None
    apart.save(tmp_path / "map.npz")
    np.testing.assert_array_equal(ka.load(tmp_path / "map.npz").key(x), apart.key(x))
    learnt = ka.with_numbers(phi, omega=phi.spec.omega * 1.0)
    np.testing.assert_array_equal(learnt(x), phi(x))


@pytest.mark.parametrize("kind", ["hedgehog", "exponential", "omega"])
@pytest.mark.parametrize("shared", [True, False])
def test_weights_have_the_kernels_size(kind, shared, few_steps, tmp_path):
    """Attention's outputs leave it free; beside exact weights it counts, and needs no bias."""
    rng = np.random.default_rng(1)
    x, q, k = 0.5 * rng.standard_normal((200, D)), *0.5 * rng.standard_normal((2, 120, D))
    phi = fit(K.Softmax(), x if shared else (x, x), M, kind=kind, rng=2)
    assert phi.kind == kind
    off = np.log(np.sum(phi.query(q) @ phi.key(k).T, axis=1) / np.sum(K.Softmax()(q, k), axis=1))
    assert abs(np.median(off)) < 0.3
    exact = ka.softmax_attention(q, k, k, causal=True)
    errors_of = [
        np.linalg.norm(ka.attention.window_attention(q, k, k, phi, 20, near_bias=bias)[0] - exact)
        for bias in (-2, 0, 2)
    ]
    assert min(errors_of) == errors_of[1]
    phi.save(tmp_path / "map.npz")
    assert ka.load(tmp_path / "map.npz").query_spec.amplitude == phi.query_spec.amplitude


@pytest.mark.parametrize("shift", [0.0, 30.0, 1e4])
def test_a_size_changes_no_outputs_and_float32_holds_it(shift):
    """Keys that share a mean weigh e^shift more, which cancels; beyond e^64 the size is left as it is."""
    x = np.random.default_rng(1).standard_normal((40, D))
    q, k = x.copy(), x[::-1].copy()
    q[:, 0], k[:, 0] = 1.0, shift * D**0.5
    specs = [learn.start_of(spec_of("exp_pair", D, seed), "hedgehog") for seed in (2, 3)]
    drawn = ka.features.Fitted(K.Softmax(), "hedgehog", *specs, 0.1, "positive", 0.2)
    phi = size.sized(drawn, q, k)
    off = np.median(size.lacking(drawn, q, k))
    logs = [float(spec.log_amplitude) for spec in (phi.queries, phi.keys)]
    np.testing.assert_allclose(logs, np.clip(off / 2, -size.MOST, size.MOST), rtol=1e-12)
    outs = [ka.linear_attention(q, k, x, each) for each in (drawn, phi)]
    np.testing.assert_allclose(*outs, rtol=1e-10, atol=1e-12)
    low = ka.linear_attention(*(y.astype(np.float32) for y in (q, k, x)), phi)
    assert np.all(np.isfinite(low))


def test_random_features_fit_by_name(few_steps):
    x = clusters(80, np.random.default_rng(1))
    phi = ka.random_features(K.Softmax(), 8, M, "learned", data=(x, x), rng=2)
    wanted = fit(K.Softmax(), (x, x), M, rng=2)
    assert phi.fingerprint == wanted.fingerprint
    given = {"values": x[:, :2], "causal": True}
    phi = ka.random_features(K.Softmax(), 8, M, "learned", data=(x, x), rng=2, **given)
    assert phi.fingerprint == fit(K.Softmax(), (x, x), M, rng=2, **given).fingerprint
    assert "learned" not in ka.features.estimators(K.Softmax())


def test_auto_compares_a_fit_where_it_is_allowed(few_steps, monkeypatch):
    x = clusters(80, np.random.default_rng(1))
    options = {"data": (x, x), "rng": 2}
    drawn = ka.random_features(K.Softmax(), 8, M, **options)
    assert ka.random_features(K.Softmax(), 8, M, **options, learned=True).error < 0.5
    monkeypatch.setattr(learn, "MOST", 30.0)
    monkeypatch.setattr(learn, "RATE", 3000.0)
    assert type(ka.random_features(K.Softmax(), 8, M, **options, learned=True)) is type(drawn)
    with pytest.raises(errors.ParameterError, match="learned are what estimator 'auto' chooses by"):
        ka.random_features(K.Softmax(), 8, M, learned=True)
    with pytest.raises(errors.ParameterError, match="data must be given for 'learned'"):
        ka.random_features(K.Softmax(), 8, M, "learned")
    with pytest.raises(errors.ParameterError, match="leave projection at its default"):
        ka.random_features(K.Softmax(), 8, M, "learned", "iid", **options)


def test_recommend_has_a_row_of_a_fit(few_steps):
    """All maps are judged on rows that the fit did not see; without one the table is what it was."""
    x, rng = clusters(120, np.random.default_rng(1)), np.random.default_rng(3)
    table = ka.features.recommend((x, x), K.Softmax(), M, ["orthogonal"], rng, learned=True)
    assert table.best.estimator == "learned"
    assert (table.queries, table.keys) == (30, 30)
    assert (table.best.standard_error, table.best.predicted) == (0.0, np.inf)
    assert "fitted to three quarters of the rows, a quarter of which were its judge" in str(table)
    assert rng.integers(100) == np.random.default_rng(3).integers(100)
    assert "learned" not in str(ka.features.recommend((x, x), K.Softmax(), M, ["orthogonal"], 3))


ROWS = np.random.default_rng(1).standard_normal((20, D))
HOLED = np.where(np.arange(20)[:, None] == 3, np.nan, ROWS)
REFUSED = {
    "few rows": (lambda: fit(K.Softmax(), ROWS[:9], 4), errors.ParameterError, "data must have 16 rows.*got 9"),
    "constant": (
        lambda: fit(K.Softmax(), (ROWS, ROWS * 0 + 1), 4),
        errors.ParameterError,
        "keys of data must not be one row over and over; got 20 equal rows",
    ),
    "NaN": (lambda: fit(K.Softmax(), (ROWS, HOLED), 4), errors.ParameterError, "keys of data must be finite.*row 3"),
    "another d": (lambda: fit(K.Softmax(), (ROWS, ROWS[:, :3]), 4), errors.ShapeError, r"\(20, 4\) and \(20, 3\)"),
    "kernel": (lambda: fit(K.Gaussian(), ROWS, 4), errors.ParameterError, "ask for objective='kernel'"),
    "no spectrum": (lambda: fit(K.Polynomial(2), ROWS, 4, objective="kernel"), errors.ParameterError, "spectral"),
    "kind": (lambda: fit(K.Softmax(), ROWS, 4, kind="cos"), errors.ParameterError, "kind must be"),
    "exponential features": (
        lambda: fit(K.Matern(1.5), ROWS, 4, kind="exponential", objective="kernel"),
        errors.ParameterError,
        "kind 'exponential' is for kernels of exponential features.*got Matern.*ask for kind='omega'",
    ),
    "shares": (
        lambda: fit(K.Softmax(), ROWS, 4, kind="hedgehog", objective="kernel"),
        errors.ParameterError,
        "sum to 1 in every row",
    ),
    "values": (lambda: fit(K.Softmax(), ROWS, 4, values=ROWS[:5]), errors.ShapeError, "a row for each of the 20 keys"),
    "values of a kernel": (
        lambda: fit(K.Softmax(), ROWS, 4, values=ROWS, objective="kernel"),
        errors.ParameterError,
        "for objective 'attention'",
    ),
    "causal": (lambda: fit(K.Softmax(), (ROWS, ROWS[:17]), 4, causal=True), errors.ShapeError, "as many queries"),
    "number": (lambda: fit(K.Softmax(), ROWS, 0), errors.ParameterError, "num_features"),
    "progress": (lambda: fit(K.Softmax(), ROWS, 4, progress="yes"), errors.ParameterError, "progress must be"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(what):
    call, error, line = REFUSED[what]
    with pytest.raises(error, match=line) as refusal:
        call()
    assert "\n" not in str(refusal.value)


def test_fewer_rows_than_features_are_told(few_steps):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fit(K.Softmax(), (ROWS, ROWS), 32, rng=0)
    assert str(told[0].message).startswith("data has 20 rows, fewer than the 32 features")
    assert told[0].filename == __file__


@pytest.mark.usefixtures("five_steps")
@pytest.mark.parametrize("side", ["keys", "both"])
def test_rows_of_which_the_judge_has_the_only_other_one(side):
    """All keys of the fit weigh alike, and uniform attention is exact: there is nothing to be better than."""
    alike = np.where(np.arange(20)[:, None] == 3, 1.0, np.zeros(D))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*the random map is returned")
        for seed in range(3):  # of which some cut the row off
            phi = fit(K.Softmax(), (ROWS if side == "keys" else alike, alike), M, rng=seed)
            assert np.all(np.isfinite(phi.key(alike)))


@pytest.mark.usefixtures("five_steps")
def test_rows_in_which_all_keys_weigh_alike_to_rounding():
    """A fit learns uniform attention then, by errors beside the values themselves."""
    task = learn.Task(K.Softmax(), 1e-10 * ROWS, 1e-10 * ROWS[::-1], None, "attention", False, True)
    start = [spec_of("exp", D, seed) for seed in (2, 3)]
    told = []
    learn.learn(task, "hedgehog", start, False, np.random.default_rng(0), lambda step, loss: told.append(loss))
    assert np.all(np.isfinite(told))


@pytest.mark.usefixtures("five_steps")
def test_features_beyond_the_floats_are_no_warnings():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        fit(K.Softmax(), 60 * ROWS, M, objective="kernel", rng=0)
    assert {each.category for each in told} <= {UserWarning}


@pytest.mark.usefixtures("five_steps")
@pytest.mark.parametrize("projection", ["orthogonal", "iid"])
def test_kernels_whose_frequencies_are_drawn_axis_by_axis(projection):
    """Their fit begins at iid frequencies, by its own name and by that of `random_features`."""
    x = clusters(48, np.random.default_rng(1))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*the random map is returned")
        phi = fit(K.Laplacian(3.0), x, M, objective="kernel", rng=2)
        again = ka.random_features(K.Laplacian(3.0), 8, M, "learned", projection, data=x, rng=2)
    assert again.fingerprint == phi.fingerprint
    table = ka.features.recommend(x, K.Laplacian(3.0), M, ["iid"], 2, learned=True)
    assert {choice.projection for choice in table.choices} == {ka.projections.Iid()}


def test_normalised_specs_are_of_exponentials():
    omega = np.ones((3, D))
    for bad in (
        {"kind": "elu1", "omega": omega},
        {"kind": "exp"},
        {"kind": "exp", "omega": omega, "row_weights": np.ones(D)},
    ):
        with pytest.raises(errors.ParameterError, match="a normalised map must"):
            MapSpec(**bad, normalised=True)
    spec = MapSpec("exp", omega, normalised=True)
    assert replace(spec, normalised=False).direct
    assert not spec.direct


@pytest.mark.parametrize("size", [30.0, 300.0, 1e-200])
def test_fits_take_rows_of_any_size(size, monkeypatch):
    """Causal weights of a row whose later keys are far larger are no numbers in units of these; none may vanish."""
    monkeypatch.setattr(learn, "STEPS", 3)
    x = size * np.random.default_rng(0).standard_normal((24, 4))
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        phi = ka.features.fit(ka.kernels.Softmax(), x, 6, causal=True, rng=0)
        assert np.all(np.isfinite(ka.linear_attention(x, x, x, phi)))


def test_causal_weights_of_far_rows():
    x = 300 * np.random.default_rng(0).standard_normal((12, 4))
    scores = np.where(np.tri(12) > 0, x @ x.T / 2, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(losses.exact_attention(ka.kernels.Softmax(), x, x, True), weights, atol=1e-12)
