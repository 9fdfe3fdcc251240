"""Structured projections as values: draws, seeds, equality, and what they refuse."""

import re
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors
from structured import SPECS

P = ka.projections


SHAPES = [(2, 2), (4, 6), (6, 6), (20, 6), (8, 7)]  # m, d


@pytest.fixture(params=SPECS)
def spec(request):
    return SPECS[request.param]


@pytest.mark.parametrize(("m", "d"), SHAPES)
def test_a_draw_is_a_read_only_host_array(spec, m, d):
    omega = spec.draw(m, d, 0)
    assert omega.shape == (m, d)
    assert omega.dtype == np.float64
    assert np.isfinite(omega).all()
    assert omega.flags.c_contiguous
    assert not omega.flags.writeable
    assert sum(spec.blocks(m, d)) == m


def test_seeds(spec):
    omega = spec.draw(8, 4, 5)
    np.testing.assert_array_equal(omega, spec.draw(8, 4, np.random.default_rng(5)))
    source = np.random.default_rng(5)
    assert not np.array_equal(spec.draw(8, 4, source), spec.draw(8, 4, source))
    assert not np.array_equal(omega, spec.draw(8, 4, 6))


def test_specs_are_values(spec):
    assert spec == eval(repr(spec), vars(P))
    assert hash(spec) == hash(eval(repr(spec), vars(P)))
    with pytest.raises(FrozenInstanceError):
        spec.norms = "chi"
    assert P.resolve(spec) is spec


def test_functions_are_the_specs():
    for got, spec in [
        (P.antithetic(8, 3, 1, P.Iid()), P.Antithetic(P.Iid())),
        (P.fastfood(8, 3, 1, "sqrt_d"), P.Fastfood("sqrt_d")),
        (P.hadamard(8, 3, 1, 2, "sqrt_d"), P.Hadamard(2, "sqrt_d")),
        (P.halton(8, 3, 1, "sqrt_d"), P.Halton("sqrt_d")),
        (P.kac(8, 3, 1, 4, "sqrt_d"), P.Kac(4, "sqrt_d")),
        (P.simplex(8, 3, 1, "coupled"), P.Simplex("coupled")),
        (P.sobol(8, 3, 1, "sqrt_d"), P.Sobol("sqrt_d")),
    ]:
        np.testing.assert_array_equal(got, spec.draw(8, 3, 1))


def refused(*words):
    return pytest.raises(errors.ParameterError, match=".*".join(re.escape(word) for word in words))


@pytest.mark.parametrize("number", [0, -2, 2.0, True, "3", None], ids=repr)
def test_sizes(spec, number):
    for call in (spec.draw, spec.blocks):
        with refused("m must be a positive integer", repr(number)):
            call(number, 4)
        with refused("d must be a positive integer", repr(number)):
            call(4, number)


def test_parameters():
    with refused("m must be even for antithetic pairs", "7"):
        P.antithetic(7, 4)
    with refused("m must be even"):
        ka.random_features(ka.kernels.Softmax(), 4, 7, "positive", "antithetic")
    with refused("d must be at least 2 for a simplex", "1"):
        P.simplex(3, 1)
    with refused("d must be below 21201 for Sobol points"):
        P.sobol(3, 21201)
    with refused("base must be a projection that is not antithetic", "Antithetic"):
        P.Antithetic(P.Antithetic())
    with refused("base must be a projection", "'iid'"):
        P.antithetic(4, 4, base="iid")
    for chains in (0, 1.0, None):
        with refused("chains must be a positive integer", repr(chains)):
            P.hadamard(4, 4, chains=chains)
    for steps in (0, 1.0, "9"):
        with refused("steps must be a positive integer", repr(steps)):
            P.kac(4, 4, steps=steps)
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
