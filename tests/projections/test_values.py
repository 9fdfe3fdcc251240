"""Projections as values: draws, seeds, equality, and what they refuse."""

import re
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors
from structured import ALL, BASIC

P = ka.projections
SHAPES = [(2, 1), (2, 2), (4, 6), (6, 6), (8, 7), (20, 6), (130, 64)]  # m, d


@pytest.fixture(params=ALL)
def spec(request):
    return ALL[request.param]


def refused(*words):
    return pytest.raises(errors.ParameterError, match=".*".join(re.escape(word) for word in words))


def test_a_draw_is_a_read_only_host_array(spec):
    for m, d in SHAPES:
        try:
            blocks = spec.blocks(m, d)
        except errors.ParameterError as error:
            assert d == 1, "simplices need two dimensions, all else is drawn in one"
            with refused(str(error)):
                spec.draw(m, d, 0)
            continue
        omega = spec.draw(m, d, 0)
        assert omega.shape == (m, d)
        assert omega.dtype == np.float64
        assert np.isfinite(omega).all()
        assert omega.flags.c_contiguous
        assert not omega.flags.writeable
        assert sum(blocks) == m
        assert all(type(size) is int and size >= 1 for size in blocks)


def test_seeds(spec):
    omega = spec.draw(8, 4, 5)
    for same in (5, np.random.default_rng(5), np.random.SeedSequence(5)):
        np.testing.assert_array_equal(omega, spec.draw(8, 4, same))
    source = np.random.default_rng(5)
    assert not np.array_equal(spec.draw(8, 4, source), spec.draw(8, 4, source))
    assert not np.array_equal(omega, spec.draw(8, 4, 6))
    assert not np.array_equal(spec.draw(64, 32), spec.draw(64, 32))  # 8 signs are alike once in 256 times


def test_specs_are_values(spec):
    assert spec == eval(repr(spec), vars(P))
    assert hash(spec) == hash(eval(repr(spec), vars(P)))
    with pytest.raises(FrozenInstanceError):
        spec.norms = "chi"
    assert P.resolve(spec) is spec


def test_old_functions_still_draw():
    for name, fields, spec in [
        ("antithetic", (P.Iid(),), P.Antithetic(P.Iid())),
        ("hadamard", (2, "sqrt_d"), P.Hadamard(2, "sqrt_d")),
        ("kac", (4, "sqrt_d"), P.Kac(4, "sqrt_d")),
        ("moment_matched", (), P.MomentMatched()),
        ("orthogonal", ("gram_schmidt",), P.Orthogonal("gram_schmidt", "chi")),
        *(
            (name, ("sqrt_d",), P.PROJECTIONS[name]("sqrt_d"))
            for name in ("fastfood", "halton", "iid", "simplex", "sobol")
        ),
    ]:
        with pytest.warns(DeprecationWarning, match=rf"projections\.{name} is now .*{type(spec).__name__}\(\)\.draw"):
            draw = getattr(P, name)
        np.testing.assert_array_equal(draw(8, 3, 1, *fields), spec.draw(8, 3, 1))
    with pytest.warns(DeprecationWarning, match="DirectionalProjection"):
        assert P.Directed is P.DirectionalProjection


def test_norms(spec):
    """Constant ones are sqrt(d), to rounding; others differ."""
    norms = np.linalg.norm(spec.draw(20, 8, 0), axis=-1)
    if getattr(spec, "norms", "chi") == "sqrt_d":
        np.testing.assert_allclose(norms, np.sqrt(8), rtol=1e-13)
    else:
        assert len(np.unique(norms)) >= 10  # opposites share theirs


def test_resolve():
    assert P.resolve("iid") == P.Iid()
    assert P.resolve("orthogonal") == P.Orthogonal(method="qr", norms="chi")
    assert {type(P.resolve(name)) for name in P.PROJECTIONS} == set(P.PROJECTIONS.values())


@pytest.mark.parametrize("number", [0, -2, 2.0, True, "3", None, np.float64(3)], ids=repr)
def test_sizes(number):
    calls = [call for spec in ALL.values() for call in (spec.draw, spec.blocks)]
    for call in calls:
        with refused("m must be a positive integer", repr(number)):
            call(number, 4)
        with refused("d must be a positive integer", repr(number)):
            call(4, number)


@pytest.mark.parametrize("name", BASIC)
def test_numpy_integers_are_sizes(name):
    np.testing.assert_array_equal(BASIC[name].draw(np.int32(3), np.int64(2), np.uint8(1)), BASIC[name].draw(3, 2, 1))


@pytest.mark.parametrize("rng", [-1, 1.0, True, "0", np.random.RandomState(0)], ids=lambda rng: type(rng).__name__)
def test_rng(spec, rng):
    with refused("rng must be"):
        spec.draw(4, 4, rng)


@pytest.mark.parametrize("name", ["sobol_", "", None, 3, ["qr"]], ids=repr)
def test_names(name):
    for make in (P.Iid, P.Orthogonal):
        with refused("norms must be one of", "chi", "sqrt_d", f"got {name!r}"):
            make(norms=name)
    with refused("method must be one of", "gram_schmidt", "qr", f"got {name!r}"):
        P.Orthogonal(method=name)
    if isinstance(name, str):
        with refused("projection must be one of", "iid", "orthogonal", f"got {name!r}"):
            P.resolve(name)
    else:
        with pytest.raises(errors.DTypeError, match="projection must be a Projection, or the name of one"):
            P.resolve(name)


def test_norms_that_a_projection_has():
    for make in (P.Fastfood, P.Hadamard, P.Halton, P.Iid, P.Kac, P.Sobol):
        with refused("norms must be one of chi, sqrt_d", "got 'coupled'"):
            make(norms="coupled")
    for make in (P.Orthogonal, P.Simplex):
        with refused("norms must be one of chi, sqrt_d, coupled", "got 'equal'"):
            make(norms="equal")


def test_nothing_is_drawn_before_a_refusal():
    source = np.random.default_rng(0)
    before = source.bit_generator.state
    for spec, m, d in ((P.Antithetic(), 7, 4), (P.Simplex(), 3, 1), (P.Sobol(), 2, 30000)):
        with pytest.raises(errors.ParameterError):
            spec.draw(m, d, source)
    assert source.bit_generator.state == before
