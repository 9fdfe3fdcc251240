"""The table behind "auto": its errors are those that maps make, and it says when none of them helps."""

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import stdtrit

import kernattn as ka
from covering import turns
from kernattn.errors import ParameterError, ShapeError
from kernattn.features import recommend
from kernattn.features._choose.ranking import measure_until_decided
from kernattn.features._choose.sample import REDRAWS, draw_sample, redraw_seeds
from kernattn.features._choose.targets import AttentionTarget, Measured
from kernattn.features._data import check_inputs
from laws import arrays

K, P = ka.kernels, ka.projections
N, D = 40, 4
APART = "favor_sharp_asymmetric"
SHARED = set(ka.features.estimators(K.Softmax())) - {APART, "phase"}


def data(size=1.0):
    return size * arrays(1, (N, D), dtype="float64")[0]


def weights(kernel, q, k):
    """Every pair of a query and a key, or for softmax each row of the kernel of size 1."""
    exact = kernel(q, k)
    if not isinstance(kernel, K.Softmax):
        return exact, np.full(exact.shape, 1 / np.sum(exact**2))
    return exact, np.ones_like(exact) / np.sum(exact**2, axis=1, keepdims=True) / len(q)


def pair(size=1.0):
    """Queries and keys that differ: in number, in mean and along axes."""
    q, k = (arrays(seed, (n, D), dtype="float64")[0] for seed, n in ((1, N), (2, 30)))
    return size * (q * np.linspace(0.5, 2, D) + 0.5), size * (k * np.linspace(2, 0.5, D) - 0.5)


@pytest.mark.statistical
@pytest.mark.parametrize("kernel", [K.Gaussian(2.0), K.Softmax()], ids=["gaussian", "softmax"])
def test_predicted_errors_of_the_kernel_are_those_that_maps_make(kernel):
    q, k = pair(0.3)
    exact, w = weights(kernel, q, k)
    table = recommend((q, k), kernel, 12, objective="kernel", rng=0)
    assert [choice.error for choice in table.choices] == sorted(choice.predicted for choice in table.choices)
    assert {choice.estimator for choice in table.choices} == SHARED
    assert table.uniform is None
    for choice in table.choices:
        if "iid frequencies" in choice.reason:
            continue
        phi = ka.random_features(kernel, D, 12, choice.estimator, choice.projection, data=(q, k), rng=0)
        rng = np.random.default_rng(3)
        drawn = (f(q) @ f(k).T for f in (phi.redraw(rng) for _ in range(100)))
        squares = np.array([np.sum(w * (estimate - exact) ** 2) for estimate in drawn])
        z = (squares.mean() - choice.predicted**2) / (squares.std() / np.sqrt(len(squares)))
        assert abs(z) < 4.5, choice


def attention(q, k, v, phi, causal):
    if causal:
        return ka.causal_linear_attention(q, k, v, phi)[0] if phi else ka.softmax_attention(q, k, v, causal=True)
    return ka.linear_attention(q, k, v, phi) if phi else ka.softmax_attention(q, k, v)


@pytest.mark.statistical
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("given", [False, True], ids=["any values", "values"])
def test_measured_errors_of_attention_are_those_that_maps_make(given, causal):
    """The typical error over many redraws, by the public functions, lies in the interval; uniform attention's is it."""
    (q, k), kernel = pair(0.5), K.Softmax()
    q = q[: len(k)]
    seen = np.tril(np.ones((len(q), len(k)))) if causal else np.ones((len(q), len(k)))
    seen /= np.sum(seen, axis=1, keepdims=True)
    v = arrays(4, (len(k), 3), dtype="float64")[0] if given else np.eye(len(k))  # E |A v|^2 = |A|^2 of white values
    kinds = [v] if given else [v, k]
    table = recommend((q, k), K.Softmax(), 16, ["iid"], values=v if given else None, causal=causal, rng=0)
    exact = [attention(q, k, each, None, causal) for each in kinds]

    def log_error(outs):
        return np.mean(
            [np.log(np.linalg.norm(out - o) / np.linalg.norm(o)) for out, o in zip(outs, exact, strict=True)]
        )

    assert table.uniform == pytest.approx(np.exp(log_error(seen @ each for each in kinds)), rel=1e-9)
    assert [choice.error for choice in table.choices] == sorted(choice.measured for choice in table.choices)
    for choice in table.choices:
        if choice.estimator in {"trigonometric", "phase"}:  # their errors have no expectation
            continue
        phi = ka.random_features(kernel, D, 16, choice.estimator, "iid", data=(q, k), rng=0)
        rng = np.random.default_rng(3)
        drawn = [phi.redraw(rng) for _ in range(40)]
        logs = [log_error(attention(q, k, v, each, causal) for v in kinds) for each in drawn]
        spread = np.std(logs) * np.sqrt(1 / REDRAWS[0] + 1 / len(logs))
        assert abs(np.mean(logs) - np.log(choice.measured)) < 4.5 * spread, choice
        assert choice.low <= choice.measured <= choice.high


