"""The table kernel x projection x estimator: no row or column of it is untested, and its page is the code's.

Where time is given, every cell is tested.

Pairs are near 0, where the fourth moments of exponential terms are far below the number of draws.
"""

import importlib.util
from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import NoClosedForm, ParameterError, ShapeError
from kernattn.features._choose.combinations import _kernels

DOCS = Path(__file__).parents[2] / "docs"
SPEC = importlib.util.spec_from_file_location("combinations_page", DOCS / "combinations.py")
writer = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(writer)

D = writer.DIM  # no power of two: Hadamard matrices are padded
LONG = 400  # draws in one, of maps whose blocks of frequencies are independent
REDRAWS = 100  # of other maps
FEW, TIMES = 40, 32  # redraws with so many times the features, where only means are compared
KERNELS = _kernels()
DATA = np.concatenate([np.eye(D), np.ones((1, D)) / D])
PROJECTION_NAMES = {kind: name for name, kind in ka.projections.PROJECTIONS.items()}


@cache
def table():
    """The whole table: not before a test asks for it."""
    return ka.features.combinations(dim=D)


@cache
def defined():
    """Return the cells that have a map."""
    return [cell for cell in table() if cell.status != "undefined"]


@cache
def usual():
    """Return a cell for every kernel with an estimator, and for every projection with one, in a mixed order."""
    mixed = [defined()[i] for i in np.random.default_rng(0).permutation(len(defined()))]
    found, seen = [], set()
    for least in (2, 1):  # first those that are new in both
        for cell in mixed:
            new = {(cell.kernel, cell.estimator), (cell.projection, cell.estimator)} - seen
            if len(new) >= least:
                found.append(cell)
                seen |= new
    return found


def name(cell):
    return f"{writer.kernel_name(cell.kernel)}-{cell.projection}-{cell.estimator}"


def pairs(kernel, estimator):
    """Along axes, along the diagonal, and any: x, y (6, d), without negative numbers where the kernel has none."""
    u = np.stack([np.eye(D)[1], np.ones(D) / np.sqrt(D), np.arange(1.0, D + 1) * (-1) ** np.arange(D) / np.sqrt(55)])
    w = np.roll(u, 1, axis=0)
    x = np.concatenate([0.4 * u, 0.5 * u]) / kernel.input_scale(D)
    y = np.concatenate([0.3 * w, 0.2 * w - 0.3 * u]) / kernel.input_scale(D)
    try:
        kernel.check_domain("y", y)
    except ParameterError:
        x, y = np.abs(x), np.abs(y)
    return (np.ceil(10 * x), np.ceil(10 * y)) if estimator == "minwise" else (x, y)  # which takes counts


def draw(cell, times=1, projection=None, rng=0):
    """The map of a cell, with so many times its features."""
    size, spec = times * cell.num_features, projection or cell.projection
    return ka.random_features(cell.kernel, D, size, cell.estimator, spec, DATA, rng)


def estimates(phi, x, y, redraws):
    """phi(x).phi(y) of redraws, (redraws, pairs)."""
    rng = np.random.default_rng(3)
    return np.stack([np.sum(each.query(x) * each.key(y), -1) for each in (phi.redraw(rng) for _ in range(redraws))])


def estimates_at_once(cell, frequencies, x, y):
    """The same of the blocks of one long draw, (LONG, pairs)."""
    long = draw(cell, LONG, rng=4)
    products = (long.query(x) * long.key(y)).reshape(len(x), -1, LONG, frequencies)  # halves of pairs lie apart
    return LONG * products.sum(axis=(1, 3)).T


def is_made_of_blocks(phi):
    """Is a draw of more frequencies as good as more draws?"""
    omega = getattr(phi, "omega", np.empty(0))
    if omega.ndim != 2:
        return False
    blocks = phi.projection.blocks
    return blocks(2 * len(omega), D) == 2 * blocks(len(omega), D)


def check_moment(sample, wanted):
    """|z| < 4.5, or equal where nothing is random."""
    mean, spread = sample.mean(axis=0), sample.std(axis=0)
    fixed = spread <= 1e-9 * np.abs(sample).max(axis=0)
    np.testing.assert_allclose(mean[fixed], wanted[fixed], rtol=1e-8, atol=1e-15)
    z = (mean - wanted)[~fixed] / (spread[~fixed] / np.sqrt(len(sample)))
    assert (np.abs(z) < 4.5).all(), z


def check_bias(phi, cell, x, y):
    np.testing.assert_allclose(phi.bias(x, y), phi.mean(x, y) - cell.kernel.pairs(x, y), rtol=1e-9, atol=1e-12)


def check_variance(cell):
    """Mean and variance in closed form are those of draws."""
    phi, (x, y) = draw(cell), pairs(cell.kernel, cell.estimator)
    check_bias(phi, cell, x, y)
    if phi.redraw(1) is phi:  # nothing is random
        np.testing.assert_allclose(np.sum(phi.query(x) * phi.key(y), -1), phi.mean(x, y), rtol=1e-12)
        assert (phi.variance(x, y) == 0).all()
        return
    at_once = is_made_of_blocks(phi)
    sample = estimates_at_once(cell, len(phi.omega), x, y) if at_once else estimates(phi, x, y, REDRAWS)
    check_moment(sample, phi.mean(x, y))
    check_moment((sample - sample.mean(axis=0)) ** 2, phi.variance(x, y))


def check_mean(cell):
    """The mean in closed form is that of draws; the variance is refused."""
    phi, (x, y) = draw(cell, TIMES), pairs(cell.kernel, cell.estimator)
    check_bias(phi, cell, x, y)
    check_moment(estimates(phi, x, y, FEW), phi.mean(x, y))
    with pytest.raises(NoClosedForm):
        phi.variance(x, y)