def test_prediction_of_attention_is_that_of_small_errors():
    """To first order: with many features of iid frequencies and values far from what the rows have in common."""
    q, k = pair(0.5)
    v = np.random.default_rng(0).standard_normal((len(k), 50))
    for row in recommend((q, k), K.Softmax(), 4000, ["iid"], values=v, rng=0).choices:
        assert 0.3 < row.measured / row.predicted < 1.3, row
        assert row.predicted < 0.3


def opposed():
    """Queries about a mean, keys about its opposite: attention all but uniform, of which maps make noise."""
    rng, mean = np.random.default_rng(0), 1.2 * np.eye(32)[0]
    q, k = ((0.3 * rng.standard_normal((256, 32)) + sign * mean) * 32**0.25 for sign in (1, -1))
    return q, k, rng.standard_normal((256, 8))


@pytest.fixture(scope="module")
def noise():
    """The table of values that have nothing to do with such keys."""
    q, k, values = opposed()
    return recommend((q, k), K.Softmax(), 64, ["orthogonal"], values=values, rng=0)


def test_queries_do_not_meet_queries(noise):
    """Pairs of a query and a key alone: what a pooled choice took for the best has many times the error."""
    q, k, _ = opposed()
    table = recommend((q, k), K.Softmax(), 64, ["orthogonal"], rng=0)
    error = {choice.estimator: choice.measured for choice in table.choices}
    assert table.best.estimator not in {"trigonometric", "phase"}
    assert error["trigonometric"] > 30 * table.best.measured
    auto = ka.random_features(K.Softmax(), 32, 64, data=(q, k), rng=0)
    assert type(auto) is ka.features.ESTIMATORS[table.best.estimator].cls
    assert noise.hopeless  # all but uniform
    assert not table.hopeless  # with keys as values maps come near, and the table says of which values none does
    assert "With independent numbers as values no map is better than uniform attention: give values=" in str(table)
    assert "With the keys" not in str(table)


def test_rows_stand_for_queries_and_keys():
    """Given apart they may have a map each, which attention takes and a kernel's users may not ask for."""
    x = data()
    assert recommend(x, K.Gaussian(), 12, rng=0) == recommend((x, x.copy()), K.Gaussian(), 12, rng=0)
    one, two = (recommend(each, K.Softmax(), 12, rng=0) for each in (x, (x, x.copy())))
    assert {row.estimator for row in one.choices} == SHARED
    assert {row.estimator for row in two.choices} == SHARED | {APART}
    kept = tuple(row for row in two.choices if row.estimator != APART)
    assert [row.estimator for row in kept] == [row.estimator for row in one.choices]


def skewed():
    """Queries and keys whose variances lie along different axes, about means of their own."""
    q, k = np.random.default_rng(0).standard_normal((2, 300, 32))
    sizes = np.geomspace(2.0, 0.1, 32)
    return q * sizes + sizes, k * sizes[::-1] + 0.5 * np.random.default_rng(1).standard_normal(32)


def test_maps_of_queries_and_of_keys_are_seen():
    """Every shared map is worse than uniform attention here; by maps of each side attention is not hopeless."""
    pair = skewed()
    table = recommend(pair, K.Softmax(), 256, ["orthogonal"], rng=0)
    assert table.best.estimator == APART
    assert table.best.error < 0.5 * table.uniform
    assert not table.hopeless
    shared = replace(table, choices=table.choices[1:])
    assert shared.hopeless
    assert "they need data=(queries, keys)" in str(shared)
    auto = ka.random_features(K.Softmax(), 32, 256, data=pair, rng=0)
    exact, uniform = ka.softmax_attention(*pair, pair[1]), pair[1].mean(axis=0)
    error = np.linalg.norm(ka.linear_attention(*pair, pair[1], auto) - exact)
    assert error < 0.5 * np.linalg.norm(uniform - exact)
    of_iid = recommend(pair, K.Softmax(), 256, ["iid"], rng=0).choices
    predicted = {row.estimator: row.predicted for row in of_iid}[APART]
    assert predicted == pytest.approx({row.estimator: row.predicted for row in table.choices}[APART])


def test_more_redraws_where_eight_do_not_decide():
    """Maps that are near each other are redrawn more than 32 times, those far apart 8 times, by common seeds."""
    target = AttentionTarget(K.Softmax(), draw_sample(check_inputs(data(0.5)), np.random.default_rng(0)))
    seeds = redraw_seeds(np.random.default_rng(0))
    near = [ka.random_features(K.Softmax(), D, m, "positive", rng=0) for m in (16, 17)]
    far = ka.random_features(K.Softmax(), D, 512, "positive", rng=0)
    every = [np.log(target.measure(near[0].redraw(np.random.default_rng(s))).error) / 2 for s in seeds]
    for others, counts in ((near, REDRAWS[3:]), ([near[0], far], (8,))):
        found = measure_until_decided(dict(zip("ab", others, strict=True)), target, seeds)["a"]
        (number,) = (n for n in counts if found.error == pytest.approx(np.exp(np.mean(every[:n]))))
        half = stdtrit(number - 1, 0.975) * np.std(every[:number], ddof=1) / number**0.5
        assert found.high / found.error == pytest.approx(np.exp(half), rel=1e-3)


def test_the_work_is_bounded():
    """64 queries and 512 keys of any number of rows; rows that attend to themselves, or causally, among the keys."""
    rng = np.random.default_rng(0)
    q, k, x = rng.standard_normal((3, 2000, D))
    for given, causal in ((x, False), ((q, k), True), ((q, k), False)):
        sample = draw_sample(check_inputs(given), np.random.default_rng(0), causal=causal)
        assert (sample.queries.shape, sample.keys.shape) == ((64, D), (512, D))
        if given is x:
            assert all((sample.keys == row).all(axis=1).any() for row in sample.queries)
        if causal:
            at = [int(np.flatnonzero((q == row).all(axis=1))[0]) for row in sample.queries]
            keys = [int(np.flatnonzero((k == row).all(axis=1))[0]) for row in sample.keys]
            assert set(at) <= set(keys)
            np.testing.assert_array_equal(sample.visible, np.asarray(at)[:, None] >= np.asarray(keys))


def test_a_seed_decides():
    x = data()
    rng = np.random.default_rng(5)
    first = recommend(x, K.Softmax(), 12, rng=rng)
    assert recommend(x, K.Softmax(), 12, rng=rng) == first
    other = recommend(x, K.Softmax(), 12, rng=6)
    assert {row.measured for row in other.choices}.isdisjoint(row.measured for row in first.choices)


@pytest.mark.parametrize("causal", [False, True])
def test_rows_of_every_size(causal):
    """Errors stay numbers where the kernel is far beyond the floats, later keys far larger than earlier ones."""
    rng = np.random.default_rng(0)
    q, k = rng.standard_normal((2, N, D))
    k *= np.geomspace(1e-3, 1e3, N)[:, None]
    table = recommend((q, k), K.Softmax(), 12, causal=causal, rng=0)
    assert 0 < table.uniform < 10
    for choice in table.choices:
        if choice.estimator not in {"trigonometric", "phase"}:
            assert 0 < choice.measured < 2, choice


def test_keys_that_are_all_0_tell_nothing():
    """Every map is exact there with independent values, and keys as values are 0 in any case."""
    for rows in (np.zeros((6, 2)), (np.ones((6, 2)), np.zeros((6, 2)))):
        table = recommend(rows, K.Softmax(), 1, ["iid"], rng=0)
        assert all(row.error == row.measured == 0 for row in table.choices)
        assert not table.hopeless