def check_near(cell):
    """Draws come near to the mean of uniform directions, in the padded dimension if there is one."""
    phi, (x, y) = draw(cell, TIMES), pairs(cell.kernel, cell.estimator)
    padded = cell.projection.blocks(8 * D, D)[0] > D
    uniform = draw(cell, projection=(ka.projections.Fastfood if padded else ka.projections.Iid)(cell.projection.norms))
    wanted, size = uniform.mean(x, y), np.sqrt(uniform.mean(x, x) * uniform.mean(y, y))
    sample, share = estimates(phi, x, y, FEW), writer.NEAR_OF.get(cell.estimator, writer.NEAR)
    assert (np.abs(sample.mean(axis=0) - wanted) < share * size + 4.5 * sample.std(axis=0) / np.sqrt(FEW)).all()
    for method in (phi.mean, phi.bias, phi.variance):
        with pytest.raises(NoClosedForm):
            method(x, y)


CHECKS = {"variance": check_variance, "mean": check_mean, "near": check_near}


def check(cells):
    for cell in cells:
        try:
            CHECKS[cell.status](cell)
        except AssertionError as error:
            raise AssertionError(name(cell)) from error
        assert bool(cell.reason) == (cell.status != "variance"), name(cell)


@pytest.mark.statistical
@pytest.mark.parametrize("kernel", KERNELS, ids=writer.kernel_name)
def test_maps(kernel):
    """Of a kernel with an estimator, and of a projection with one, a cell each."""
    check(cell for cell in usual() if cell.kernel == kernel)


@pytest.mark.slow
@pytest.mark.statistical
@pytest.mark.parametrize("estimator", ka.features.ESTIMATORS)
@pytest.mark.parametrize("kernel", KERNELS, ids=writer.kernel_name)
def test_all_maps(kernel, estimator):
    check(cell for cell in defined() if cell.kernel == kernel and cell.estimator == estimator)


@pytest.mark.parametrize("kernel", KERNELS, ids=writer.kernel_name)
def test_estimators_are_those_with_a_map(kernel):
    assert {cell.estimator for cell in defined() if cell.kernel == kernel} == set(ka.features.estimators(kernel))


@pytest.mark.parametrize("kernel", KERNELS, ids=writer.kernel_name)
def test_the_undefined_is_refused_before_any_draw(kernel):
    """And the message names what was given."""
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    for cell in table():
        if cell.kernel != kernel or cell.status != "undefined":
            continue
        with pytest.raises(ParameterError) as info:
            ka.random_features(kernel, D, 8 * D, cell.estimator, cell.projection, DATA, rng)
        assert str(info.value).startswith(cell.reason)
        norms = getattr(cell.projection, "norms", None)
        given = (repr(cell.projection), *map(repr, (PROJECTION_NAMES[type(cell.projection)], cell.estimator, norms)))
        assert any(words in str(info.value) for words in given), info.value
        assert rng.bit_generator.state == before, name(cell)


def test_every_kernel_projection_and_estimator_is_there():
    kinds = {*ka.kernels.KERNELS.values(), *ka.kernels.ALGEBRA.values()}
    assert {type(cell.kernel) for cell in table()} == kinds
    assert {type(cell.projection) for cell in table()} == set(ka.projections.PROJECTIONS.values())
    assert {cell.estimator for cell in table()} == set(ka.features.ESTIMATORS)
    defined = defaultdict(set)
    for cell in table():
        if cell.status != "undefined":
            defined[type(cell.kernel)].add(cell.estimator)
            defined[type(cell.projection)].add(cell.estimator)
            defined[cell.estimator].add(cell.projection)
    assert all(defined[key] for cell in table() for key in (type(cell.kernel), type(cell.projection), cell.estimator))
    assert len(table()) == len({cell[:3] for cell in table()})


def test_a_table_of_ones_own():
    kernel = ka.kernels.Gaussian((0.5, 2.0, 1.0))
    table = ka.features.combinations([kernel], ["iid", ka.projections.Hadamard(chains=1)], dim=3)
    statuses = {(str(cell.projection)[:3], cell.estimator): cell.status for cell in table}
    assert statuses["iid".title(), "positive"] == "variance"
    assert statuses["Had", "positive"] == "near"
    assert statuses["Had", "sampled"] == "undefined"
    assert statuses["Iid", "exact"] == "undefined"


def test_refusals():
    with pytest.raises(ParameterError, match="projection"):
        ka.features.combinations(projections=["diagonal"])
    with pytest.raises(ParameterError, match="projections must be a sequence; got 'iid'"):
        ka.features.combinations(projections="iid")
    with pytest.raises(ParameterError, match="kernels must be a sequence; got Gaussian"):
        ka.features.combinations(ka.kernels.Gaussian())
    with pytest.raises(ParameterError, match="dim"):
        ka.features.combinations(dim=0)
    with pytest.raises(ShapeError, match="3 entries"):
        ka.features.combinations([ka.kernels.Gaussian((1.0, 1.0, 1.0))], dim=4)


def test_the_page_is_the_codes():
    stored = (DOCS / "guide" / "combinations.md").read_text(encoding="utf-8")
    assert stored == writer.page(table()), "stale: python docs/combinations.py"


def test_a_page_that_fails_leaves_the_old_one(tmp_path, monkeypatch):
    page = tmp_path / "combinations.md"
    monkeypatch.setattr(writer, "PAGE", page)
    monkeypatch.setattr(ka.features, "combinations", lambda dim: table())
    writer.write()
    written = page.read_bytes()
    assert written == (DOCS / "guide" / "combinations.md").read_bytes()
    monkeypatch.delattr(writer, "table")
    with pytest.raises(NameError):
        writer.write()
    assert page.read_bytes() == written