def test_values_of_every_size():
    q, k = pair()
    v = np.random.default_rng(1).standard_normal((len(k), 3))
    wanted = recommend((q, k), K.Softmax(), 8, ["iid"], values=v, rng=0)
    for unit in (1e-300, 1e300):
        found = recommend((q, k), K.Softmax(), 8, ["iid"], values=v * unit, rng=0)
        assert found.uniform == pytest.approx(wanted.uniform, rel=1e-12), unit
        for ours, row in zip(found.choices, wanted.choices, strict=True):
            assert ours.estimator == row.estimator, unit
            np.testing.assert_allclose([ours.error, ours.predicted], [row.error, row.predicted], rtol=1e-9)


@pytest.mark.parametrize(
    ("kernel", "number", "projection"),
    turns([K.Gaussian(), K.Softmax(), K.Matern(1.5)], product([12, 13], ["iid", "orthogonal"])),
    ids=str,
)
def test_auto_takes_the_first_row(kernel, number, projection):
    for size in (0.2, 1.0):
        best = recommend(data(size), kernel, number, [projection], rng=0).best
        auto = ka.random_features(kernel, D, number, projection=projection, data=data(size), rng=0)
        assert type(auto) is ka.features.ESTIMATORS[best.estimator].cls
        by_name = ka.random_features(kernel, D, number, best.estimator, projection, data(size), rng=0)
        np.testing.assert_array_equal(auto.omega, by_name.omega)


@pytest.mark.parametrize("objective", ["kernel", "attention"])
def test_auto_takes_the_first_row_of_the_objective(objective):
    for kernel in K.Gaussian(), K.Softmax():
        best = recommend(pair(), kernel, 12, ["orthogonal"], objective=objective, rng=0).best
        auto = ka.random_features(kernel, D, 12, data=pair(), objective=objective, rng=0)
        assert type(auto) is ka.features.ESTIMATORS[best.estimator].cls


def test_uniform_attention(noise):
    """Where it is beaten and where it is not, the table says so; nobody loses where all keys are alike."""
    kernel = K.Softmax()
    near, far = recommend(data(0.5), kernel, 256, rng=0), noise
    assert near.best.high < near.uniform
    assert not near.hopeless
    assert far.best.low > far.uniform
    assert far.hopeless
    assert "No map is better" not in str(near)
    assert "No map is better than uniform attention" in str(far)
    same = recommend((data(), np.ones((N, D))), kernel, 16, rng=0)
    assert same.uniform == same.best.measured == 0
    assert not same.hopeless
    assert recommend(data(), K.Gaussian(), 16, rng=0).uniform is None


def test_hopeless_is_said_of_whole_intervals(noise):
    assert noise.hopeless
    rows = list(noise.choices)
    assert rows[0].over_uniform == pytest.approx(rows[0].low / noise.uniform)
    rows[-1] = rows[-1]._replace(over_uniform_each=(0.99,))
    assert not replace(noise, choices=tuple(rows)).hopeless


def test_maps_near_uniform_attention_are_redrawn_until_it_is_told():
    """The race ends after eight redraws, whose interval holds 1; more of the same map tell that it is above or below.

    Errors, by which maps are ranked, stay those of the race. One kind of values for which a map is better is enough.
    """

    class Drawn:
        """A map whose squared error over uniform attention's is a draw about e^at, for each kind of values."""

        def __init__(self, *at):
            self.at = at

        def redraw(self, rng):
            noise = 0.5 * rng.standard_normal()
            return Measured(np.exp(self.at[0] + noise), tuple(np.exp(at + noise) for at in self.at))

    target, seeds = SimpleNamespace(uniform=1.0, measure=lambda drawn: drawn), redraw_seeds(np.random.default_rng(3))
    for at, told in (((0.1,), True), ((-0.1,), False), ((0.1, 0.2), True), ((0.2, -0.1), False)):
        maps = {"near": Drawn(*at), "far": Drawn(*(3.0 for _ in at))}
        race, more = (measure_until_decided(maps, target, seeds, tells=tells) for tells in (False, True))
        assert min(race["near"].over_uniform_each) < 1
        assert {name: each[:4] for name, each in more.items()} == {name: each[:4] for name, each in race.items()}
        assert (min(more["near"].over_uniform_each) > 1) == told
        assert min(more["far"].over_uniform_each) > 1


def test_printed():
    table = recommend(data(), K.Softmax(), 16, ("iid", P.Orthogonal(), P.Orthogonal(norms="sqrt_d")), rng=0)
    lines = str(table).splitlines()
    assert lines[0].startswith("attention: 16 features, 40 queries and 40 keys; medians |x + y|^2")
    names = {P.Iid(): "iid", P.Orthogonal(): "orthogonal"}
    of_iid = "; predicted for iid frequencies"
    for choice in table.choices:
        name = names.get(choice.projection, repr(choice.projection))
        (line,) = (each for each in lines if each.startswith(f"  {choice.estimator:<22}  {name} "))
        assert f"{choice.predicted:.3g}{'*' * choice.reason.endswith(of_iid)} " in line
        assert f"{choice.measured:.3g} ± " in line
        assert f"  {choice.estimator:<22}  {choice.reason.removesuffix(of_iid)}" in lines
    assert any(choice.reason.endswith(of_iid) for choice in table.choices)
    assert "* predicted for iid frequencies" in lines
    assert any(line.split()[:2] == ["uniform", f"{table.uniform:.3g}"] for line in lines)
    assert max(map(len, lines)) < 120


def test_what_a_kernel_cannot_take_is_left_out():
    assert {choice.projection for choice in recommend(data(), K.Laplacian(), 8, rng=0).choices} == {P.Iid()}
    with pytest.raises(ParameterError, match="axis by axis"):
        recommend(data(), K.Laplacian(), 8, ["orthogonal"], rng=0)
    walk = recommend(data(), K.Gaussian(), 8, ["kac"], rng=0)
    assert all("predicted for iid frequencies" in choice.reason for choice in walk.choices)


def test_refusals():
    with pytest.raises(ParameterError, match="kernel must be one of"):
        recommend(data(), K.Polynomial(2), 8, rng=0)
    for one in ("orthogonal", P.Iid()):
        with pytest.raises(ParameterError, match="projections must be a tuple or list"):
            recommend(data(), K.Gaussian(), 8, one, rng=0)
    with pytest.raises(ParameterError, match="at least one"):
        recommend(data(), K.Gaussian(), 8, [], rng=0)
    with pytest.raises(ShapeError, match="data"):
        recommend(np.ones(3), K.Gaussian(), 8, rng=0)
    with pytest.raises(ParameterError, match="num_features"):
        recommend(data(), K.Gaussian(), 0, rng=0)
    with pytest.raises(ParameterError, match="objective must be one of kernel, attention; got 'errors'"):
        recommend(data(), K.Gaussian(), 8, objective="errors", rng=0)
    for given in ({"values": data()}, {"causal": True}):
        with pytest.raises(ParameterError, match="values and causal are for objective 'attention'"):
            recommend(data(), K.Gaussian(), 8, **given, rng=0)
    with pytest.raises(ShapeError, match="a row for each of the 40 keys"):
        recommend(data(), K.Softmax(), 8, values=np.ones((3, 2)), rng=0)
    with pytest.raises(ParameterError, match="must not all be 0"):
        recommend(data(), K.Softmax(), 8, values=np.zeros((N, 2)), rng=0)
    with pytest.raises(ShapeError, match="as many queries as keys; got 40 queries and 30 keys"):
        recommend(pair(), K.Softmax(), 8, causal=True, rng=0)
    for estimator, rows in (("positive", data()), ("auto", None)):
        with pytest.raises(ParameterError, match="are what estimator 'auto' chooses by on data"):
            ka.random_features(K.Softmax(), D, 8, estimator, data=rows, objective="kernel", rng=0)
    for kernel in K.Polynomial(2), K.Gaussian() + K.Softmax():
        with pytest.raises(ParameterError, match="'attention' is for kernels that have a spectral measure"):
            ka.random_features(kernel, D, 8, data=data(), objective="attention", rng=0)


def test_a_map_of_unknown_variance_is_ranked_last(monkeypatch):
    class Unknown(ka.features.Trigonometric):
        def variance(self, x, y):
            raise ka.errors.NoClosedForm("none")

    row = ka.features.ESTIMATORS["trigonometric"]
    monkeypatch.setitem(ka.features.ESTIMATORS, "unknown", replace(row, cls=Unknown))
    x = np.random.default_rng(2).standard_normal((20, 4))
    table = ka.features.recommend(x, ka.kernels.Gaussian(), 64, rng=0)
    assert table.choices[-1].estimator == "unknown"
    assert table.choices[-1].error == np.inf
    assert not isinstance(ka.random_features(ka.kernels.Gaussian(), 4, 64, data=x, rng=0), Unknown)
